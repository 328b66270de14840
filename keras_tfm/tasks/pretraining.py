"""The ways in which an encoder of images learns without labels: what is learnt, of which batches, by what.

A method is kept in a task's configuration by its name, with the sizes of what only pre-training needs.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import keras

from keras_tfm.configs import Depth, Option, Rate, Size, Whole
from keras_tfm.data.batches.augmentation import Augmentation
from keras_tfm.data.batches.crops import CropBatches, Crops, MaskedBatches
from keras_tfm.data.batches.epochs import Batches
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.heads.masked_autoencoder import MaskedAutoencoder, patch_loss
from keras_tfm.heads.self_distillation import SelfDistillation, SelfDistillationLoss
from keras_tfm.models import ViTMAE
from keras_tfm.training.moving_average import MovingAverage
from keras_tfm.training.options import PretrainImagesTraining

LOCAL_SHARE = 96 / 224  # of the side of an image, that of a local crop, as Caron et al. 2021 have it


@dataclasses.dataclass(frozen=True)
class ImagePretrainerConfig(Preprocessing):
    """The decoder of "mae" has `decoder_layers` of `decoder_dim`, and a new model its `mask_ratio`. The head
    of "dino" compares with `num_prototypes` by way of `head_dim` and `bottleneck_dim`; the student sees
    `num_local` small crops.
    """

    method: Annotated[
        Literal["mae", "dino"],
        Option("what is learnt: the pixels of hidden patches, or what a moving average of the model says"),
    ] = "mae"
    mask_ratio: Annotated[Rate, Option("mae: the part of the patches that is hidden")] = 0.75
    decoder_layers: Annotated[Depth, Option("mae: blocks of the decoder")] = 4
    decoder_dim: Annotated[Size, Option("mae: width of the decoder, a multiple of 32")] = 256
    num_prototypes: Annotated[Size, Option("dino: with how many vectors one is compared", "--prototypes")] = (
        4096
    )
    head_dim: Size = 2048
    bottleneck_dim: Size = 256
    num_local: Annotated[Whole, Option("dino: small crops of each image", "--local-crops")] = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder_dim % 32:
            raise ValueError(f"`decoder_dim` must be a multiple of 32; it is {self.decoder_dim}.")


class Method(abc.ABC):
    """How an encoder learns from images alone."""

    judged_by: ClassVar[tuple[str, str]]  # as `LearningTask` has it
    averages: ClassVar[bool]  # whether averages of the weights are what is kept

    @staticmethod
    @abc.abstractmethod
    def model(backbone: keras.Model, config: ImagePretrainerConfig) -> keras.Model:
        """The model that learns, with heads of its own around `backbone`; ValueError for one of no use."""

    @staticmethod
    @abc.abstractmethod
    def encoder(model: keras.Model) -> keras.Model:
        """What is kept of it for other tasks: a model of its own, from images to `pooled_output`."""

    @classmethod
    def published(cls, model: keras.Model) -> keras.Model:
        """What other libraries have a counterpart of."""
        return cls.encoder(model)

    @staticmethod
    @abc.abstractmethod
    def batches(task: Any, images: Any, training: Any, is_validation: bool) -> Batches:
        """What the model learns from."""

    @staticmethod
    @abc.abstractmethod
    def loss(training: PretrainImagesTraining) -> keras.losses.Loss:
        """By what it learns."""

    @staticmethod
    def callbacks(
        model: keras.Model, training: PretrainImagesTraining, total_steps: int
    ) -> list[keras.callbacks.Callback]:
        """What else belongs to its steps."""
        return []


class MaskedPatches(Method):
    """He et al. 2022: the pixels of hidden patches, each patch's normalised, from those that are seen."""

    judged_by = ("val_loss", "min")
    averages = True

    @staticmethod
    def model(backbone: keras.Model, config: ImagePretrainerConfig) -> keras.Model:
        if not isinstance(backbone, ViTMAE):
            name = type(backbone).__name__
            raise ValueError(f"`method` mae is for a ViTMAE, dino for all; the model is a {name}.")
        dim = config.decoder_dim
        return MaskedAutoencoder(backbone, config.decoder_layers, dim, dim // 32, 4 * dim)

    @staticmethod
    def encoder(model: Any) -> keras.Model:
        return model.backbone.encoder()

    @classmethod
    def published(cls, model: keras.Model) -> keras.Model:
        return model

    @staticmethod
    def batches(task: Any, images: Any, training: PretrainImagesTraining, is_validation: bool) -> Batches:
        learning: Mapping[str, Any] = {
            "seed": training.seed,
            "augmentation": Augmentation("light", training.flip, training.least_area or 0.2),
        }
        return MaskedBatches(
            images,
            task.prepare,
            training.batch_size,
            task.model.examples,
            task.model.input["noise"].shape[1],
            **({} if is_validation else learning),
        )

    @staticmethod
    def loss(training: PretrainImagesTraining) -> keras.losses.Loss:
        return patch_loss()


class OwnTeacher(Method):
    """Caron et al. 2021: what a moving average of the model says of other crops of the same image.

    The loss tells no good epoch from a bad one: the last is kept, and of it the teacher.
    """

    judged_by = ("val_loss", "last")
    averages = False

    @staticmethod
    def model(backbone: Any, config: ImagePretrainerConfig) -> keras.Model:
        sizes = (config.num_prototypes, config.head_dim, config.bottleneck_dim)
        return SelfDistillation(backbone, *sizes, config.num_local, local_size_of(backbone))

    @staticmethod
    def encoder(model: Any) -> keras.Model:
        copied = type(model.backbone).from_config(model.backbone.get_config())
        for weight, taught in zip(copied.weights, model.teacher_backbone.weights, strict=True):
            weight.assign(taught)
        return copied

    @staticmethod
    def batches(task: Any, images: Any, training: PretrainImagesTraining, is_validation: bool) -> Batches:
        between, least = training.parting_area, training.least_area or 0.05
        kinds = {"images": Crops(2, task.image_shape[:2], (between, 1.0))}
        if "local_images" in task.model.input:
            count, *size, _ = task.model.input["local_images"].shape[1:]
            kinds["local_images"] = Crops(count, tuple(size), (min(least, between), between))
        seed = None if is_validation else training.seed
        return CropBatches(images, kinds, task.config.normalized, training.batch_size, seed, training.flip)

    @staticmethod
    def loss(training: PretrainImagesTraining) -> keras.losses.Loss:
        return SelfDistillationLoss(training.teacher_temperature, training.student_temperature)

    @staticmethod
    def callbacks(
        model: Any, training: PretrainImagesTraining, total_steps: int
    ) -> list[keras.callbacks.Callback]:
        return [MovingAverage(model.followed, training.teacher_momentum, total_steps)]


METHODS: dict[str, Any] = {"mae": MaskedPatches, "dino": OwnTeacher}


def local_size_of(backbone: Any) -> int | None:
    """The side of local crops: whole patches, about `LOCAL_SHARE` of the image; None for that of the image,
    where the layers of `backbone` are bound to it.
    """
    if not getattr(backbone, "reads_any_size", False):
        return None
    (side, width), patch = backbone.input["images"].shape[1:3], backbone.config.patch_size
    if side != width or not isinstance(patch, int):
        return None
    return max(2 * patch, round(side * LOCAL_SHARE / patch) * patch)
