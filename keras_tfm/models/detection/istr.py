"""ISTR of Hu et al. 2021, "ISTR: End-to-End Instance Segmentation with Transformers": a set of boxes that
stages correct, and a code of the mask in each.

    boxes --> regions of a pyramid ---------------+--> box --> region --> mask code
                                                  |     |
    queries --> attention --> dynamic convolution --> feed-forward --> next stage

Boxes and queries are learned; at first each box is the image. A stage reads the features in its boxes by a
convolution whose weights each query makes (Sun et al. 2021, "Sparse R-CNN"), corrects the boxes and hands
them on, without gradient. `heads.mask_codes` turns codes into masks. Deviates from the authors' code in that
the codes of all stages are outputs, where theirs in evaluation computes the last ones alone.
`heads.CodedSegmenter` is its head. Architecture only: there are no weights to read.
"""

import dataclasses
from typing import Annotated, Any

import keras
from keras import ops

from keras_tfm.configs import Depth, Heads, Multiple, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.boxes import corners_of_masks, moved
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.dynamic_convolution import DynamicConvolution
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.models.detection.backbones import TINY, AroundBackbone, ModelAroundBackbone
from keras_tfm.models.detection.base import EPSILON, LearnedQueries, start_of
from keras_tfm.models.detection.pyramid import PyramidRoIAlign, pyramid_of, strides_of

DELTA_WEIGHTS = (2.0, 2.0, 1.0, 1.0)  # what a correction of (x, y, width, height) is divided by
ACTIVATION = "elu"


@dataclasses.dataclass(frozen=True)
class ISTRConfig(AroundBackbone):
    """`num_layers` are the stages; `dynamic_dim` is the inner width of the dynamic convolution; `region_size`
    and `mask_region_size` are sides of what is read in a box; `num_class_layers` and `num_box_layers` stand
    before the outputs of a stage; `code_dim` numbers are a mask's code.
    """

    num_queries: LearnedQueries = 300
    dim: Size = 256
    num_layers: Depth = 6
    num_heads: Heads = 8
    intermediate_dim: Size = 2048
    dynamic_dim: Size = 64
    num_class_layers: Size = 3
    num_box_layers: Size = 3
    region_size: Size = 7
    mask_region_size: Annotated[Size, Multiple(4)] = 28
    code_dim: Size = 256
    dropout: Rate = 0.0


class ISTR(ModelAroundBackbone):
    """Images in; a vector, a box and the code of a mask for each query, after each stage, out.

    Inputs as of `DETR`. Outputs: `decoder_outputs` (B, L, Q, D), the vectors from which classes are read,
    `decoder_sequence_output` (B, Q, D), the last ones; `decoder_boxes` (B, L, Q, 4), (x, y, width, height)
    around the centre as parts of the image's sides, padding apart; `mask_codes` (B, L, Q, code_dim). `maps`
    are the backbone's.

    >>> model = keras_tfm.models.ISTR.from_size("tiny", image_size=32)
    >>> model({"images": np.zeros((1, 32, 32, 3))})["mask_codes"].shape
    TensorShape([1, 2, 16, 32])
    """

    config_class = ISTRConfig

    def __init__(self, config: ISTRConfig, name: str = "istr", **kwargs: Any) -> None:
        backbone, pixel_mask, trace = start_of(config)
        levels = pyramid_of(backbone.maps, config.dim)
        strides = strides_of(levels, pixel_mask.shape[1])
        x = LearnedVectors(config.num_queries, name="decoder_queries")(levels[-1][:, 0])
        image = corners_of_masks(pixel_mask[:, None])
        origin, extent = image[..., :2], image[..., 2:] - image[..., :2]
        whole = keras.initializers.Constant([0.5, 0.5, 1.0, 1.0])
        boxes = LearnedVectors(config.num_queries, 4, whole, autocast=False, name="decoder_boxes")(extent)
        outputs = stages(config, trace, levels, strides, x, boxes, extent, origin)
        inputs = {"images": backbone.input["images"], "pixel_mask": pixel_mask}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self.maps = backbone.maps


