"""Mask2Former of Cheng et al. 2022, "Masked-attention Mask Transformer for Universal Image Segmentation".

As in MaskFormer an image is cut into a set of segments, each a mask and one class for all of it. New is that
a query attends only to the cells of the mask that was predicted for it before (section 3.2.1), to one level
of resolution after the other (section 3.2.2), and that an encoder looks around in several maps at once:

    maps of the backbone --> encoder, cells look at points --> levels, the coarsest first --> decoder
                               |                                                            |
                               +--> enlarged to the largest map: features of pixels --------+--> masks

    queries --> mask 0 --> block 0, level 0, inside mask 0 --> mask 1 --> block 1, level 1, inside mask 1 ...

A query whose mask is empty attends to all cells. The queries as they were learnt give the first prediction.
Where the masks are only compared with 0, in blocks, they are computed at the size of the level: the product
of queries with resized features is the resized product. Deviates from transformers' code in that no block is
skipped in training.
"""

import dataclasses
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import Count, Depth, Heads, Rate, Size
from keras_tfm.layers.attention.deformable import DeformableAttention
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.grid import centres_of
from keras_tfm.layers.image_positions import SineGridPositionEncoding
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patches import flatten_map
from keras_tfm.layers.positioned_block import PositionedAttention
from keras_tfm.layers.resizing import resize_bilinear
from keras_tfm.models.base import ConfiguredModel
from keras_tfm.models.detection.backbones import SWINS, TINY, AroundBackbone
from keras_tfm.models.detection.base import EPSILON, LearnedQueries, SineWidth, about_queries, last_maps
from keras_tfm.models.detection.deformable_detr import LevelPositionEncoding
from keras_tfm.models.detection.mask_former import NUM_GROUPS, merged, normalized, normalized_maps
from keras_tfm.models.detection.refinement import on_levels
from keras_tfm.models.vision.images import Side

NUM_POINTS = 4  # that a head of the encoder looks at, in each level


@dataclasses.dataclass(frozen=True)
class Mask2FormerConfig(AroundBackbone):
    """`AroundBackbone` has the fields of the backbone, whose last `num_levels` maps are encoded. `dim`,
    `num_layers` and `intermediate_dim` are the decoder's, `pyramid_dim`, `num_encoder_layers` and
    `encoder_intermediate_dim` the encoder's, whose feed-forward layers have ReLU whatever the `activation`;
    both have `num_heads`. `mask_dim` is the width of the features of pixels. `dropout` acts on attention
    weights, in feed-forward layers and on what each sub-layer adds.
    """

    image_size: Side | tuple[Side, Side] = 384
    num_levels: Count = 3
    num_queries: LearnedQueries = 100
    dim: SineWidth = 256
    num_layers: Depth = 9
    num_heads: Heads = 8
    intermediate_dim: Size = 2048
    pyramid_dim: Size = 256
    num_encoder_layers: Depth = 6
    encoder_intermediate_dim: Size = 1024
    mask_dim: Size = 256
    dropout: Rate = 0.0
    activation: str = "relu"

    def __post_init__(self):
        super().__post_init__()
        if self.num_layers < self.num_levels:
            raise ValueError(
                f"`num_layers` must be at least `num_levels`, {self.num_levels}, so that each level is read; "
                f"it is {self.num_layers}."
            )
        if self.pyramid_dim % NUM_GROUPS or self.pyramid_dim % self.num_heads:
            raise ValueError(
                f"`pyramid_dim` must be a multiple of {NUM_GROUPS} and of `num_heads`, {self.num_heads}; it "
                f"is {self.pyramid_dim}."
            )


class Mask2Former(ConfiguredModel):
    """Images in, features of pixels and, of each object query, its states and its masks' vectors out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `mask_features` (B, rows, columns, E), of the size
    of the backbone's first map, `decoder_sequence_output` (B, Q, D), `decoder_outputs` (B, 1 + L, Q, D), the
    queries before the first decoder block and after each, through the one last norm, and `mask_vectors` (B,
    1 + L, Q, E), whose products with the features are the logits of the queries' masks. `maps` are the
    backbone's.

    >>> model = keras_tfm.models.Mask2Former.from_size("tiny", image_size=32)
    >>> outputs = model({"images": np.zeros((1, 32, 32, 3))})
    >>> outputs["mask_features"].shape, outputs["mask_vectors"].shape
    (TensorShape([1, 8, 8, 64]), TensorShape([1, 4, 16, 64]))
    """

    config_class = Mask2FormerConfig

    def __init__(self, config: Mask2FormerConfig, name: str = "mask2former", **kwargs: Any) -> None:
        backbone = config.new_backbone()
        maps = normalized_maps(config, backbone)
        trace = config.trace_of(backbone)
        levels = encoded_levels(config, trace, last_maps(maps, config.num_levels, "num_levels")[::-1])
        features = merged(levels[-1], maps[: -config.num_levels], config.pyramid_dim, resize_bilinear)
        features = Convolution(config.mask_dim, 1, name="mask_features")(features)
        contexts = [decoder_context(config, level, features, i) for i, level in enumerate(levels)]

        sizes = {"count": config.num_queries, "dim": config.dim}
        encoded = trace.hidden_states["encoder"][-1]
        x = LearnedVectors(**sizes, name="decoder_queries")(encoded)
        position = LearnedVectors(**sizes, name="decoder_positions")(encoded)
        norm = LayerNormalization(EPSILON, name="decoder_norm")
        mask_head = Chain(
            [Dense(config.dim, "relu"), Dense(config.dim, "relu"), Dense(config.mask_dim)], name="mask_head"
        )
        states = [norm(x)]
        vectors = [mask_head(states[0])]
        for i in range(config.num_layers):
            tensors = about_queries(position, contexts[i % config.num_levels].seen_by(vectors[-1]))
            x = trace.run("decoder", [_decoder_block(config, i)], x, **tensors)
            states.append(norm(x))
            vectors.append(mask_head(states[-1]))
        outputs = {
            "mask_features": features,
            "mask_vectors": ops.stack(vectors, axis=1),  # (B, 1 + L, Q, E)
            "decoder_sequence_output": states[-1],
            "decoder_outputs": ops.stack(states, axis=1),  # (B, 1 + L, Q, D)
        }
        super().__init__(config, backbone.input, outputs, trace, name=name, **kwargs)
        self.maps = backbone.maps


