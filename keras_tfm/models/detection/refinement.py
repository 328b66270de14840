"""What detectors share whose queries look at points around references: places in the image, which blocks of
the decoder correct.

    reference --> points on each map --> block --> what its box head says --> corrected reference -->

A reference is a point (x, y) or a box (x, y, width, height) around its centre, as parts of the image's sides,
padding apart. Zhu et al. 2021, "Deformable DETR: Deformable Transformers for End-to-End Object Detection",
sections 4.1 and 4.2.
"""

import math

import numpy as np
from keras import ops

from keras_tfm.configs import Refusal
from keras_tfm.layers.attention.deformable import DeformableAttention
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.positioned_block import PositionedAttention
from keras_tfm.models.detection.base import EPSILON, about_queries, inverse_sigmoid

SIDE = 0.05  # of an anchor, as a part of the image's, on the finest level


def decoder_block(config, grids, index, stack="decoder", attention=DeformableAttention):
    """The block of this number of a decoder, the `stack`, whose queries look at points of maps with these
    `grids`, by a layer of the class `attention`.
    """
    part = residuals(dropout=config.dropout, epsilon=EPSILON)
    _, num_heads, width = config.decoder_sizes
    among = PositionedAttention(MultiHeadAttention(num_heads, dropout=config.attention_dropout))
    parts = {
        "attention": part(among),
        "context_attention": part(attention(num_heads, grids, config.num_decoder_points)),
        "feedforward": part(FeedForward(width, config.activation, dropout=config.activation_dropout)),
    }
    return Block(parts, name=f"{stack}_block_{index}")


def refined(
    trace, decoder, heads, x, references, shares, position_of, context, mask_of=lambda references: None
):
    """Apply the blocks of a `decoder` to `x` (B, Q, D), each around the references that the one before it and
    its head corrected: the states, (B, L, Q, D), and boxes, (B, L, Q, 4), of all blocks.

    `references` (B, Q, 2 or 4) are the first ones, `position_of` and `mask_of` are functions of references
    that return positions of queries (B, Q, D) and the mask of self-attention, and `context` are the tensors
    of cross-attention. No gradient passes from a block through its references.
    """
    states, boxes = [], []
    for block, head in zip(decoder, heads, strict=True):
        places = on_levels(references, shares)
        context = {**context, "references": places}
        tensors = about_queries(position_of(references), context, mask=mask_of(references))
        x = trace.run("decoder", [block], x, **tensors)
        states.append(x)
        boxes.append(corrected(references, head(x)))
        references = ops.stop_gradient(boxes[-1])
    return ops.stack(states, axis=1), ops.stack(boxes, axis=1)


def box_heads(config):
    """The heads of the boxes of all blocks of the decoder."""
    return [box_head(config.dim, f"decoder_box_head_{i}") for i in range(config.decoder_sizes[0])]


def box_head(dim, name):
    """Three dense layers to the logits of a box's correction, at first none."""
    last = Dense(4, kernel_initializer="zeros")
    return Chain([Dense(dim, "relu"), Dense(dim, "relu"), last], name=name)


def corrected(references, correction):
    """Boxes (B, Q, 4): `references` (B, Q, 2 or 4) with a `correction` of their logits (B, Q, 4)."""
    logits = inverse_sigmoid(references)
    if references.shape[-1] == 2:
        logits = ops.pad(logits, [(0, 0), (0, 0), (0, 2)])
    return ops.sigmoid(ops.cast(correction, logits.dtype) + logits)


def flat_cells(masks):
    """The `masks` of all levels, (B, rows, columns) each, map by map and row by row: (B, N)."""
    return ops.concatenate([ops.reshape(m, (-1, math.prod(m.shape[1:]))) for m in masks], axis=1)


def on_levels(references, shares):
    """`references` (B, T, 2 or 4), parts of images, as parts of the maps of each level: (B, T, L, 2 or 4)."""
    if references.shape[-1] == 4:
        shares = ops.concatenate([shares, shares], axis=-1)
    return references[:, :, None] * shares[:, None]


def anchors_of(config, grids, centres):
    """A box around each of the `centres` (B, N, 2) of cells, (B, N, 4), and whether it lies well within the
    image, (B, N, 1).

    ValueError for more queries in the `config` than cells, of which each is a proposal.
    """
    counts = [rows * columns for rows, columns in grids]
    if sum(counts) < config.num_queries:
        raise Refusal(
            "num_queries",
            f"at most {sum(counts)}, the cells of all levels, of which each is a proposal",
            config.num_queries,
        )
    sides = np.repeat(SIDE * 2.0 ** np.arange(len(grids)), counts)[:, None].astype("float32")  # (N, 1)
    boxes = ops.concatenate([centres, ops.zeros_like(centres) + sides], axis=-1)  # (B, N, 4)
    return boxes, ops.all(ops.logical_and(boxes > 0.01, boxes < 0.99), axis=-1)[..., None]


def best_of(scores, count, *tensors):
    """The rows of each of the `tensors` (B, N, .) at the `count` highest `scores` (B, N): (B, `count`, .)."""
    _, best = ops.top_k(scores, count)
    return [ops.take_along_axis(x, best[..., None], axis=1) for x in tensors]
