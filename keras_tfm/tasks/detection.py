"""What `Detector` is configured by, and what it asks of images and examples."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Between, Option, Size
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.image_files import ImageFiles, read_bytes, size_of
from keras_tfm.data.sources.objects import Objects
from keras_tfm.heads.boxes import corners_of
from keras_tfm.models import DETR
from keras_tfm.models.detection.detr import DETRConfig
from keras_tfm.tasks.image_task import preprocessing_in, with_fields
from keras_tfm.tasks.learning import ModelOptions

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

    size: Annotated[
        str, Option("50 or 101, DETR around a ResNet, or tiny, for images of some 96 x 96 pixels")
    ] = "tiny"
    num_queries: Annotated[
        Size | None, Option("objects of an image at most", flag="--queries", default="the size's")
    ] = None

    def base(self) -> DETRConfig:
        changes = {} if self.num_queries is None else {"num_queries": self.num_queries}
        return DETR.config_of_size(self.size, **changes)


def names_of(examples: Objects) -> list[str]:
    """The names of the classes of examples, in order."""
    return sorted({name for names in examples[-1] for name in names})


def sizes_of(images: Any) -> np.ndarray:
    """The own (height, width) of each image, (N, 2); (1, 1) of a file that has none."""
    if not isinstance(images, ImageFiles):
        return np.broadcast_to(np.array(images.shape[1:3], "int64"), (len(images), 2))
    sizes = []
    for source in images.sources:
        try:
            sizes.append(size_of(read_bytes(source)) or (1, 1))
        except OSError:
            sizes.append((1, 1))
    return np.array(sizes, "int64").reshape(-1, 2)


def canvas_in(config: DetectorConfig) -> Canvas:
    """The part of a configuration that is about images."""
    return Canvas(**dataclasses.asdict(preprocessing_in(config)))


def canvas_of(fields: Mapping[str, Any]) -> Canvas:
    """The canvas that some of the `fields` of a configuration say."""
    return with_fields(Canvas(), fields)


def by_query(model: keras.Model, inputs: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The likeliest object of each query of a detector: its box (B, Q, 4) in parts of the image's sides, its
    class (B, Q) and its score (B, Q).
    """
    outputs = model(inputs, training=False)
    probabilities = tf.nn.softmax(tf.cast(outputs["logits"], tf.float32))[..., :-1]
    boxes = tf.clip_by_value(corners_of(tf.cast(outputs["boxes"], tf.float32)), 0.0, 1.0)
    return boxes, tf.argmax(probabilities, axis=-1), tf.reduce_max(probabilities, axis=-1)
