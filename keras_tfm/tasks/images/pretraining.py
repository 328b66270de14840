"""Methods that train an image encoder without labels: their models, batches and losses.

A task's configuration names its method, and holds the sizes of layers that only pre-training needs.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import keras

from keras_tfm.configs import Between, Depth, FieldError, InWeights, Option, Rate, Refusal, Size, Whole
from keras_tfm.data.batches.augmentation import Augmentation
from keras_tfm.data.batches.crops import CropBatches, Crops, MaskedBatches, PatchBatches
from keras_tfm.data.batches.epochs import Batches
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.heads.masked_autoencoder import MaskedAutoencoder, patch_loss
from keras_tfm.heads.patch_detector import PatchDetector
from keras_tfm.heads.self_distillation import SelfDistillation, SelfDistillationLoss
from keras_tfm.models import DETR, ViTMAE
from keras_tfm.models.detection.backbones import BACKBONES
from keras_tfm.precision import quantize_parts, quantized_parts_of
from keras_tfm.training.moving_average import MovingAverage
from keras_tfm.training.options import ImagesInBatch, ShareOfArea, Training
from keras_tfm.training.weights import assign_by_path, by_path

PATCH_SHARE = 128 / 480  # side of a patch divided by the image's, as in Dai et al. 2021
LOCAL_SHARE = 96 / 224  # side of a local crop divided by the image's, as in Caron et al. 2021
DecoderWidth = Annotated[int, Between(1, 2**14), InWeights(is_depth=False)]
Prototypes = Annotated[int, Between(1, 2**20), InWeights(is_depth=False)]


@dataclasses.dataclass(frozen=True)
class ImagePretrainerConfig(Preprocessing):
    """The method of an `ImagePretrainer`, its sizes, and the preprocessing of images.

    Args:
        method: "mae" predicts the pixels of hidden patches; "dino" predicts what a moving average of the
            model says of other crops; "updetr" finds the places of patches that were cut out.
        mask_ratio: mae: the share of patches that is hidden.
        decoder_layers: mae: blocks of the decoder.
        decoder_dim: mae: width of the decoder, a multiple of 32.
        num_prototypes: dino: outputs of the head.
        head_dim: dino: width of the head's hidden layers.
        bottleneck_dim: dino: width before the head's last layer.
        num_local: dino: how many small crops of an image the student sees.
        num_patches: updetr: how many patches of an image are to be found, a divisor of the queries.
    """

    method: Annotated[
        Literal["mae", "dino", "updetr"],
        Option(
            "what is learnt: mae, the pixels of hidden patches; dino, the outputs of the model's own moving "
            "average; updetr, for detectors, the places of patches that were cut out of the image"
        ),
    ] = "mae"
    mask_ratio: Annotated[Rate, Option("mae: the share of patches that is hidden")] = 0.75
    decoder_layers: Annotated[Depth, Option("mae: blocks of the decoder")] = 4
    decoder_dim: Annotated[DecoderWidth, Option("mae: width of the decoder, a multiple of 32")] = 256
    num_prototypes: Annotated[Prototypes, Option("dino: outputs of the head", "--prototypes")] = 4096
    head_dim: Size = 2048
    bottleneck_dim: Size = 256
    num_local: Annotated[Whole, Option("dino: small crops of each image", "--local-crops")] = 6
    num_patches: Annotated[
        Size | None,
        Option(
            "updetr: patches of each image, a divisor of the queries", "--patches", "the largest one up to 10"
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder_dim % 32:
            raise Refusal("decoder_dim", "a multiple of 32", self.decoder_dim)


@dataclasses.dataclass(frozen=True)
class PretrainImagesTraining(Training):
    """By default the warm-up takes a tenth of the steps."""

    batch_size: ImagesInBatch = 64
    flip: Annotated[bool, Option("mirror images at random; turn it off for letters and digits")] = True
    least_area: Annotated[
        ShareOfArea | None,
        Option("smallest share of an image's area in a crop", default="0.2; 0.05 for dino"),
    ] = None
    parting_area: Annotated[
        ShareOfArea,
        Option("dino: local crops have at most, global crops at least this share of an image's area"),
    ] = 0.4
    teacher_momentum: Annotated[
        Annotated[float, Between(0, 1)],
        Option("dino: momentum of the teacher's moving average at the start; it rises to 1"),
    ] = 0.996
    teacher_temperature: Annotated[
        Annotated[float, Between(0, 10, is_above=True)], Option("dino: temperature of the teacher's softmax")
    ] = 0.04
    student_temperature: Annotated[
        Annotated[float, Between(0, 10, is_above=True)], Option("dino: temperature of the student's softmax")
    ] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least_area is not None and self.least_area > self.parting_area:
            raise FieldError(
                "{least_area} must be at most {parting_area}, {}; it is {}.",
                self.parting_area,
                self.least_area,
            )


class Method(abc.ABC):
    """How an encoder learns from images without labels. Abstract."""

    judged_by: ClassVar[tuple[str, str]]  # as in `LearningTask`
    averages: ClassVar[bool]  # whether moving averages of the weights are kept
    optimizer_options: ClassVar[Mapping[str, Any]] = {"global_clipnorm": 1.0}  # arguments of AdamW

    @staticmethod
    @abc.abstractmethod
    def model(backbone: keras.Model, config: ImagePretrainerConfig) -> keras.Model:
        """The model that learns: `backbone` with the method's heads; ValueError for an unsuitable
        backbone.
        """

    @staticmethod
    @abc.abstractmethod
    def encoder(model: keras.Model) -> keras.Model:
        """What other tasks use of the model: a copy of the encoder, from images to `pooled_output`."""

    @classmethod
    def published(cls, model: keras.Model) -> keras.Model:
        """The part that transformers has a counterpart of."""
        return cls.encoder(model)

    @staticmethod
    @abc.abstractmethod
    def batches(task: Any, images: Any, training: Any, is_validation: bool) -> Batches:
        """The batches that the model learns from."""

    @staticmethod
    @abc.abstractmethod
    def loss(model: keras.Model, training: PretrainImagesTraining) -> keras.losses.Loss:
        """The loss that the model minimises."""

    @staticmethod
    def callbacks(
        model: keras.Model, training: PretrainImagesTraining, total_steps: int
    ) -> list[keras.callbacks.Callback]:
        """Callbacks that belong to the method."""
        return []


class MaskedPatches(Method):
    """Masked autoencoder (He et al. 2022): predict the normalised pixels of hidden patches from the visible
    ones.
    """

    judged_by = ("val_loss", "min")
    averages = True

    @staticmethod
    def model(backbone: keras.Model, config: ImagePretrainerConfig) -> keras.Model:
        if not isinstance(backbone, ViTMAE):
            name = type(backbone).__name__
            raise ValueError(f"The method mae needs a ViTMAE, dino takes any model; this one is a {name}.")
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
    def loss(model: keras.Model, training: PretrainImagesTraining) -> keras.losses.Loss:
        return patch_loss()


class OwnTeacher(Method):
    """DINO (Caron et al. 2021): predict what a moving average of the model says of other crops of the same
    image.

    The loss does not separate good epochs from bad ones, so the teacher of the last epoch is kept.
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
    def loss(model: keras.Model, training: PretrainImagesTraining) -> keras.losses.Loss:
        return SelfDistillationLoss(training.teacher_temperature, training.student_temperature)

    @staticmethod
    def callbacks(
        model: Any, training: PretrainImagesTraining, total_steps: int
    ) -> list[keras.callbacks.Callback]:
        return [MovingAverage(model.followed, training.teacher_momentum, total_steps)]


