"""Pre-training on images without labels."""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Self

import keras
import numpy as np

from keras_tfm.configs import Option
from keras_tfm.data.batches.epochs import Batches
from keras_tfm.data.sources.image_files import ImageFiles
from keras_tfm.data.sources.images import read_unlabelled_images
from keras_tfm.models import DETR, ViTMAE
from keras_tfm.tasks.columns import columns_of
from keras_tfm.tasks.images.image_classifier import ImageClassifier
from keras_tfm.tasks.images.image_encoder import ImageEncoder
from keras_tfm.tasks.images.image_families import FAMILIES, ImageOptions
from keras_tfm.tasks.images.image_task import (
    ImageTask,
    check_reads_images,
    preprocessing_in,
    shape_and_preprocessing,
    with_image_size,
)
from keras_tfm.tasks.images.pretraining import METHODS, ImagePretrainerConfig, PretrainImagesTraining
from keras_tfm.tasks.learning import with_side
from keras_tfm.tasks.pretraining import PretrainingTask
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.task import make_backbone
from keras_tfm.training.folder import Path

NEEDED = {"mae": "vit", "updetr": "detr"}  # the families of methods that learn with one alone


@dataclasses.dataclass(frozen=True)
class PretrainerOptions(ImageOptions):
    """A vision model with fresh weights, or a detector."""

    family: Annotated[str, Option(f"kind of model: {', '.join(FAMILIES)}; detr for updetr")] = "vit"

    @property
    def model_class(self) -> Any:
        return DETR if self.family == "detr" else super().model_class

    def base(self) -> Any:
        return DETR.config_of_size(self.size) if self.family == "detr" else super().base()


