"""What trackers of one object have in common: a template of the object and an image to search, by one
backbone.

    template ---+
                +--- backbone, projection ---> cells of both, with their positions
    search -----+
"""

import dataclasses
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_tfm.configs import Depth, Heads, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.image_positions import SineGridPositionEncoding
from keras_tfm.layers.patches import flatten_map, height_and_width
from keras_tfm.layers.positioned_block import PositionedAttention
from keras_tfm.layers.resizing import resize_nearest
from keras_tfm.models.base import Trace
from keras_tfm.models.detection.backbones import AroundBackbone, ModelAroundBackbone, on_images
from keras_tfm.models.detection.base import EPSILON, SineWidth
from keras_tfm.models.vision.images import Side

# The first three stages of ResNet-50, the third one without its stride. The authors' kernels there are
# dilated; these are not.
THREE_STAGES = {"dims": (256, 512, 1024), "depths": (3, 4, 6), "last_stride": 1}
# What sizes named tiny, this package's own, have in common.
TINY: dict[str, Any] = {
    "image_size": 64,
    "template_size": 32,
    "backbone_config": {"stem_dim": 16, "dims": (32, 64), "depths": (1, 1), "block": "basic"},
    # With fresh weights frozen norms do nothing. Batch statistics would be wrong: templates and searched
    # images have different ones, and their mean fits neither.
    "frozen_norms": True,
    "dim": 64,
    "num_heads": 4,
    "intermediate_dim": 128,
    "dropout": 0.0,
}


@dataclasses.dataclass(frozen=True)
class SiameseConfig(AroundBackbone):
    """`AroundBackbone` has the fields of the backbone; `image_size` is the searched image's, and
    `template_size` the template's side or (height, width).
    """

    image_size: Side | tuple[Side, Side] = 256
    template_size: Side | tuple[Side, Side] = 128
    backbone_config: dict = dataclasses.field(default_factory=lambda: dict(THREE_STAGES))
    dim: SineWidth = 256
    num_layers: Depth = 4
    num_heads: Heads = 8
    intermediate_dim: Size = 2048
    dropout: Rate = 0.1
    activation: str = "relu"


class Cells(NamedTuple):
    """The projected cells of an image's map (B, N, D), their positions (B, N, D), and the mask (B, N), False
    at padding.
    """

    x: Any
    position: Any
    mask: Any

    def as_context(self, x):
        """The tensors with which cross-attention attends to the states `x` of these cells."""
        return {"context": x, "context_position": self.position, "mask": self.mask}


class SiameseTracker(ModelAroundBackbone):
    """A model of a template and an image to search. Abstract: a family defines `fused`.

    Inputs: `template_images` (B, h, w, C) and `images` (B, H, W, C), floating-point, and
    `template_pixel_mask` and `pixel_mask`, True for a pixel of an image and False for padding, by default
    True. Output: `sequence_output` (B, N, D), of the searched image's cells row by row; `grid` is their
    (rows, columns), and `cells` are the projected ones of the template and of the searched image.
    `maps` and `template_maps` are the backbone's.
    """

    config_class: type[SiameseConfig]

    def __init__(self, config, name=None, **kwargs):
        backbone = config.new_backbone()
        projection = Convolution(config.dim, 1, name="projection")
        encoding = SineGridPositionEncoding(normalize=True, name="position")
        inputs: dict[str, Any] = {}
        sides, traces, maps = [], [], []
        for prefix, size in (("template_", config.template_size), ("", config.image_size)):
            size = height_and_width(size, f"{prefix or 'image_'}size")
            images = keras.Input((*size, config.num_channels), name=f"{prefix}images")
            pixel_mask = keras.Input(size, dtype="bool", name=f"{prefix}pixel_mask")
            inputs |= {f"{prefix}images": images, f"{prefix}pixel_mask": pixel_mask}
            found, trace = on_images(backbone, images)
            x = projection(found[-1])
            cells = resize_nearest(pixel_mask, x.shape[1:3])
            position = flatten_map(encoding(ops.zeros_like(x), cells))
            mask = ops.reshape(cells, (-1, x.shape[1] * x.shape[2]))  # (B, N)
            sides.append(Cells(flatten_map(x), position, mask))
            traces.append(trace.hidden_states["backbone"])
            maps.append(found)
        states = [*traces[0], *traces[1][1:]]
        trace = Trace({"backbone": backbone.blocks["encoder"]}, {"backbone": states})
        outputs = self.fused(config, trace, *sides)
        name = name or type(self).__name__.lower()
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self.template_maps, self.maps = maps
        self.cells = sides
        self.grid = tuple(x.shape[1:3])

    @classmethod
    def fused(cls, config, trace, template, search):
        """The outputs, by their names, of the `Cells` of both images."""
        raise NotImplementedError


def attending_block(config, name, *attentions, has_feedforward=True):
    """A block of `attentions`, out of "attention" and "context_attention", and a feed-forward layer."""
    part = residuals(dropout=config.dropout, epsilon=EPSILON)

    def attention():
        return part(PositionedAttention(MultiHeadAttention(config.num_heads, dropout=config.dropout)))

    parts: dict[str, Any] = {kind: attention() for kind in attentions}
    if has_feedforward:
        feedforward = FeedForward(config.intermediate_dim, config.activation, dropout=config.dropout)
        parts["feedforward"] = part(feedforward)
    return Block(parts, name=name)
