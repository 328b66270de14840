"""What a `Segmenter` trains: a backbone with a decoder of its maps, or a model of sets of masks."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import keras

from keras_tfm.configs import Config, Option, Rate, Size
from keras_tfm.heads.mask_classifier import MaskClassifier, PointMaskClassifier
from keras_tfm.heads.segmentation import DECODERS, SemanticSegmenter
from keras_tfm.models import GatedAxialUNet, Mask2Former, MaskFormer, MedT
from keras_tfm.tasks.image_classifier import FAMILIES, ImageOptions
from keras_tfm.tasks.task import describe_backbone, make_backbone

# {model: (its parts that know nothing of the classes, the one that does)}
PARTS: dict[type, tuple[str, str]] = {
    SemanticSegmenter: ("decoder", "classes"),
    MaskClassifier: ("mask_head", "class_head"),
    PointMaskClassifier: ("mask_head", "class_head"),
}
# {model: how transformers' class begins that prepares its images}
PROCESSORS: dict[type, str] = {
    SemanticSegmenter: "Segformer",
    MaskClassifier: "MaskFormer",
    PointMaskClassifier: "Mask2Former",
}
ARCHITECTURES = (
    "SegformerForSemanticSegmentation, MaskFormerForInstanceSegmentation or "
    "Mask2FormerForUniversalSegmentation"
)
# Backbones that tell sets of masks, and their heads; any other has a `SemanticSegmenter`.
OF_SETS: dict[type, type[MaskClassifier]] = {MaskFormer: MaskClassifier, Mask2Former: PointMaskClassifier}
# Those that segment and nothing else, beside the families of images.
FAMILIES_HERE = {family.__name__.lower(): family for family in (GatedAxialUNet, *OF_SETS, MedT)}
SegmentingModel = SemanticSegmenter | MaskClassifier


@dataclasses.dataclass(frozen=True)
class SegmenterOptions(ImageOptions):
    """A segmenter with fresh weights: a backbone of a family, and a decoder."""

    family: Annotated[
        str,
        Option(
            "maskformer or mask2former, which tell masks and their classes; medt or gatedaxialunet, with "
            "--decoder linear; or a backbone: of models with maps, mit (SegFormer's) or swin for example, or "
            "that keep patches, as vit"
        ),
    ] = "mit"
    decoder: Annotated[
        Literal[DECODERS],  # type: ignore[valid-type]
        Option(
            "from a backbone's maps to classes: mlp, SegFormer's; naive, pup or mla, SETR's; linear, none"
        ),
    ] = "mlp"
    decoder_dim: Annotated[Size | None, Option("the decoder's width", default="256, of a tiny model 64")] = (
        None
    )

    @property
    def model_class(self) -> Any:
        """The class of the family; ValueError for an unknown family."""
        known = FAMILIES | FAMILIES_HERE
        if self.family not in known:
            raise ValueError(f"There is no family {self.family!r}; there are {', '.join(known)}.")
        return known[self.family]

    @property
    def dim(self) -> int:
        """The decoder's width."""
        return self.decoder_dim or (64 if self.size == "tiny" else 256)

    def whole(self, changes: Mapping[str, Any], count: int) -> SegmentingModel:
        """A new model for `count` classes; ValueError for options that do not belong together."""
        backbone = self.model(changes)
        if type(backbone) not in OF_SETS:
            return SemanticSegmenter(backbone, count, self.decoder, self.dim)
        if self.decoder != "mlp" or self.decoder_dim is not None:
            raise ValueError(
                f"`decoder` and `decoder_dim` are a backbone's; {self.family} has its own decoder."
            )
        return segmenting(backbone, count)


@dataclasses.dataclass(frozen=True)
class HeadOptions(Config):
    """What a `SemanticSegmenter` takes beside its backbone and the number of classes."""

    decoder: Literal[DECODERS] = "mlp"  # type: ignore[valid-type]
    dim: Size = 256
    dropout: Rate = 0.1


def segmenting(backbone: keras.Model, count: int, **head: Any) -> SegmentingModel:
    """A `backbone` with a fresh head of `count` classes."""
    if (head_class := OF_SETS.get(type(backbone))) is not None:
        return head_class(backbone, count)
    return SemanticSegmenter(backbone, count, **head)


def head_of(model: SegmentingModel) -> dict[str, Any]:
    """A head's arguments but for the number of classes."""
    return {name: value for name, value in model.head_arguments.items() if name != "num_classes"}


def with_head_of(
    backbone: keras.Model, count: int, model: SegmentingModel, has_classes: bool = True
) -> SegmentingModel:
    """A segmenter of `count` classes on a `backbone`, with the weights of a `model`'s head; without
    `has_classes` those of the classes stay fresh.
    """
    new = segmenting(backbone, count, **head_of(model))
    for name in PARTS[type(model)][: 2 if has_classes else 1]:
        if name in {layer.name for layer in new.layers}:  # a linear decoder is none
            new.get_layer(name).set_weights(model.get_layer(name).get_weights())
    return new


def describe(model: SegmentingModel) -> dict[str, Any]:
    """A model as JSON values."""
    return describe_backbone(model.backbone) | {"head": head_of(model)}


def made_of(description: Mapping[str, Any], count: int) -> SegmentingModel:
    """A model with fresh weights from the values of `describe`; ValueError for other values."""
    backbone, head = make_backbone(description), description.get("head", {})
    if type(backbone) in OF_SETS:
        return segmenting(backbone, count)
    return segmenting(backbone, count, **dataclasses.asdict(HeadOptions.from_json(head)))


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """The names of classes, with the number of each that occurs more than once."""
    return tuple(name if names.count(name) == 1 else f"{name} {i}" for i, name in enumerate(names))