class ImagePretrainer(ImageTask, PretrainingTask):
    """Pre-trains an image encoder without labels, by the method that its configuration names.

    `backbone` is a `ViTMAE` for "mae", any model with a `pooled_output` for "dino", and for "updetr" a `DETR`
    or a backbone for one. Labels of the images are only used by `evaluate`. `predict` and `export` give the
    vectors of an `ImageEncoder` around the task's `encoder`, a copy of what was learnt: the ViT on all
    patches, or the teacher; for "updetr" it is the backbone, which is frozen, and what was learnt is for a
    `Detector` that starts from the task.

    >>> sizes = {"image_size": 8, "patch_size": 4, "num_layers": 1, "dim": 32, "num_heads": 2}
    >>> backbone = keras_tfm.models.ViTMAE.from_size("B/16", intermediate_dim=64, **sizes)
    >>> task = keras_tfm.tasks.ImagePretrainer(backbone)
    >>> history = task.fit(np.zeros((16, 8, 8, 3), "uint8"), epochs=1)
    >>> task.predict(np.zeros((2, 8, 8, 3), "uint8")).shape
    (2, 32)
    """

    name = "pretrain-images"
    start = (
        "a RUN of this task; for dino and updetr also another RUN of images, or a folder or hub id of an "
        "image model"
    )
    files = (
        "a folder of images, or of such folders; .npz or idx files; or images in .parquet files or "
        "tfds:NAME[/CONFIG][:VERSION]#SPLIT; labels are ignored"
    )
    unit = "images"
    training = PretrainImagesTraining(
        epochs=100, patience=None, learning_rate=5e-4, schedule="cosine", weight_decay=0.05
    )
    model_options = PretrainerOptions
    config_class = ImagePretrainerConfig

    def __init__(self, backbone: keras.Model, config: ImagePretrainerConfig | None = None):
        self.config = config or ImagePretrainerConfig()
        self.method = METHODS[self.config.method]
        self.judged_by = self.method.judged_by
        self.optimizer_options = self.method.optimizer_options
        self.model = self.method.model(with_image_size(backbone, self.config.image_size), self.config)
        self.take_images(self.model.backbone)

    @classmethod
    def usual_clip_norm(cls) -> str:
        by_method = ((name, method.optimizer_options["global_clipnorm"]) for name, method in METHODS.items())
        return ", ".join(f"{norm} for {name}" for name, norm in by_method)

    @classmethod
    def make(
        cls, examples: Any, options: PretrainerOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        config = ImagePretrainerConfig(**fields)
        changes = with_side(changes, fields)
        family = NEEDED.get(config.method)
        if family not in (None, options.family):
            raise ValueError(f"--method {config.method} needs --family {family}; it is {options.family!r}.")
        if config.method == "dino" and options.family == "detr":
            raise ValueError("--family detr needs --method updetr; it is 'dino'.")
        if config.method == "mae":
            changes = {**changes, "mask_ratio": config.mask_ratio}
            return cls(ViTMAE.from_size(options.size, **changes), config)
        return cls(options.model(changes), config)

    @classmethod
    def read_files(
        cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any
    ) -> np.ndarray | ImageFiles:
        """Images, of the shape and preprocessing that the fields describe."""
        shape, preprocessing = shape_and_preprocessing(**fields)
        return read_unlabelled_images(paths, shape, columns, preprocessing)

    def read_examples(self, paths: Sequence[Path], columns: ColumnNames = None, **options: Any) -> Any:
        """(images, names of their classes), which `evaluate` takes."""
        return ImageClassifier.read_files(paths, columns, **self.file_fields)

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        """The task itself if its configuration stays the same; else a new one around its encoder, which keeps
        the head's weights where the method and all sizes stay.
        """
        task = check_reads_images(task)
        is_ours = isinstance(task, cls)
        kept = task.config if is_ours else preprocessing_in(task.config)
        config = ImagePretrainerConfig(**dataclasses.asdict(kept) | fields)
        if is_ours and config == task.config:
            return task
        if not is_ours or config.method != task.config.method or config.method == "dino":
            return cls(task.encoder, config)  # task.encoder is dino's teacher
        backbone = task.model.backbone
        made = cls(hiding(backbone, fields["mask_ratio"]) if "mask_ratio" in fields else backbone, config)
        if [x.shape for x in made.model.weights] == [x.shape for x in task.model.weights]:
            made.model.set_weights(task.model.get_weights())
        return made

    @classmethod
    def from_huggingface(cls, name: Path, **fields: Any) -> Self:
        """A new task around the encoder in the folder `name` of transformers or timm, or of this hub id."""
        encoder = ImageEncoder.from_huggingface(name)
        preprocessing = dataclasses.asdict(encoder.preprocessing)
        return cls(encoder.model, ImagePretrainerConfig(**preprocessing | fields))

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for `transformers`: the whole masked autoencoder, or else the encoder.

        Raises:
            TypeError: if transformers has no such model.
        """
        from keras_tfm.convert import save_huggingface
        from keras_tfm.convert.preprocessing import preprocessor_writer

        writer = preprocessor_writer(self.preprocessing, self.image_shape)
        save_huggingface(self.method.published(self.model), folder, overwrite, writers=[writer])

    @property
    def encoder(self) -> keras.Model:
        """A copy of what was learnt: a model from images to `pooled_output`."""
        return self.method.encoder(self.model)

    def check_inputs(self, images: Any) -> np.ndarray | ImageFiles:
        return self.check_images(images)

    def batches(
        self, examples: Any, training: PretrainImagesTraining, is_validation: bool = False
    ) -> Batches:
        return self.method.batches(self, columns_of(examples)[0], training, is_validation)

    def objective(self, training: PretrainImagesTraining) -> dict[str, Any]:
        return {"loss": self.method.loss(self.model, training)}

    def optimizer(
        self,
        training: PretrainImagesTraining,
        schedule: keras.optimizers.schedules.LearningRateSchedule,
        **averages: Any,
    ) -> keras.optimizers.Optimizer:
        return super().optimizer(training, schedule, **(averages if self.method.averages else {}))

    def learn(
        self, examples: Any, validation: Any, training: Any, callbacks: Iterable[Any], **keeping: Any
    ) -> dict[str, list[float]]:
        planned = self.planned(training)
        num_batches = self.batches(examples, planned).in_epochs_of(planned.epoch_batches).num_batches
        followers = self.method.callbacks(self.model, planned, planned.epochs * num_batches)
        return super().learn(examples, validation, training, [*callbacks, *followers], **keeping)

    def as_vectors(self) -> ImageEncoder:
        """What was learnt, as an `ImageEncoder`."""
        return ImageEncoder.from_task(self)

    def predict(self, images: Any, /, *, batch_size: int = 64) -> np.ndarray:
        """The vectors of the images, of length 1: an array (N, D)."""
        return self.as_vectors().predict(images, batch_size=batch_size)

    def exported(self) -> Any:
        return self.as_vectors().model

    def signature(self) -> Signature:
        return self.as_vectors().signature()

    @classmethod
    def load_parts(cls, folder: pathlib.Path, config: ImagePretrainerConfig, model: dict[str, Any]) -> Self:
        return cls(make_backbone(model), config)


def hiding(backbone: keras.Model, mask_ratio: float) -> keras.Model:
    """A copy of a `backbone` that hides another share of the patches; a `DETR`, which hides none, stays."""
    if not isinstance(backbone, ViTMAE):
        return backbone
    made = backbone.with_fresh_weights(mask_ratio=mask_ratio)
    made.set_weights(backbone.get_weights())
    return made
