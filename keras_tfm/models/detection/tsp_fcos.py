"""TSP-FCOS of Sun et al. 2021, "Rethinking Transformer-based Set Prediction for Object Detection": an encoder
of the cells of a pyramid that look most like objects.

    pyramid --> towers --> scores of cells --> best cells --> encoder --> class, box, centredness

There is no decoder. The towers and their scores follow FCOS (Tian et al. 2019), shared by all levels;
a token is what both towers say of a cell, and its position the sines of its place and a vector of its level.
As in the authors' code cells at padding may be chosen. Deviates from it in that padding is known cell by
cell, so that images of one batch may have any form. `heads.CellSetDetector` trains it. There are no weights
to read.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import Depth, Heads, Rate, Refusal, Size, Whole
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.boxes import centred, corners_of_masks
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.image_positions import SineGridPositionEncoding
from keras_tfm.layers.normalization import GroupNormalization, LayerNormalization
from keras_tfm.layers.positioned_block import PositionedAttention
from keras_tfm.layers.resizing import resize_nearest
from keras_tfm.models.base import Trace
from keras_tfm.models.detection.backbones import TINY, AroundBackbone, KnowsClasses, ModelAroundBackbone
from keras_tfm.models.detection.base import EPSILON, Queries, SineWidth, last_maps, start_of
from keras_tfm.models.detection.pyramid import pyramid_of, strides_of
from keras_tfm.models.detection.refinement import best_of

PRIOR = 0.01  # what a class's probability is at first
RANGE = 8  # cells: a level is for objects whose farthest side is nearer, and farther than in the level before
ENDLESS = 1e6  # the range of the last level


@dataclasses.dataclass(frozen=True)
class TSPFCOSConfig(AroundBackbone):
    """`num_queries` cells are chosen of the pyramid's levels: the backbone's last `num_maps` maps, and
    `num_coarse_levels` of half the sides each. The levels have `pyramid_dim` channels, normalised in
    `num_groups` in the `num_convolutions` of each tower. The scores know `num_classes`.
    """

    num_classes: Size = 80
    num_queries: Queries = 700
    num_maps: Size = 3
    num_coarse_levels: Whole = 2
    pyramid_dim: Size = 256
    num_convolutions: Size = 4
    num_groups: Size = 32
    dim: SineWidth = 512
    num_layers: Depth = 6
    num_heads: Heads = 8
    intermediate_dim: Size = 2048
    dropout: Rate = 0.0

    def __post_init__(self):
        super().__post_init__()
        if self.pyramid_dim % self.num_groups:
            raise Refusal("num_groups", f"a divisor of `pyramid_dim`, {self.pyramid_dim}", self.num_groups)


class ChoosesByScores(ModelAroundBackbone):
    """A model that encodes its best Q of N cells or boxes, and gives dense outputs for all N. Abstract."""

    answers: Callable  # of a `Trace`, scores (B, N) and a mask (B, Q) or None: the outputs but the dense ones

    def chosen(self, scores: Any, mask: Any = None) -> dict[str, Any]:
        """The outputs, but for the dense ones, if these were the `scores` (B, N), symbolic tensors; what is
        chosen is not seen where `mask` (B, Q) is False.
        """
        return self.answers(Trace(), scores, mask)


class TSPFCOS(KnowsClasses, ChoosesByScores):
    """Images in; a class, a box and its centredness for each of Q cells, and the cells' scores, out.

    Inputs as of `DETR`. Outputs: `sequence_output` (B, Q, D), the encoded cells, the likeliest first;
    `logits` (B, Q, num_classes), the sigmoid of each a probability; `distances` (B, Q, 4), from the cell's
    centre to the box's left, top, right and bottom in pixels, at least 0; `centredness` (B, Q, 1), a logit;
    `centres` (B, Q, 2), (x, y) in pixels, and `strides` (B, Q, 1), the widths of the cells in pixels;
    `dense_logits` (B, N, num_classes), the scores of the towers, level by level and row by row; `boxes` (B,
    Q, 4), (x, y, width, height) around the centre as parts of the image's sides, padding apart; `cells` (B,
    Q, 6) and `dense_cells` (B, N, 6), in such parts the cell's centre (x, y) and the least and the most
    distance, along x and y each, of an object's farthest side from a centre of its level.

    >>> model = keras_tfm.models.TSPFCOS.from_size("tiny", image_size=32)
    >>> model({"images": np.zeros((1, 32, 32, 3))})["distances"].shape
    TensorShape([1, 16, 4])
    """

    config_class = TSPFCOSConfig

    def __init__(self, config: TSPFCOSConfig, name: str = "tsp_fcos", **kwargs: Any) -> None:
        backbone, pixel_mask, trace = start_of(config)
        levels = pyramid_of(last_maps(backbone.maps, config.num_maps), config.pyramid_dim)
        for i in range(config.num_coarse_levels):
            x = ops.relu(levels[-1]) if i else levels[-1]
            levels.append(Convolution(config.pyramid_dim, 3, 2, name=f"pyramid_coarse_{i}")(x))
        strides = strides_of(levels, pixel_mask.shape[1])
        masks = [resize_nearest(pixel_mask, level.shape[1:3]) for level in levels]
        dense, choose = cells_of(config, levels, masks, strides)
        extent = corners_of_masks(pixel_mask[:, None])[..., 2:]

        def answers(trace, scores, mask=None):
            outputs = choose(trace, scores, mask)
            places = outputs["centres"], outputs["strides"]
            boxes = _boxes_around(places[0], outputs["distances"], extent)
            return outputs | {"boxes": boxes, "cells": _with_ranges(*places, strides, extent)}

        outputs = answers(trace, scores_of(dense["logits"]))
        outputs["dense_logits"] = dense["logits"]
        outputs["dense_cells"] = _with_ranges(dense["centres"], dense["strides"], strides, extent)
        inputs = {"images": backbone.input["images"], "pixel_mask": pixel_mask}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self.maps = backbone.maps
        self.answers = answers


def scores_of(logits):
    """A cell's score is the highest of the `logits` of its classes (B, N, C): (B, N)."""
    return ops.max(ops.cast(logits, "float32"), axis=-1)