class FoundPatches(Method):
    """UP-DETR (Dai et al. 2021): a DETR finds patches that were cut out of its image.

    The backbone of images is frozen, so let it have learnt before. The vectors are the backbone's; what is
    learnt is for a detector that starts from the run.
    """

    judged_by = ("val_loss", "min")
    averages = True
    optimizer_options: ClassVar[Mapping[str, Any]] = {"global_clipnorm": 0.1}  # as in Carion et al. 2020

    @staticmethod
    def model(backbone: Any, config: ImagePretrainerConfig) -> keras.Model:
        if type(backbone).__name__ in BACKBONES:
            backbone = DETR.around(backbone)
        if not isinstance(backbone, DETR):
            name = type(backbone).__name__
            known = ", ".join(BACKBONES)
            raise ValueError(f"The method updetr needs a DETR, or for its backbone {known}; it is a {name}.")
        count = config.num_patches
        if count is None:
            queries = backbone.config.num_queries
            count = next(number for number in range(10, 0, -1) if queries % number == 0)
        return PatchDetector(backbone, count, patch_size_of(backbone))

    @staticmethod
    def encoder(model: Any) -> keras.Model:
        config = model.backbone.config
        copied = config.backbone_class(config.of_backbone, dtype=model.backbone.dtype_policy)
        quantize_parts(copied, quantized_parts_of(model.backbone))
        assign_by_path(copied, by_path(model.backbone))
        return copied

    @classmethod
    def published(cls, model: Any) -> keras.Model:
        return model.detector()

    @staticmethod
    def batches(task: Any, images: Any, training: PretrainImagesTraining, is_validation: bool) -> Batches:
        count, *size, _ = task.model.input["patches"].shape[1:]
        seed = None if is_validation else training.seed

        def fit(images: Any) -> Any:
            return task.preprocessing.fitted(images, *task.image_shape[:2])

        normalize = task.config.normalized
        return PatchBatches(images, count, tuple(size), normalize, training.batch_size, seed, fit=fit)

    @staticmethod
    def loss(model: Any, training: PretrainImagesTraining) -> keras.losses.Loss:
        return model.loss_of_training()


METHODS: dict[str, Any] = {"mae": MaskedPatches, "dino": OwnTeacher, "updetr": FoundPatches}
READ_ANY_SIZE = ("BiT", "ResNet", "ResNetVD")  # backbones of convolutions alone


def patch_size_of(backbone: DETR) -> int | None:
    """The side of patches: `PATCH_SHARE` of the image's, at least 32 pixels.

    None, for the size of the images, where the backbone's layers only work at that size.
    """
    if backbone.config.backbone not in READ_ANY_SIZE:
        return None
    return max(32, round(PATCH_SHARE * min(backbone.input["images"].shape[1:3])))


def local_size_of(backbone: Any) -> int | None:
    """The side of local crops: whole patches, about `LOCAL_SHARE` of the image's side.

    None if the layers of `backbone` only work at the size of the image.
    """
    if not getattr(backbone, "reads_any_size", False):
        return None
    (side, width), patch = backbone.input["images"].shape[1:3], backbone.config.patch_size
    if side != width or not isinstance(patch, int):
        return None
    return max(2 * patch, round(side * LOCAL_SHARE / patch) * patch)
