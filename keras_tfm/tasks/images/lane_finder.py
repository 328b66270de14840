"""Finding lanes in images of roads: a set of curves, by an `LSTR`."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Between, Option, Size
from keras_tfm.data.batches.lanes import LaneBatches, lane_targets
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.lanes import NOT_THERE, Lanes, checked_lanes, pictures_in, read_lanes
from keras_tfm.heads.lanes import LaneDetector, lane_points
from keras_tfm.models import LSTR
from keras_tfm.models.detection.lstr import LSTRConfig
from keras_tfm.serving.examples import listed, not_list
from keras_tfm.tasks.baselines import Baselines
from keras_tfm.tasks.images.canvas_task import (
    CanvasTask,
    canvas_batches,
    refuse_many,
    sized,
)
from keras_tfm.tasks.images.decoded import listed_images
from keras_tfm.tasks.images.detector import Score
from keras_tfm.tasks.images.drawing import Pictures, draw_lanes
from keras_tfm.tasks.images.lane_measures import lane_measures, mean_accuracy
from keras_tfm.tasks.learning import ModelOptions, with_side
from keras_tfm.tasks.records import rounded_line
from keras_tfm.tasks.signatures import Signature
from keras_tfm.training.options import ImagesInBatch, LeastArea, PartlyTrained

MEAN_LANES = "the mean lanes"
Height = Annotated[float, Between(0, 1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaneFinderConfig(Canvas):
    """`heights`, from 0 at the upper edge to 1, are where answers say the lanes' x. Lanes that score
    `threshold` or more are in the answers.
    """

    heights: tuple[Height, ...]
    threshold: Annotated[Score, Option("the score, from 0 to 1, from which predict returns a lane")] = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "heights", tuple(np.atleast_1d(self.heights).astype(float).tolist()))
        super().__post_init__()
        if len(self.heights) < 2 or list(self.heights) != sorted(set(self.heights)):
            raise ValueError(f"`heights` must be two or more, ascending; they are {self.heights}.")


@dataclasses.dataclass(frozen=True)
class LaneOptions(ModelOptions):
    """An LSTR with fresh weights; --config changes its `image_size`, for example, and `backbone_config`."""

    size: Annotated[
        str, Option("base, as published, for images of 640 x 360 pixels, or tiny, for 160 x 90")
    ] = "tiny"
    num_queries: Annotated[
        Size | None,
        Option("most lanes that are found in an image", flag="--queries", default="set by --size"),
    ] = None

    def base(self) -> LSTRConfig:
        changes = {} if self.num_queries is None else {"num_queries": self.num_queries}
        return LSTR.config_of_size(self.size, **changes)


@dataclasses.dataclass(frozen=True)
class LaneTraining(PartlyTrained):
    """By default the warm-up takes a tenth of the steps."""

    batch_size: ImagesInBatch = 16
    flip: Annotated[bool, Option("mirror images and their lanes at random")] = True
    least_area: LeastArea = 1.0


class LaneFinder(CanvasTask):
    """Finds the lines between lanes in images of roads, as `ImageTask` takes them, by a `backbone`, an `LSTR`
    or one with its head.

    Examples are (images, heights, lanes): for each image some heights (P,) and the x of its lanes at these
    heights (M, P), in pixels of the image, negative where a lane is not. An answer has the form of TuSimple's
    files, {"lanes": (M, P), "h_samples": (P,), "scores": (M,)}, the surest lane first: x is -2 where a lane
    is not. `fields` are fields of `LaneFinderConfig`; `heights` are by default the examples' heights.

    >>> backbone = keras_tfm.models.LSTR.from_size("tiny", image_size=(30, 60))
    >>> task = keras_tfm.tasks.LaneFinder(backbone, heights=[0.5, 0.75, 1.0])
    >>> images, heights = np.zeros((4, 30, 60, 3), "uint8"), [[15, 20, 30]] * 4
    >>> history = task.fit((images, heights, [[[30, 20, 10], [-2, 45, 55]]] * 4), epochs=1)
    >>> sorted(task.predict(images[:1])[0])
    ['h_samples', 'lanes', 'scores']
    """

    name = "find-lanes"
    start = "a RUN of this task"
    files = "TuSimple's .json: lines with raw_file, h_samples and lanes"
    examples_class = Lanes
    training = LaneTraining(
        epochs=50, patience=None, learning_rate=1e-3, schedule="cosine", weight_decay=1e-4
    )
    optimizer_options = {"global_clipnorm": 0.1}  # of a pole near a point the gradient is large
    model_options = LaneOptions
    annotations = staticmethod(pictures_in)
    from_files = staticmethod(read_lanes)
    ranked = "lanes", "scores", "curves"
    usual_shape = (360, 640, 3)
    make_head = LaneDetector
    config_class = LaneFinderConfig
    config: LaneFinderConfig

    def __init__(self, backbone: keras.Model, **fields: Any):
        self.config = LaneFinderConfig(**fields)
        self.take_model(backbone)

    def with_head(self, backbone: keras.Model) -> keras.Model:
        return LaneDetector(backbone)

    @classmethod
    def make(cls, examples: Lanes, options: LaneOptions, changes: Mapping[str, Any], **fields: Any) -> Self:
        config = dataclasses.asdict(options.base()) | with_side(changes, fields)
        fields.setdefault("heights", max(examples.heights, key=len))
        return cls(LSTR(LSTRConfig.from_json(config)), **fields)

    @classmethod
    def describe(cls, examples: Lanes) -> str:
        return f"{len(examples.images):,} images with {sum(map(len, examples.lanes)):,} lanes"

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        return isinstance(model, LaneDetector)

    def check_examples(self, examples: Any, /) -> Lanes:
        """Images with their sizes, heights and lanes as parts of their sides."""
        if not isinstance(examples, Lanes):
            images, sizes, heights, lanes = self.columns_in(examples, heights=not_list, lanes=not_list)
            places = [f"image {row}" for row in range(len(images))]
            examples = Lanes(images, sizes, *checked_lanes(places, heights, lanes, sizes))
        if not any(map(len, examples.lanes)):
            raise ValueError(f"examples: expected lanes, there are none in {len(examples.images)} images")
        refuse_many("lanes", map(len, examples.lanes), self.model.backbone.config.num_queries)
        return examples

    def batches(self, examples: Lanes, training: LaneTraining, is_validation: bool = False) -> LaneBatches:
        targets = lane_targets(examples.heights, examples.lanes)
        places = (self.preprocessing, self.image_shape, training, is_validation)
        return canvas_batches(examples, targets, *places, make=LaneBatches)

    def baselines(self, examples: Lanes, validation: Lanes, seed: int) -> Baselines | None:
        if not any(map(len, validation.lanes)):
            return None
        rules = {MEAN_LANES: mean_accuracy(examples, validation)}
        return Baselines("accuracy", "max", rules, len(validation.images))

    def find(self, images: tf.Tensor, sizes: tf.Tensor) -> dict[str, tf.Tensor]:
        """All Q lanes of raw images of the model's size (B, H, W, C), whose own `sizes` are (B, 2), the
        surest first: `lanes` (B, Q, P) in their own pixels at the heights `h_samples` (B, P), `scores` (B, Q)
        and `curves` (B, Q, 8), the numbers of `heads.lane_positions`.
        """
        outputs = self.model(self.preprocessing.inputs(images, sizes), training=False)
        scores = tf.reduce_max(self.model.probabilities(outputs["logits"]), axis=-1)
        scores, order = tf.math.top_k(scores, scores.shape[1])
        curves = tf.gather(tf.cast(outputs["curves"], tf.float32), order, batch_dims=1)
        height, width = tf.split(tf.cast(sizes, tf.float32), 2, axis=1)  # (B, 1)
        heights = tf.zeros_like(height) + tf.constant(self.config.heights, tf.float32)
        x = lane_points(curves, heights)
        lanes = tf.where(x >= 0, x * width[..., None], float(NOT_THERE))
        return {"lanes": lanes, "h_samples": heights * height, "scores": scores, "curves": curves}

    def predict(
        self,
        images: Any,
        /,
        *,
        threshold: float | None = None,
        draw: Pictures | None = None,
        batch_size: int = 16,
    ) -> list[dict[str, Any]]:
        """The lanes of each image of a score of `threshold`, by default the configuration's, and above.

        With `draw`, a folder, pictures with the lanes over them are written there, or to a file for each.
        """
        images = listed(listed_images(images))
        found = self.surest(images, threshold, batch_size)
        for answer in found:
            del answer["curves"]
        if draw is not None:
            draw_lanes(images, found, draw)
        return found

    def as_line(self, answer: dict[str, Any]) -> str:
        return rounded_line(answer, {"lanes": 2, "h_samples": 2, "scores": 4})

    def measure(self, examples: Lanes) -> dict[str, Any]:
        """TuSimple's "accuracy", "fp" and "fn", from 0 to 100; see `lane_measures`."""
        found = self.surest(sized(examples), None, self.training.batch_size)
        points = [
            np.asarray(lane_points(answer["curves"][None], heights[None]))[0]
            for answer, heights in zip(found, examples.heights, strict=True)
        ]
        return lane_measures(examples, points)

    def signature(self) -> Signature:
        """All lanes that the model gives, of scores down to 0: the caller chooses."""
        return self.signature_of(lambda inputs: self.find(**inputs), {"kind": "arrays"})
