"""What `Detector` is configured by, and what it asks of images and examples."""

import dataclasses
from typing import Annotated

import keras

from keras_tfm.configs import Between, Option, Size, meant
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.objects import Objects
from keras_tfm.models import DETR, RTDETR, SMCA, ConditionalDETR, DeformableDETR
from keras_tfm.models.detection.base import SetDetector, SetDetectorConfig
from keras_tfm.tasks.learning import ModelOptions

FAMILIES: dict[str, type[SetDetector]] = {
    "deformable-detr": DeformableDETR,
    "conditional-detr": ConditionalDETR,
    "detr": DETR,
    "smca": SMCA,
    "rt-detr": RTDETR,
}
# Whose published checkpoints read images stretched to the size of the model: their class of preprocessing.
STRETCHING: dict[type[SetDetector], str] = {RTDETR: "RTDetrImageProcessor"}
Score = Annotated[float, Between(0, 1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DetectorConfig(Canvas):
    """`class_names` are strings, in the order of the logits. Objects of a score of `threshold` and above are
    told.
    """

    class_names: tuple[str, ...]
    threshold: Annotated[Score, Option("the score, from 0 to 1, from which predict tells of an object")] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.class_names or len(set(self.class_names)) < len(self.class_names):
            raise ValueError(f"`class_names` must be different strings; they are {self.class_names}.")


@dataclasses.dataclass(frozen=True)
class DetectorOptions(ModelOptions):
    """A detector with fresh weights; --config changes its `backbone`, for example, and `backbone_config`."""

    family: Annotated[str, Option(f"kind of detector: {', '.join(FAMILIES)}")] = "deformable-detr"
    size: Annotated[
        str,
        Option("50, around a ResNet, another one of the family, or tiny, for images of some 96 x 96 pixels"),
    ] = "tiny"
    num_queries: Annotated[
        Size | None, Option("objects of an image at most", flag="--queries", default="the size's")
    ] = None

    @property
    def model_class(self) -> type[SetDetector]:
        """The class of the family; ValueError for an unknown family."""
        if self.family not in FAMILIES:
            raise ValueError(
                f"There is no family {self.family!r}{meant(self.family, FAMILIES)}; there are "
                f"{', '.join(FAMILIES)}."
            )
        return FAMILIES[self.family]

    def base(self) -> SetDetectorConfig:
        changes = {} if self.num_queries is None else {"num_queries": self.num_queries}
        return self.model_class.config_of_size(self.size, **changes)


def names_of(examples: Objects) -> list[str]:
    """The names of the classes of examples, in order."""
    return sorted({name for names in examples[-1] for name in names})


def copy_heads(source: keras.Model, target: keras.Model, names: str | tuple[str, ...]) -> None:
    """Copy weights from `source` to `target` for heads whose names begin with `names`."""
    for layer in target.layers:
        if layer.name.startswith(names):
            layer.set_weights(source.get_layer(layer.name).get_weights())
