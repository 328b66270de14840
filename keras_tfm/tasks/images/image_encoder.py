"""Images as vectors: similar images get similar vectors."""

import dataclasses
from typing import Any, Literal, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Config
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.tasks.images.image_task import ImageTask, preprocessing_in, with_image_size
from keras_tfm.tasks.signatures import Signature
from keras_tfm.tasks.task import describe_backbone, make_backbone
from keras_tfm.training.folder import Path


@dataclasses.dataclass(frozen=True)
class ImageEncoderConfig(Preprocessing):
    """The vectors of an `ImageEncoder`, and the preprocessing of its images.

    Args:
        pooling: "first" for the backbone's pooled output, or "mean" for the mean of its tokens, class token
            included.
        normalize: whether vectors have length 1.
    """

    pooling: Literal["first", "mean"] = "first"
    normalize: bool = True


class ImageEncoder(ImageTask):
    """Turns images into vectors (D,): the pooled output of a vision `backbone`.

    Images are what `ImageTask` describes. The dot product of two vectors of length 1 is their cosine
    similarity.

    >>> sizes = {"num_layers": 1, "dim": 32, "num_heads": 2, "intermediate_dim": 64}
    >>> encoder = keras_tfm.tasks.ImageEncoder(keras_tfm.models.ViT.from_size("B/16", **sizes))
    >>> encoder.predict(np.zeros((2, 224, 224, 3), "uint8")).shape
    (2, 32)
    """

    name = "image-vectors"
    config_class = ImageEncoderConfig

    def __init__(self, backbone: keras.Model, config: ImageEncoderConfig | None = None):
        self.config = config or ImageEncoderConfig()
        self.model = with_image_size(backbone, self.config.image_size)
        self.take_images(self.model)

    @classmethod
    def from_task(cls, task: Any, **fields: Any) -> Self:
        """An encoder with the backbone and the preprocessing of another image task."""
        if not isinstance(task, ImageTask):
            raise ValueError(f"`task` must be a task that reads images; it is a {task.name!r} task.")
        kept = dataclasses.asdict(preprocessing_in(task.config))
        return cls(task.encoder, ImageEncoderConfig(**kept | fields))

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        """Whether `model` is a vision model without a head."""
        outputs = model.output if isinstance(model.output, dict) else {}
        return "images" in model.input and "sequence_output" in outputs

    @classmethod
    def from_huggingface(cls, name: Path, **fields: Any) -> Self:
        """The backbone in the folder `name` of transformers or timm (or of this hub id), without its head.

        Raises:
            CheckpointError: if a file is missing or not as it must be, or the model does not read images.
        """
        from keras_tfm.convert import CheckpointError, find_folder
        from keras_tfm.convert.preprocessing import image_model

        backbone, published = image_model(find_folder(name), with_head=False)
        if not cls.takes(backbone):
            raise CheckpointError(name, "model_type", "a model of images", type(backbone).__name__)
        return cls(backbone, ImageEncoderConfig(**published | fields))

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for `transformers`: config.json, preprocessor_config.json and
        model.safetensors.
        """
        from keras_tfm.convert import save_huggingface
        from keras_tfm.convert.preprocessing import preprocessor_writer

        writer = preprocessor_writer(self.preprocessing, self.image_shape)
        save_huggingface(self.model, folder, overwrite, writers=[writer])

    def __call__(self, batch: Any, training: bool = False) -> Any:
        """The backbone's outputs for raw images, or for {"images": raw images}."""
        images = batch["images"] if isinstance(batch, dict) else batch
        images = np.asarray(self.check_images(images))
        return self.model({"images": self.prepare(images)}, training=training)

    def encode(self, images: tf.Tensor) -> tf.Tensor:
        """Raw images (B, H, W, C) to vectors (B, D). Runs in a graph."""
        outputs = self.model({"images": self.prepare(images)}, training=False)
        is_first = self.config.pooling == "first"
        vectors = outputs["pooled_output"] if is_first else tf.reduce_mean(outputs["sequence_output"], axis=1)
        vectors = tf.cast(vectors, tf.float32)  # (B, D)
        return tf.math.l2_normalize(vectors, axis=-1) if self.config.normalize else vectors

    def predict(self, images: Any, /, *, batch_size: int = 64) -> np.ndarray:
        """The vectors of the images, (N, D)."""
        width = self.model.output[
            "pooled_output" if self.config.pooling == "first" else "sequence_output"
        ].shape[-1]
        return self.outputs(images, "vector", width, batch_size)

    def similarity(self, images: Any, others: Any) -> np.ndarray:
        """The cosine similarity of each of `images` and each of `others`, (N, M), from -1 to 1."""
        one, other = (self.predict(side) for side in (images, others))
        if not self.config.normalize:
            one, other = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (one, other))
        return one @ other.T

    @staticmethod
    def as_line(answer: np.ndarray) -> str:
        return " ".join(f"{x:.6g}" for x in answer)

    def signature(self) -> Signature:
        return self.signature_of(lambda images: {"vector": self.encode(images)}, {"kind": "arrays"})

    def describe_model(self) -> dict[str, Any]:
        return describe_backbone(self.model)

    @classmethod
    def load_parts(cls, folder: Any, config: Config, model: dict[str, Any]) -> Self:
        make: Any = cls
        return make(make_backbone(model), config)
