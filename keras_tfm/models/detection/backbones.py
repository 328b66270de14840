"""Which models of images stand in front of a detector, and the part of a configuration that says so."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import keras

from keras_tfm.configs import Refusal
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.botnet import BoTNet
from keras_tfm.models.vision.cat import CAT
from keras_tfm.models.vision.cmt import CMT
from keras_tfm.models.vision.cvt import CvT
from keras_tfm.models.vision.images import ImageConfig, Side
from keras_tfm.models.vision.mit import MiT
from keras_tfm.models.vision.pit import PiT
from keras_tfm.models.vision.regionvit import RegionViT
from keras_tfm.models.vision.resnet import BiT, ResNet
from keras_tfm.models.vision.resnet_vd import ResNetVD
from keras_tfm.models.vision.shuffle_transformer import ShuffleTransformer
from keras_tfm.models.vision.swin import Swin
from keras_tfm.models.vision.swin_v2 import SwinV2
from keras_tfm.models.vision.twins import Twins
from keras_tfm.models.vision.visformer import Visformer
from keras_tfm.private.keras import layers_in
from keras_tfm.training.weights import assign_by_path, by_path

BACKBONES = {
    family.__name__: family
    for family in (
        *(BiT, BoTNet, CAT, CMT, CvT, MiT, PiT, RegionViT),
        *(ResNet, ResNetVD, ShuffleTransformer, Swin, SwinV2, Twins, Visformer),
    )
}
OF_DETECTOR = ("image_size", "num_channels")  # the fields of a backbone that are the whole configuration's
# What sizes named tiny, this package's own, have in common: they are for images of some 96 x 96.
TINY: dict[str, Any] = {
    "image_size": 96,
    "backbone_config": {"stem_dim": 32, "dims": (32, 64, 128), "depths": (1, 1, 1), "block": "basic"},
    "frozen_norms": False,
    "num_queries": 16,
}
# The Swins in MaskFormer and Mask2Former, by their sizes.
_SWIN: dict[str, Any] = {"stochastic_depth": 0.3, "fixed_windows": True}
_DEEP = {**_SWIN, "depths": (2, 2, 18, 2)}
SWINS: dict[str, dict[str, Any]] = {
    "T": _SWIN,
    "S": _DEEP,
    "B": {**_DEEP, "window": 12, "dim": 128, "num_heads": (4, 8, 16, 32)},
    "L": {**_DEEP, "window": 12, "dim": 192, "num_heads": (6, 12, 24, 48)},
}


@dataclasses.dataclass(frozen=True)
class AroundBackbone(ImageConfig):
    """`backbone` is the name of a model of images with `maps`, and `backbone_config` holds the fields of its
    configuration that differ from its defaults; `image_size` and `num_channels` stand here alone.
    `frozen_norms` leaves its batch normalisation as it was read: turn it off to train one from scratch.
    """

    image_size: Side | tuple[Side, Side] = 800
    backbone: Literal[tuple(BACKBONES)] = "ResNet"  # type: ignore[valid-type]
    backbone_config: dict = dataclasses.field(default_factory=dict)
    frozen_norms: bool = True

    def __post_init__(self):
        super().__post_init__()
        if extra := self.backbone_config.keys() & set(OF_DETECTOR):
            raise ValueError(
                f"`backbone_config` must leave {', '.join(sorted(extra))} to the detector's own."
            )
        fields = dataclasses.asdict(self.of_backbone)
        rest = {name: value for name, value in fields.items() if name not in OF_DETECTOR}
        object.__setattr__(self, "backbone_config", rest)

    @property
    def backbone_class(self):
        """The class of the backbone."""
        return BACKBONES[self.backbone]

    @property
    def of_backbone(self):
        """The configuration of the backbone."""
        image = {name: getattr(self, name) for name in OF_DETECTOR}
        return self.backbone_class.config_class.from_json({**self.backbone_config, **image})

    @property
    def parts(self):
        """Configurations within this one, whose sizes are checked with its own."""
        return (self.of_backbone,)

    @staticmethod
    def trace_of(backbone):
        """A `Trace` with the blocks and states of the `backbone` as the stack of that name."""
        parts = backbone.blocks["encoder"], backbone.hidden_states["encoder"]
        return Trace(*({"backbone": part} for part in parts))

    def new_backbone(self):
        """The backbone with fresh weights, its batch normalisation frozen if the configuration says so."""
        backbone = self.backbone_class(self.of_backbone, name="backbone")
        if self.frozen_norms:
            for layer in layers_in(backbone):
                if isinstance(layer, keras.layers.BatchNormalization):
                    layer.trainable = False  # Keras's then keeps its statistics too
        return backbone


class ModelAroundBackbone(ConfiguredModel):
    """A model whose first part is a model of images with `maps`. Abstract."""

    config_class: type[AroundBackbone]

    @classmethod
    def around(cls, backbone, **fields):
        """A model with the weights of `backbone`, a model of images with `maps`.

        `fields` are fields of its configuration. ValueError for images of another size for which the backbone
        has no weights, and for a model without maps.
        """
        config = dataclasses.asdict(backbone.config)
        image = {name: config.pop(name) for name in OF_DETECTOR}
        make: Callable = cls
        fields = {**image, **fields, "backbone": type(backbone).__name__, "backbone_config": config}
        model = make(cls.config_class(**fields), dtype=backbone.dtype_policy)
        given = by_path(backbone)
        for path, weight in by_path(model).items():
            if path in given and given[path].shape != weight.shape:
                size = model.config.image_size
                raise Refusal("image_size", f"the backbone's, {image['image_size']}", size)
        assign_by_path(model, given)
        return model


class KnowsClasses:
    """A model that chooses its queries by their classes: its `config` has a field `num_classes`."""

    config: Any
    weights: list
    with_fresh_weights: Callable

    def with_classes(self, num_classes: int) -> Any:
        """This model, or, for another number of classes, one with its weights but for the classes' own."""
        if num_classes == self.config.num_classes:
            return self
        model = self.with_fresh_weights(num_classes=num_classes)
        for new, old in zip(model.weights, self.weights, strict=True):
            if new.shape == old.shape:
                new.assign(old)
        return model


def on_images(backbone, images):
    """(The `maps` of `images`, by the layers of a `backbone` in the graph of these tensors, the `Trace`)."""
    states = backbone.hidden_states["encoder"]
    found = keras.Model(backbone.input["images"], [*backbone.maps, *states]).call(images)
    count = len(backbone.maps)
    return found[:count], Trace({"backbone": backbone.blocks["encoder"]}, {"backbone": found[count:]})