def encoded_levels(config, trace, maps):
    """The encoded `maps` (B, rows, columns, P) of the `maps` of the backbone, in the same order."""
    levels = [
        normalized(config.pyramid_dim, 1, use_bias=True, name=f"encoder_projection_{i}")(x)
        for i, x in enumerate(maps)
    ]
    grids = tuple(tuple(x.shape[1:3]) for x in levels)
    positions = [
        LevelPositionEncoding(offset=0.0, name=f"encoder_position_{i}")(ops.zeros_like(x))
        for i, x in enumerate(levels)
    ]
    x, position = (ops.concatenate([flatten_map(y) for y in ys], axis=1) for ys in (levels, positions))
    whole = ops.cast(ops.ones_like(x[:, : len(grids), :2]), "float32")  # no map has padding: (B, levels, 2)
    references = on_levels(centres_of(grids, whole), whole)  # (B, N, levels, 2)
    blocks = [_encoder_block(config, grids, i) for i in range(config.num_encoder_layers)]
    x = trace.run("encoder", blocks, x, attention={"position": position, "references": references})
    ends = np.cumsum([0, *(rows * columns for rows, columns in grids)]).tolist()
    return [
        ops.reshape(x[:, start:end], (-1, *grid, config.pyramid_dim))
        for start, end, grid in zip(ends, ends[1:], grids, strict=False)
    ]


class LevelContext(NamedTuple):
    """What decoder blocks attend to: the `cells` of one level (B, N, D), their `position` (B, N, D), and the
    features of pixels in that size, `pixels` (B, N, E).
    """

    cells: Any
    position: Any
    pixels: Any

    def seen_by(self, vectors):
        """The tensors with which cross-attention attends to it, inside the masks of `vectors` (B, Q, E)."""
        is_inside = ops.einsum("bqe,bne->bqn", vectors, self.pixels) >= 0
        is_empty = ops.logical_not(ops.any(is_inside, axis=-1, keepdims=True))
        mask = ops.logical_or(is_inside, is_empty)
        return {"context": self.cells, "mask": mask, "context_position": self.position}


def decoder_context(config, level, features, index):
    """The `LevelContext` of an encoded map, the `level` number `index`, and of the `features` of pixels."""
    if level.shape[-1] != config.dim:
        level = Convolution(config.dim, 1, name=f"decoder_projection_{index}")(level)
    sines = SineGridPositionEncoding(normalize=True, name=f"decoder_position_{index}")
    position = flatten_map(sines(ops.zeros_like(level)))
    cells = LevelEmbedding(name=f"decoder_level_{index}")(flatten_map(level))
    return LevelContext(cells, position, flatten_map(resize_bilinear(features, level.shape[1:3])))


class LevelEmbedding(SameShape):
    """x + a vector that is learnt, of the level of resolution: (B, N, D)."""

    def build(self, x_shape):
        initializer = keras.initializers.RandomNormal(stddev=1.0)  # torch.nn.Embedding's
        self.level = self.add_weight((x_shape[-1],), initializer, name="level")

    def call(self, x):
        """The shape and the dtype of `x`."""
        return x + ops.cast(self.level, x.dtype)


def _encoder_block(config, grids, index):
    part = residuals(dropout=config.dropout, epsilon=EPSILON)
    attention = DeformableAttention(config.num_heads, grids, NUM_POINTS)
    feedforward = FeedForward(config.encoder_intermediate_dim, "relu", dropout=config.dropout)
    return Block(
        {"attention": part(attention), "feedforward": part(feedforward)}, name=f"encoder_block_{index}"
    )


def _decoder_block(config, index):
    """A block whose cross-attention stands before its self-attention: before it the queries, learnt vectors,
    know nothing of the image (section 3.2.3).
    """
    part = residuals(dropout=config.dropout, epsilon=EPSILON)

    def attention():
        return part(PositionedAttention(MultiHeadAttention(config.num_heads, dropout=config.dropout)))

    feedforward = FeedForward(config.intermediate_dim, config.activation, dropout=config.dropout)
    parts = {"context_attention": attention(), "attention": attention(), "feedforward": part(feedforward)}
    return Block(parts, name=f"decoder_block_{index}")


# Cheng et al. 2022: Mask2Former of 44 M (R50), 63 M (R101), 47 M (Swin-T), 69 M (S), 107 M (B) and 216 M (L)
# parameters; of L, for COCO, with 200 queries. tiny is this package's own, for images of some 96 x 96.
Mask2Former.sizes = {
    "tiny": Mask2FormerConfig(
        **TINY,
        num_levels=2,
        dim=64,
        num_layers=3,
        num_heads=4,
        intermediate_dim=128,
        pyramid_dim=64,
        num_encoder_layers=1,
        encoder_intermediate_dim=128,
        mask_dim=64,
    ),
    "50": Mask2FormerConfig(1024),
    "101": Mask2FormerConfig(1024, backbone_config={"depths": (3, 4, 23, 3)}),
    **{
        name: Mask2FormerConfig(
            1024, num_queries=200 if name == "L" else 100, backbone="Swin", backbone_config=swin
        )
        for name, swin in SWINS.items()
    },
}
