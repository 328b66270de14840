"""Deformable DETR of Zhu et al. 2021, "Deformable DETR: Deformable Transformers for End-to-End Object
Detection": queries that look at few points of several maps.

    maps of the backbone ---> one width ---> encoder ----> decoder ---> Q vectors, each with a box
    and coarser ones after             (cells look around  (queries look around
    the last                            themselves)         their references)

A query's reference is a point that it predicts. With `refines` it is a box from the first block on, which
each block corrects (section 4.2, "Iterative Bounding Box Refinement"). With `proposes` the first references
are the boxes of the cells that most likely are of an object ("Two-Stage Deformable DETR"). Deviates from the
authors' code in that a proposal has one score, for any object, where theirs has one for each class and reads
the first, and in that its queries begin as the encoded cell, as in Zhang et al. 2023, "DINO: DETR with
Improved DeNoising Anchor Boxes", section 3.4, theirs as positions alone.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_tfm.configs import Count, Size
from keras_tfm.layers.attention.deformable import DeformableAttention
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.grid import centres_of, shares_of
from keras_tfm.layers.image_positions import SineGridPositionEncoding
from keras_tfm.layers.normalization import GroupNormalization, LayerNormalization
from keras_tfm.layers.patches import flatten_map
from keras_tfm.layers.resizing import resize_nearest
from keras_tfm.models.detection.backbones import TINY
from keras_tfm.models.detection.base import (
    EPSILON,
    CoordinateSines,
    Queries,
    SetDetector,
    SetDetectorConfig,
    about_queries,
    last_maps,
    references_of,
    start_of,
)
from keras_tfm.models.detection.refinement import (
    anchors_of,
    best_of,
    box_head,
    box_heads,
    corrected,
    decoder_block,
    flat_cells,
    on_levels,
    refined,
)

GROUPS = 32  # of features at most, in the normalisation of maps


@dataclasses.dataclass(frozen=True)
class DeformableDETRConfig(SetDetectorConfig):
    """`SetDetectorConfig`, with the last `num_maps` maps of the backbone and, up to `num_levels`, further
    ones of half the sides. A head looks at `num_points` points of each level, in the decoder at
    `num_decoder_points`. `refines` and `proposes` are the two variants of the file's header; `proposes` needs
    `refines`.
    """

    num_queries: Queries = 300  # proposals have no weights of their own
    intermediate_dim: Size = 1024
    num_maps: Count = 3
    num_levels: Size = 4
    num_points: Size = 4
    num_decoder_points: Size = 4
    refines: bool = False
    proposes: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.num_levels < self.num_maps:
            raise ValueError(
                f"`num_levels` must be at least `num_maps`, {self.num_maps}; it is {self.num_levels}."
            )
        if self.proposes and not self.refines:
            raise ValueError("`proposes` needs `refines`: proposals are boxes, which blocks correct.")


class DeformableDETR(SetDetector):
    """Images in, one vector for each object query out, and where it looks.

    Inputs as of `SetDetector`. Outputs: `encoder_sequence_output` (B, N, D), the cells of all levels, the
    finest first; `decoder_sequence_output` (B, Q, D); `decoder_outputs` (B, L, Q, D), of all decoder blocks.
    Beside them `references` (B, 1, Q, 4), the logits of the point (x, y), and zeros, to which a head adds the
    logits of its boxes; or, with `refines`, `decoder_boxes` (B, L, Q, 4), boxes around centres; with
    `proposes` also `proposals` (B, Q, 5), the logit of an object and the box of each proposal.

    >>> model = keras_tfm.models.DeformableDETR.from_size("tiny", image_size=32)
    >>> model({"images": np.zeros((1, 32, 32, 3))})["decoder_boxes"].shape
    TensorShape([1, 2, 16, 4])
    """

    config_class = DeformableDETRConfig

    def __init__(self, config: DeformableDETRConfig, name: str = "deformable_detr", **kwargs: Any) -> None:
        backbone, pixel_mask, trace = start_of(config)
        levels = levels_of(projections_of(config), last_maps(backbone.maps, config.num_maps))
        encoder = encoded_levels(config, levels, pixel_mask, trace)
        encoded, cells, grids, centres, shares = encoder
        outputs = {"encoder_sequence_output": encoded}

        decoder = [decoder_block(config, grids, i) for i in range(config.decoder_sizes[0])]
        if config.proposes:
            queries, x, references, outputs["proposals"] = _proposals(config, encoded, centres, cells, grids)
        else:
            table = LearnedVectors(config.num_queries, 2 * config.dim, name="decoder_queries")(encoded)
            # What is added to queries, and what the decoder begins with.
            queries, x = ops.split(table, 2, axis=-1)
            logits = Dense(2, name="decoder_references")(queries)
            references = ops.sigmoid(logits)  # (B, Q, 2)
        context = encoder.context
        if config.refines:
            heads = box_heads(config)
            states, outputs["decoder_boxes"] = refined(
                trace, decoder, heads, x, references, shares, lambda _: queries, context
            )
        else:
            outputs["references"] = references_of(logits)
            context["references"] = on_levels(references, shares)
            trace.run("decoder", decoder, x, **about_queries(queries, context))
            states = ops.stack(trace.hidden_states["decoder"][1:], axis=1)
        outputs["decoder_sequence_output"] = trace.hidden_states["decoder"][-1]
        outputs["decoder_outputs"] = states  # (B, L, Q, D)
        super().__init__(config, backbone, pixel_mask, outputs, trace, name=name, **kwargs)


def projections_of(config, most_groups=GROUPS):
    """The layers that give each level one width, of the configuration's `num_maps` and further ones."""
    layers = []
    for i in range(config.num_levels):
        size, stride = (1, 1) if i < config.num_maps else (3, 2)
        norm = GroupNormalization(math.gcd(most_groups, config.dim), epsilon=1e-5)
        name = f"encoder_projection_{i}"
        layers.append(Convolution(config.dim, size, stride, norm=norm, use_bias=True, name=name))
    return layers


