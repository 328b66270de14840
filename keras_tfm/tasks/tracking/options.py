"""What a tracker is made of: its configuration, its families of models, and how it is trained."""

import dataclasses
from typing import Annotated, Any

import keras

from keras_tfm.configs import Between, Count, Option, Refusal
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.heads.target_detector import CellDetector, HeatmapDetector, TargetDetector
from keras_tfm.heads.track_detector import TrackDetector
from keras_tfm.models import TransT, TransTrack, TrTr
from keras_tfm.models.detection.backbones import AroundBackbone
from keras_tfm.tasks.learning import ModelOptions, family_among
from keras_tfm.training.options import LeastArea, PartlyTrained

MANY = {"transtrack": TransTrack}  # that follow all objects
ONE = {"transt": TransT, "trtr": TrTr}  # that follow one
FAMILIES = {**MANY, **ONE}
HEADS: dict[type, type] = {TransTrack: TrackDetector, TransT: TargetDetector, TrTr: HeatmapDetector}
Share = Annotated[float, Between(0, 1)]
TrackingModel = TrackDetector | CellDetector


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrackerConfig(Canvas):
    """How frames are read, and what becomes of what the model finds in them.

    Args:
        threshold: the score from which a detection begins or continues a track; of a family for many objects.
        max_age: the frames that a lost object is waited for; of a family for many objects.
        penalty: the weight of the window that prefers the middle of the searched part; of a family for one.
    """

    threshold: Annotated[
        Share, Option("lowest score, from 0 to 1, of an object that is followed (many objects)")
    ] = 0.4
    max_age: Annotated[
        Count, Option("frames without an object after which it is given up (many objects)")
    ] = 32
    penalty: Annotated[
        Share, Option("how much the middle of the searched part is preferred, from 0 to 1 (one object)")
    ] = 0.49


@dataclasses.dataclass(frozen=True)
class TrackerOptions(ModelOptions):
    """A tracker with fresh weights; --config changes its `backbone`, for example, and `backbone_config`."""

    family: Annotated[
        str,
        Option(f"kind of tracker: {', '.join(MANY)} for many objects, {' or '.join(ONE)} for one"),
    ] = "transtrack"
    size: Annotated[
        str, Option("a published size of the family, or tiny, for frames of some 64 x 64 to 96 x 96 pixels")
    ] = "tiny"

    @property
    def model_class(self) -> Any:
        """The class of the family; ValueError for an unknown family."""
        return family_among(FAMILIES, self.family, ("image_size", "num_channels"))

    def base(self) -> AroundBackbone:
        return self.model_class.config_of_size(self.size)


@dataclasses.dataclass(frozen=True)
class TrackingTraining(PartlyTrained):
    """It learns from pairs of frames. By default the warm-up takes a tenth of the steps."""

    batch_size: Annotated[Count, Option("pairs of frames in a batch")] = 16
    flip: Annotated[bool, Option("mirror pairs of frames at random")] = True
    max_gap: Annotated[
        Count | None,
        Option("most frames between the two of a pair", default="1 for many objects, 100 for one"),
    ] = None
    least_area: LeastArea = 1.0


def with_head(backbone: keras.Model, **head: Any) -> Any:
    """The `backbone` with the `head` that its family has, or itself if it has one; ValueError for another."""
    if isinstance(backbone, TrackingModel):
        return backbone
    if type(backbone) not in HEADS:
        raise Refusal("backbone", f"a {', '.join(kind.__name__ for kind in HEADS)}", type(backbone).__name__)
    kind = HEADS[type(backbone)]
    return kind(backbone, **({"num_classes": 1} if kind is TrackDetector else {}) | head)