def cells_of(config, levels, masks, strides):
    """({"logits" (B, N, C), "centres" (B, N, 2) and "strides" (B, N, 1) of all cells}, a function of a
    `Trace`, the cells' scores (B, N) and a mask (B, Q) that gives the outputs of a `TSPFCOS`), of the
    `levels` of a pyramid with these `strides`; `masks` (B, rows, columns) are False at padding.
    """
    class_tower, box_tower = (_tower(config, f"{name}_tower") for name in ("class", "box"))
    bias = keras.initializers.Constant(-math.log(1 / PRIOR - 1))
    scores = keras.layers.Conv2D(
        config.num_classes, 3, padding="same", bias_initializer=bias, name="dense_class_head"
    )
    sines = SineGridPositionEncoding(normalize=True, name="position")
    of_levels = LearnedVectors(len(levels), config.dim, "ones", name="level_position")
    grids = [level.shape[1:3] for level in levels]
    of_class = [class_tower(level) for level in levels]
    dense = _flat([scores(x) for x in of_class])  # (B, N, C)
    tokens = ops.concatenate([_flat(of_class), _flat([box_tower(x) for x in levels])], axis=-1)
    vectors = of_levels(tokens)  # (B, L, D)
    positions = []
    for i, (level, mask) in enumerate(zip(levels, masks, strict=True)):
        empty = ops.zeros_like(level[..., :1]) + ops.zeros_like(vectors[:, None, None, i])
        positions.append(sines(empty, mask) + vectors[:, None, None, i])
    centres = np.concatenate([_centres(grid, stride) for grid, stride in zip(grids, strides, strict=True)])
    if len(centres) < config.num_queries:
        raise Refusal("num_queries", f"at most {len(centres)}, the cells of all levels", config.num_queries)
    numbers = np.repeat(np.arange(len(grids)), [rows * columns for rows, columns in grids])
    widths = np.array(strides)[numbers]
    places = np.concatenate([centres, widths[:, None], numbers[:, None]], axis=-1).astype("float32")  # (N, 4)
    places = ops.zeros_like(ops.cast(dense[..., :1], "float32")) + places
    position = _flat(positions)
    projection, token_norm = (
        Dense(config.dim, name="token_projection"),
        LayerNormalization(EPSILON, name="token_norm"),
    )
    blocks = [encoder_block(config, i) for i in range(config.num_layers)]
    norm = LayerNormalization(EPSILON, name="norm")
    scales = LearnedVectors(len(levels), 1, "ones", name="level_scale")
    class_head = keras.layers.Dense(config.num_classes, bias_initializer=bias, name="class_head")
    box_head, centredness_head = Dense(4, name="box_head"), Dense(1, name="centredness_head")

    def choose(trace, scores, mask=None):
        chosen = best_of(scores, config.num_queries, tokens, position, places)
        x = token_norm(projection(chosen[0]))
        x = norm(trace.run("encoder", blocks, x, attention={"position": chosen[1], "mask": mask}))
        level = ops.cast(chosen[2][..., 3:], "int32")  # (B, Q, 1)
        scale = ops.take_along_axis(scales(x), level, axis=1)  # (B, Q, 1)
        return {
            "sequence_output": x,
            "logits": class_head(x),
            "distances": ops.relu(box_head(x)) * scale,
            "centredness": centredness_head(x),
            "centres": chosen[2][..., :2],
            "strides": chosen[2][..., 2:3],
        }

    return {"logits": dense, "centres": places[..., :2], "strides": places[..., 2:3]}, choose