def levels_of(projections, maps):
    """`maps` of the backbone in one width, and further maps that follow from the last of them."""
    levels: list = []
    for i, projection in enumerate(projections):
        source = maps[i] if i < len(maps) else maps[-1] if i == len(maps) else levels[-1]
        levels.append(projection(source))
    return levels


class EncodedLevels(NamedTuple):
    """The encoded cells (B, N, D) of all levels of these `grids`, their `mask` (B, N), False at padding,
    their `centres` (B, N, 2), and the `shares` (B, L, 2) of the levels' sides that are no padding.
    """

    x: Any
    mask: Any
    grids: tuple
    centres: Any
    shares: Any

    @property
    def context(self):
        """The tensors of cross-attention, beside references."""
        return {"context": self.x, "mask": self.mask}


def encoded_levels(config, levels, pixel_mask, trace):
    """The `levels` (B, rows, columns, D) of images, encoded."""
    grids = tuple(tuple(x.shape[1:3]) for x in levels)
    masks = [resize_nearest(pixel_mask, grid) for grid in grids]
    positions = [
        LevelPositionEncoding(name=f"encoder_position_{i}")(ops.zeros_like(x), mask)
        for i, (x, mask) in enumerate(zip(levels, masks, strict=True))
    ]
    x, position = (ops.concatenate([flatten_map(y) for y in ys], axis=1) for ys in (levels, positions))
    cells, shares = flat_cells(masks), shares_of(masks)  # (B, N), (B, L, 2)
    encoder = [_encoder_block(config, grids, i) for i in range(config.num_layers)]
    centres = centres_of(grids, shares)  # (B, N, 2)
    tensors = {"mask": cells, "position": position, "references": on_levels(centres, shares)}
    return EncodedLevels(trace.run("encoder", encoder, x, attention=tensors), cells, grids, centres, shares)


class LevelPositionEncoding(SineGridPositionEncoding):
    """x + the sines of a cell's place + a vector that is learnt, of the level: (B, rows, columns, D).

    By the default `offset` its place is its centre.
    """

    def __init__(self, offset=0.5, **kwargs):
        super().__init__(normalize=True, offset=offset, **kwargs)

    def build(self, x_shape):
        super().build(x_shape)
        self.level = self.add_weight((x_shape[3],), keras.initializers.RandomNormal(stddev=1.0), name="level")

    def call(self, x, mask=None):
        return super().call(x, mask) + ops.cast(self.level, x.dtype)

    def get_config(self):
        config = super().get_config()
        return {name: config[name] for name in ("name", "trainable", "dtype", "offset")}


def _encoder_block(config, grids, index):
    part = residuals(dropout=config.dropout, epsilon=EPSILON)
    feedforward = FeedForward(config.intermediate_dim, config.activation, dropout=config.activation_dropout)
    attention = DeformableAttention(config.num_heads, grids, config.num_points)
    return Block(
        {"attention": part(attention), "feedforward": part(feedforward)}, name=f"encoder_block_{index}"
    )


def _proposals(config, encoded, centres, cells, grids):
    """The Q cells that most likely are of an object: their positions (B, Q, D), what the decoder begins with
    (B, Q, D), their boxes (B, Q, 4), and logits beside boxes (B, Q, 5), for the loss.
    """
    boxes, is_possible = anchors_of(config, grids, centres)
    is_possible = ops.logical_and(is_possible, cells[..., None])  # (B, N, 1)
    x = ops.where(is_possible, encoded, ops.zeros_like(encoded))
    x = LayerNormalization(EPSILON, name="proposal_norm")(Dense(config.dim, name="proposal_projection")(x))
    prior = keras.initializers.Constant(-math.log(99))
    scores = Dense(1, bias_initializer=prior, name="proposal_class_head")(x)  # (B, N, 1)
    boxes = corrected(ops.where(is_possible, boxes, 0.5), box_head(config.dim, "proposal_box_head")(x))
    likely = ops.where(is_possible, ops.cast(scores, "float32"), -math.inf)[..., 0]
    x, scores, boxes = best_of(likely, config.num_queries, x, scores, boxes)
    proposals = ops.concatenate([ops.cast(scores, "float32"), ops.cast(boxes, "float32")], axis=-1)
    boxes = ops.stop_gradient(boxes)
    places = CoordinateSines(config.dim // 2, name="decoder_sines")(boxes)  # (B, Q, 2 D)
    places = Dense(config.dim, name="decoder_position")(places)
    places = LayerNormalization(EPSILON, name="decoder_position_norm")(places)
    return places, ops.stop_gradient(x), boxes, proposals


# Zhu et al. 2021, table 1: 40 M parameters. tiny is this package's own, for images of some 96 x 96.
_50 = DeformableDETRConfig()
DeformableDETR.sizes = {
    "tiny": DeformableDETRConfig(
        **TINY,
        dim=64,
        num_layers=1,
        num_decoder_layers=2,
        num_heads=4,
        intermediate_dim=128,
        dropout=0.0,
        num_maps=2,
        num_levels=2,
        num_points=2,
        num_decoder_points=4,
        refines=True,
        proposes=True,
    ),
    "50": _50,
    "50-refined": dataclasses.replace(_50, refines=True),
    "50-two-stage": dataclasses.replace(_50, refines=True, proposes=True),
}
