"""What a `Segmenter` trains: a backbone with a decoder of its maps, or a model of sets of masks."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import keras

from keras_tfm.configs import FieldError, Option, Size
from keras_tfm.data.sources.segments import INSTANCES, PANOPTIC, WORDS
from keras_tfm.heads.coded_segmenter import CodedSegmenter
from keras_tfm.heads.mask_classifier import MaskClassifier, PointMaskClassifier
from keras_tfm.heads.panoptic_detector import PanopticDetector
from keras_tfm.heads.segmentation import DECODERS, SemanticSegmenter
from keras_tfm.models import DETR, ISTR, Mask2Former, MaskFormer, MaxDeepLab
from keras_tfm.models.families import OnDemand
from keras_tfm.tasks.images.canvas_task import copy_heads
from keras_tfm.tasks.images.image_families import FAMILIES, ImageOptions

SegmentingModel = SemanticSegmenter | MaskClassifier | PanopticDetector | CodedSegmenter
# Backbones that predict sets of masks, and their heads; any other has a `SemanticSegmenter`.
OF_SETS: dict[type, Any] = {
    MaskFormer: MaskClassifier,
    Mask2Former: PointMaskClassifier,
    MaxDeepLab: MaskClassifier,
    DETR: PanopticDetector,
    ISTR: CodedSegmenter,
}
MASK_SETS = tuple(dict.fromkeys(OF_SETS.values()))  # the heads that learn instances and panoptic segments
INSTANCES_ALONE = (CodedSegmenter,)  # of these, the heads that learn no panoptic segments
SEMANTIC = (SemanticSegmenter, MaskClassifier)  # the heads that learn the class of every pixel
# {model: prefixes of the names of its head's parts that do not depend on the classes}
PARTS: dict[type, str | tuple[str, ...]] = {
    SemanticSegmenter: "decoder",
    MaskClassifier: "mask_head",
    PointMaskClassifier: "mask_head",
    PanopticDetector: ("box_head", "mask_"),
    CodedSegmenter: "mask_codec",
}
# {model: the prefix of transformers' image processor for it}
PROCESSORS: dict[type, str] = {
    SemanticSegmenter: "Segformer",
    MaskClassifier: "MaskFormer",
    PointMaskClassifier: "Mask2Former",
    PanopticDetector: "Detr",
    CodedSegmenter: "Detr",
}
ARCHITECTURES = (
    "SegformerForSemanticSegmentation, MaskFormerForInstanceSegmentation, "
    "Mask2FormerForUniversalSegmentation or DetrForSegmentation"
)
# Families that only segment, or detect too, beside the families of images.
OF_MEDT = "GatedAxialUNet", "MedT"
FAMILIES_HERE = OnDemand({name.lower(): name for name in (*(x.__name__ for x in OF_SETS), *OF_MEDT)})
TINY_DETR_HEADS = 8  # with four, the channels of its mask head are no multiple of the groups' number
NUM_MAPS = 4  # of a DETR's backbone, as in the published models, or fewer where it has no more


@dataclasses.dataclass(frozen=True)
class SegmenterOptions(ImageOptions):
    """A segmenter with fresh weights: a backbone of a family, and a decoder."""

    families = FAMILIES | FAMILIES_HERE
    family: Annotated[
        str,
        Option(
            "classes of pixels: a backbone, such as mit (SegFormer's), swin or vit, with a --decoder; medt "
            "or gatedaxialunet with --decoder linear; maskformer, mask2former, maxdeeplab. Panoptic: "
            "the last three, or detr. Instances: these four, or istr"
        ),
    ] = "mit"
    decoder: Annotated[
        Literal[DECODERS],  # type: ignore[valid-type]
        Option(
            "what makes classes of a backbone's maps: mlp (SegFormer's); naive, pup or mla (SETR's); linear "
            "(one layer)"
        ),
    ] = "mlp"
    decoder_dim: Annotated[
        Size | None, Option("the decoder's width", default="256, or 64 for --size tiny")
    ] = None

    def base(self) -> Any:
        config = super().base()
        is_tiny_detr = self.model_class is DETR and self.size == "tiny"
        return dataclasses.replace(config, num_heads=TINY_DETR_HEADS) if is_tiny_detr else config

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
            raise FieldError(
                "{decoder} and {decoder_dim} are a backbone's; {} has its own decoder.", self.family
            )
        return segmenting(backbone, count)


def segmenting(backbone: keras.Model, num_classes: int, **head: Any) -> SegmentingModel:
    """A `backbone` with a fresh head."""
    kind = head_class_of(type(backbone))
    if kind is PanopticDetector:
        head = {"num_maps": min(NUM_MAPS, len(backbone.maps)), **head}
    return kind(backbone, num_classes, **head)


def for_classes(model: SegmentingModel, count: int) -> SegmentingModel:
    """A segmenter of `count` other classes, with the weights of a `model` but the classes' own."""
    new = segmenting(model.backbone, **model.head_arguments | {"num_classes": count})
    copy_heads(model, new, PARTS[type(model)])
    return new


def families_of(segments: str) -> str:
    """The families that learn `segments` of this kind, instances or panoptic ones, as in a sentence."""
    left_out = INSTANCES_ALONE if segments == PANOPTIC else ()
    *names, last = sorted(x.__name__.lower() for x, head in OF_SETS.items() if head not in left_out)
    return f"{', '.join(names)} or {last}"


def head_class_of(backbone_class: type) -> Any:
    """The class of the head that a backbone of this class gets."""
    return OF_SETS.get(backbone_class, SemanticSegmenter)


def check_tells(head_class: type, segments: str) -> None:
    """ValueError for models that do not predict `segments` of this kind."""
    name = head_class.__name__
    if segments == "semantic" and not issubclass(head_class, SEMANTIC):
        raise ValueError(
            f"{name} predicts instances and panoptic segments; masks of classes need another --family."
        )
    learns = MASK_SETS if segments == INSTANCES else tuple(set(MASK_SETS) - set(INSTANCES_ALONE))
    if segments != "semantic" and not issubclass(head_class, learns):
        what = "instances alone" if issubclass(head_class, MASK_SETS) else "the class of each pixel"
        expected = f"{WORDS[segments]} need --family {families_of(segments)}"
        raise ValueError(f"{expected}; {name} predicts {what}.")