def stages(config, trace, levels, strides, x, boxes, extent, origin=0.0):
    """The outputs of an `ISTR`, of the `levels` of a pyramid with these `strides`, the queries (B, Q, D),
    their first boxes (B, Q, 4), and, in pixels, the (width, height) of the images, padding apart, and their
    `origin`, the left and the top side, (B, 1, 2) both.
    """
    features, all_boxes, codes = [], [], []
    for i in range(config.num_layers):
        read = PyramidRoIAlign(config.region_size, strides, name=f"decoder_regions_{i}")
        regions = read(levels, in_pixels(boxes, extent, origin))  # (B, Q, rows, columns, D)
        regions = ops.reshape(regions, (-1, config.num_queries, config.region_size**2, config.dim))
        x = trace.run("decoder", [stage_block(config, i)], x, interaction={"context": regions})
        features.append(_tower(config, config.num_class_layers, f"decoder_class_tower_{i}")(x))
        box_features = _tower(config, config.num_box_layers, f"decoder_box_tower_{i}")(x)
        correction = Dense(4, kernel_initializer="zeros", name=f"decoder_box_{i}")(box_features)
        boxes = moved(boxes, correction, DELTA_WEIGHTS)
        all_boxes.append(boxes)
        read = PyramidRoIAlign(config.mask_region_size, strides, name=f"mask_regions_{i}")
        regions = read(levels, in_pixels(boxes, extent, origin))
        code = _mask_head(config, f"mask_head_{i}")(ops.reshape(regions, (-1, *regions.shape[2:])))
        codes.append(ops.reshape(code, (-1, config.num_queries, config.code_dim)))
        boxes = ops.stop_gradient(boxes)
    return {
        "decoder_sequence_output": features[-1],
        "decoder_outputs": ops.stack(features, axis=1),
        "decoder_boxes": ops.stack(all_boxes, axis=1),
        "mask_codes": ops.stack(codes, axis=1),
    }


def stage_block(config, index):
    """What a stage does with its queries: attention to each other, the regions, a feed-forward layer."""
    part = residuals(dropout=config.dropout, epsilon=EPSILON)
    parts = {
        "attention": part(MultiHeadAttention(config.num_heads, dropout=config.dropout)),
        "interaction": part(DynamicConvolution(config.dynamic_dim, ACTIVATION, EPSILON)),
        "feedforward": part(FeedForward(config.intermediate_dim, ACTIVATION, dropout=config.dropout)),
    }
    return Block(parts, name=f"decoder_block_{index}")


def _tower(config, num_layers, name):
    """Dense layers without bias, each with a norm and the activation."""
    activation = keras.layers.Activation
    layers = [
        (Dense(config.dim, use_bias=False), LayerNormalization(EPSILON), activation(ACTIVATION))
        for _ in range(num_layers)
    ]
    return Chain([layer for triple in layers for layer in triple], name=name)


def _mask_head(config, name):
    """From a region (B, side, side, D) to a code (B, 1, 1, `code_dim`)."""
    halves = [
        Convolution(config.dim, 4, 2, 1, norm=BatchNormalization(), activation=ACTIVATION, use_bias=True)
        for _ in range(2)
    ]
    last = Convolution(config.code_dim, config.mask_region_size // 4, padding=0)
    return Chain([*halves, last], name=name)


def in_pixels(boxes, extent, origin=0.0):
    """`boxes` (B, Q, 4) as (left, top, right, bottom) in pixels, by the images' `extent` and `origin`, (B, 1,
    2) both.
    """
    centres, half = origin + boxes[..., :2] * extent, boxes[..., 2:] * extent / 2
    return ops.concatenate([centres - half, centres + half], axis=-1)


# Hu et al. 2021, section 4, around the ResNets of DETR. tiny is this package's own, for images of some 96 x
# 96.
ISTR.sizes = {
    "tiny": ISTRConfig(
        **TINY,
        dim=64,
        num_layers=2,
        num_heads=4,
        intermediate_dim=128,
        dynamic_dim=16,
        num_class_layers=1,
        num_box_layers=1,
        mask_region_size=8,
        code_dim=32,
    ),
    "50": ISTRConfig(),
    "101": ISTRConfig(backbone_config={"depths": (3, 4, 23, 3)}),
}