def _boxes_around(centres, distances, extent):
    """Boxes (B, Q, 4) as parts of the sides of images of this `extent` (B, 1, 2), by the `distances` (B, Q,
    4) of their sides from `centres` (B, Q, 2).
    """
    distances = ops.cast(distances, "float32")
    corners = centres - distances[..., :2], centres + distances[..., 2:]
    return centred(ops.concatenate(corners, axis=-1) / ops.concatenate([extent, extent], axis=-1))


def _with_ranges(centres, widths, strides, extent):
    """The `centres` (B, N, 2) of cells of these `widths` (B, N, 1), and the least and the most distances of
    their levels, as parts of the sides of images of this `extent` (B, 1, 2): (B, N, 6).
    """
    least = ops.where(widths > min(strides), RANGE * widths / 2, 0.0)
    most = ops.where(widths < max(strides), RANGE * widths, ENDLESS)
    return ops.concatenate([x / extent for x in (centres, least, most)], axis=-1)


def encoder_block(config, index):
    """A block whose norms stand first, with positions on queries and keys."""
    part = residuals(normalize_first=True, dropout=config.dropout, epsilon=EPSILON)
    parts = {
        "attention": part(PositionedAttention(MultiHeadAttention(config.num_heads, dropout=config.dropout))),
        "feedforward": part(FeedForward(config.intermediate_dim, dropout=config.dropout)),
    }
    return Block(parts, name=f"encoder_block_{index}")


def _tower(config, name):
    def layer():
        norm = GroupNormalization(config.num_groups, epsilon=EPSILON)
        return Convolution(config.pyramid_dim, 3, norm=norm, activation="relu", use_bias=True)

    return Chain([layer() for _ in range(config.num_convolutions)], name=name)


def _flat(maps):
    """The cells of all `maps` (B, rows, columns, D), map by map and row by row: (B, N, D)."""
    return ops.concatenate([ops.reshape(x, (-1, x.shape[1] * x.shape[2], x.shape[3])) for x in maps], axis=1)


def _centres(grid, stride):
    """The centres (x, y) of a level's cells in pixels, (N, 2)."""
    rows, columns = (stride * np.arange(count) + stride // 2 for count in grid)
    return np.stack(np.meshgrid(columns, rows), axis=-1).reshape(-1, 2)


# Sun et al. 2021, section 4.2, around the ResNets of DETR. tiny is this package's own, for images of some 96
# x 96.
TSPFCOS.sizes = {
    "tiny": TSPFCOSConfig(
        **TINY,
        num_coarse_levels=0,
        pyramid_dim=64,
        num_convolutions=1,
        num_groups=8,
        dim=128,
        num_layers=2,
        num_heads=4,
        intermediate_dim=256,
    ),
    "50": TSPFCOSConfig(),
    "101": TSPFCOSConfig(backbone_config={"depths": (3, 4, 23, 3)}),
}
