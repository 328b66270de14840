"""Conditional DETR of Meng et al. 2021, "Conditional DETR for Fast Training Convergence".

Content and place of queries and keys have projections of their own. In cross-attention they stand side by
side instead of being added, so that a score is the sum of how well the contents agree and how well the
places do:

    query  [content | sines of the query's reference, scaled by its state]
    key    [content | sines of the cell]

The reference is a point that the query predicts; its box is measured from it. Deviates from the authors' code
as `DETR` does; in transformers' an `auxiliary_loss` changes the answers, here it does not.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.projections import split_heads
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.cache import Keys
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.masks import combine_masks
from keras_tfm.models.detection.base import (
    EPSILON,
    CoordinateSines,
    LearnedQueries,
    SetDetector,
    SetDetectorConfig,
    about_queries,
    encoded_map,
    outputs_of,
    references_of,
    start_of,
)
from keras_tfm.models.detection.detr import sizes_with_300_queries


@dataclasses.dataclass(frozen=True)
class ConditionalDETRConfig(SetDetectorConfig):
    """`SetDetectorConfig`, with 300 queries by default."""

    num_queries: LearnedQueries = 300


class ConditionalDETR(SetDetector):
    """Images in, one vector for each object query out, and where it looks.

    Inputs and outputs as of `DETR`; beside them `references` (B, 1, Q, 4), the logits of a query's point
    (x, y), and zeros, to which a head adds the logits of its boxes.

    >>> model = keras_tfm.models.ConditionalDETR.from_size("tiny", image_size=32)
    >>> model({"images": np.zeros((1, 32, 32, 3))})["references"].shape
    TensorShape([1, 1, 16, 4])
    """

    config_class = ConditionalDETRConfig

    def __init__(self, config: ConditionalDETRConfig, name: str = "conditional_detr", **kwargs: Any) -> None:
        backbone, pixel_mask, trace = start_of(config)
        encoder = encoded_map(config, backbone, pixel_mask, trace)
        decoder = [_decoder_block(config, i) for i in range(config.decoder_sizes[0])]

        queries = LearnedVectors(config.num_queries, name="decoder_queries")(encoder.context["context"])
        references = Chain([Dense(config.dim, "relu"), Dense(2)], name="decoder_references")(queries)
        points = ops.sigmoid(references)  # (B, Q, 2)
        places = CoordinateSines(config.dim // 2, name="decoder_sines")(ops.flip(points, axis=-1))
        scale = Chain([Dense(config.dim, "relu"), Dense(config.dim)], name="decoder_place_scale")
        x = ops.zeros_like(queries)
        for i, block in enumerate(decoder):
            place = places * scale(x) if i else places
            tensors = about_queries(queries, {**encoder.context, "place": place})
            x = trace.run("decoder", [block], x, **tensors)
        outputs = {**outputs_of(trace), "references": references_of(references)}
        super().__init__(config, backbone, pixel_mask, outputs, trace, name=name, **kwargs)


class PlacedProjections(Layer):
    """Projections to heads of contents and places, each by a matrix of its own.

    With `is_apart` places of queries and keys stand beside their contents, as in cross-attention, otherwise
    they are added to them. `adds` says whether positions of queries and keys are added too.
    """

    def __init__(self, num_heads, is_apart=False, adds=True, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.is_apart = is_apart
        self.adds = adds

    def build(self, query_shape, value_shape=None, key_shape=None):
        width = query_shape[-1]
        if width % self.num_heads:
            raise ValueError(f"`num_heads` must divide the width {width}; it is {self.num_heads}.")
        self.value_width = width // self.num_heads
        self.key_width = self.value_width * (2 if self.is_apart else 1)
        names = ["query", "key", "value", "key_position"]
        names += ["query_position"] * self.adds + ["query_place"] * self.is_apart
        for name in names:
            layer = Dense(width, name=name)
            setattr(self, name, layer)
            layer.build(query_shape if name.startswith("query") else value_shape or query_shape)

    def project(self, x, context, position, context_position, place=None):
        """The queries of `x` (B, T, D), keys and values of `context` (B, S, D): (B, H, T or S, .)."""
        query, key, value = self.query(x), self.key(context), self.value(context)
        key_position = self.key_position(context_position)
        if self.adds:
            query, key = query + self.query_position(position), key + key_position
        query, key, value = (split_heads(y, self.num_heads) for y in (query, key, value))
        if self.is_apart:
            places = (split_heads(y, self.num_heads) for y in (self.query_place(place), key_position))
            query, key = (ops.concatenate(pair, -1) for pair in zip((query, key), places, strict=True))
        return query, key, value


class PlacedAttention(Attention):
    """Attention whose `projections` are `PlacedProjections`."""

    def call(  # type: ignore[override]
        self,
        x,
        context=None,
        position=None,
        context_position=None,
        place=None,
        mask=None,
        bias=None,
        training=None,
    ):
        """Attend from `x` (B, T, D) to `context` (B, S, D), or to itself: (B, T, D).

        `position` (B, T, D) and `context_position` (B, S, D) are theirs, `place` (B, T, D) is where each
        query looks.
        """
        if context is None:
            context, context_position = x, position
        query, key, value = self.projections.project(x, context, position, context_position, place)
        return self.merge(self.attend(query, Keys(key, value, combine_masks(mask)), bias, training))


def _decoder_block(config, index):
    """The decoder's block of this number; the first one alone adds positions in cross-attention too, as its
    queries have no content yet.
    """
    part = residuals(dropout=config.dropout, epsilon=EPSILON)
    _, num_heads, width = config.decoder_sizes
    attentions = [
        part(PlacedAttention(PlacedProjections(num_heads, **options), dropout=config.attention_dropout))
        for options in ({}, {"is_apart": True, "adds": not index})
    ]
    feedforward = FeedForward(width, config.activation, dropout=config.activation_dropout)
    names = ("attention", "context_attention", "feedforward")
    parts = dict(zip(names, (*attentions, part(feedforward)), strict=True))
    return Block(parts, name=f"decoder_block_{index}")


# Meng et al. 2021, table 1: 43 and 63 M parameters. tiny is this package's own, for images of some 96 x 96.
ConditionalDETR.sizes = sizes_with_300_queries(ConditionalDETRConfig)
