"""Transformer blocks and stacks of them (Vaswani et al. 2017, section 3.1)."""

import inspect

import keras
from keras import ops

from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer, Pattern, pattern
from keras_tfm.layers.cache import BlockCache
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.masks import combine_masks, key_mask_of, tokens_of
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regularization import Dropout
from keras_tfm.private.keras import layers_in, rematerialization_of, set_rematerialization


class TransformerBlock(Layer):
    """Self-attention, cross-attention if asked, and a feed-forward layer, each with its residual.

    `normalize_first=False` normalises each sum, as in the paper; True normalises each sub-layer's
    input (Xiong et al. 2020) and leaves the block's output as it is. `dropout` acts on the
    attention weights and on what each sub-layer adds. `intermediate_dim` is the feed-forward width.

    `attention`, `feedforward` and `normalization` are layers to use in place of the defaults;
    the last is a pattern, each place gets a layer of its configuration. `cross_attention` is True,
    or the layer to use. A feed-forward layer whose call takes a `mask` is told which tokens are no padding.
    """

    def __init__(
        self,
        num_heads,
        intermediate_dim,
        key_dim=None,
        dropout=0.1,
        activation="relu",
        normalize_first=False,
        epsilon=1e-6,
        causal=False,
        cross_attention=False,
        attention=None,
        feedforward=None,
        normalization=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must lie in [0, 1); it is {dropout}.")
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.key_dim = key_dim
        self.dropout = dropout
        self.activation = activation
        self.normalize_first = normalize_first
        self.epsilon = epsilon
        self.causal = causal
        self.attention = attention or MultiHeadAttention(
            num_heads, key_dim, dropout=dropout, name="attention"
        )
        self.feedforward = feedforward or FeedForward(intermediate_dim, activation, name="feedforward")
        self.normalization = Pattern(normalization or LayerNormalization(epsilon=epsilon))
        self.cross_attention = cross_attention
        if cross_attention is True:
            cross_attention = MultiHeadAttention(
                num_heads, key_dim, dropout=dropout, name="context_attention"
            )
        self.context_attention = cross_attention or None
        self.attention_norm = self.normalization.new("attention_norm")
        self.context_norm = self.normalization.new("context_norm") if cross_attention else None
        self.feedforward_norm = self.normalization.new("feedforward_norm")
        self.residual_dropout = Dropout(dropout, name="dropout")
        self.feeds_mask = "mask" in inspect.signature(self.feedforward.call).parameters

    def build(self, x_shape, context_shape=None, mask_shape=None, context_mask_shape=None):
        self.attention.build(x_shape)
        self.attention_norm.build(x_shape)
        if self.context_attention is not None and self.context_norm is not None:
            if context_shape is None:
                raise ValueError(f"{self.name!r} has cross-attention: call it with a `context` (B, S, D).")
            self.context_attention.build(x_shape, context_shape)
            self.context_norm.build(x_shape)
        self.feedforward.build(x_shape)
        self.feedforward_norm.build(x_shape)
        self.built = True

    def call(self, x, context=None, mask=None, context_mask=None, training=None):
        """(B, T, D) -> (B, T, D), attending to `context` (B, S, D) where there is cross-attention.

        `mask` is that of self-attention, `context_mask` that of the context; both follow
        `keras_tfm.layers.masks`, and are ANDed with what Keras carries on the tensors.
        """
        mask = combine_masks(mask, key_mask_of(x))
        tokens = tokens_of(mask) if self.feeds_mask and mask is not None else None
        y = self.attention(
            self._before(self.attention_norm, x), mask=mask, causal=self.causal, training=training
        )
        x = self._after(self.attention_norm, x, y, training)
        if self.context_attention is not None:
            mask = combine_masks(context_mask, key_mask_of(context), name="context_mask")
            y = self.context_attention(
                self._before(self.context_norm, x), context, mask=mask, training=training
            )
            x = self._after(self.context_norm, x, y, training)
        y = self._feed(self._before(self.feedforward_norm, x), tokens, training=training)
        return self._after(self.feedforward_norm, x, y, training)

    def start(self, batch_size, max_length, context=None, context_mask=None):
        """The cache for decoding up to `max_length` positions against `context` (B, S, D)."""
        attention = self.attention.start(batch_size, max_length)
        if self.context_attention is None:
            return BlockCache(attention)
        return BlockCache(attention, self.context_attention.start_context(context, context_mask))

    def step(self, x, cache, mask=None):
        """The next T positions (B, T, D) of a causal block; `mask` (B, T) hides padding among them."""
        y, attention = self.attention.step(self._before(self.attention_norm, x), cache.attention, mask)
        x = self._after(self.attention_norm, x, y)
        if self.context_attention is not None:
            positions = cache.attention.index + ops.arange(ops.shape(x)[1], dtype="int32")
            query = self._before(self.context_norm, x)
            y = self.context_attention.step_context(query, cache.context, positions)
            x = self._after(self.context_norm, x, y)
        y = self._feed(self._before(self.feedforward_norm, x), mask)
        return self._after(self.feedforward_norm, x, y), BlockCache(attention, cache.context)

    def _feed(self, x, mask, training=None):
        """`mask` (B, T) is False at padding, or None."""
        if self.feeds_mask and mask is not None:
            return self.feedforward(x, mask=mask, training=training)
        return self.feedforward(x, training=training)

    def _before(self, norm, x):
        return norm(x) if self.normalize_first else x

    def _after(self, norm, x, y, training=False):
        x = x + self.residual_dropout(y, training=training)
        return x if self.normalize_first else norm(x)

    def compute_output_shape(self, x_shape, context_shape=None, mask_shape=None, context_mask_shape=None):
        return tuple(x_shape)

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)


class TransformerStack(Layer):
    """`num_layers` blocks in a row and, where they normalise first, a last normalisation.

    The arguments are `TransformerBlock`'s; `attention`, `feedforward` and `normalization` are
    patterns here, each block gets its own. `position` is the one `AttentionPosition` that the
    `attention` of all blocks shares. Abstract: see `TransformerEncoder`, `TransformerDecoder`.
    """

    causal = False

    def __init__(
        self,
        num_layers,
        num_heads,
        intermediate_dim,
        key_dim=None,
        dropout=0.1,
        activation="relu",
        normalize_first=False,
        epsilon=1e-6,
        cross_attention=False,
        attention=None,
        feedforward=None,
        normalization=None,
        position=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1; it is {num_layers}.")
        if position is not None and attention is None:
            raise ValueError("A shared `position` needs the `attention` that is to use it.")
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.key_dim = key_dim
        self.dropout = dropout
        self.activation = activation
        self.normalize_first = normalize_first
        self.epsilon = epsilon
        self.cross_attention = pattern(cross_attention)
        self.attention = pattern(attention)
        self.feedforward = pattern(feedforward)
        self.normalization = Pattern(normalization or LayerNormalization(epsilon=epsilon))
        self.position = position
        self.blocks = [self._block(f"block_{i}") for i in range(num_layers)]
        self.norm = self.normalization.new("norm") if normalize_first else None

    def _block(self, name):
        own = {
            part: given.new(part) if isinstance(given, Pattern) else given
            for part, given in (
                ("attention", self.attention),
                ("feedforward", self.feedforward),
                ("cross_attention", self.cross_attention),
                ("normalization", self.normalization),
            )
        }
        if self.position is not None:
            own["attention"] = self.attention.new("attention", position=self.position)
        return TransformerBlock(
            self.num_heads,
            self.intermediate_dim,
            self.key_dim,
            self.dropout,
            self.activation,
            self.normalize_first,
            self.epsilon,
            self.causal,
            **own,
            name=name,
        )

    def build(self, x_shape, context_shape=None, mask_shape=None, context_mask_shape=None):
        for block in self.blocks:
            block.build(x_shape, context_shape)
        if self.norm is not None:
            self.norm.build(x_shape)
        self.built = True

    def call(self, x, context=None, mask=None, context_mask=None, training=None):
        """(B, T, D) -> (B, T, D); every block attends to the same `context` (B, S, D)."""
        mask = combine_masks(mask, key_mask_of(x))
        if context is not None:
            context_mask = combine_masks(context_mask, key_mask_of(context), name="context_mask")
        for block in self.blocks:
            x = block(x, context, mask=mask, context_mask=context_mask, training=training)
        return x if self.norm is None else self.norm(x)

    def rematerialized_call(self, layer_call, *args, **kwargs):
        """As it is: the blocks recompute, each for itself."""
        return layer_call

    def compute_output_shape(self, x_shape, context_shape=None, mask_shape=None, context_mask_shape=None):
        return tuple(x_shape)

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)


class TransformerEncoder(TransformerStack):
    """A stack of blocks in which every position sees every other."""


class TransformerDecoder(TransformerStack):
    """A stack of causal blocks, with `cross_attention=True` attending to an encoder's output.

    `start` and `step` decode incrementally; a step gives what `call` gives at its positions.
    """

    causal = True

    def start(self, batch_size, max_length, context=None, context_mask=None):
        """A cache per block, for up to `max_length` positions against `context` (B, S, D)."""
        return [block.start(batch_size, max_length, context, context_mask) for block in self.blocks]

    def step(self, x, cache, mask=None):
        """The next T positions (B, T, D); `mask` (B, T) hides padding among them."""
        blocks = []
        for block, block_cache in zip(self.blocks, cache, strict=True):
            x, block_cache = block.step(x, block_cache, mask)
            blocks.append(block_cache)
        return (x if self.norm is None else self.norm(x)), blocks


def rematerialize(layer):
    """Have every `TransformerBlock` in `layer`, a model or a stack, keep its inputs alone while training.

    The backward pass computes the rest anew, with the same dropout: memory for about a third more
    time (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"). No number changes, so it
    is no part of the configuration: call it before the first training step. Returns `layer`; raises
    ValueError where no block is found.
    """
    blocks = [part for part in layers_in(layer) if isinstance(part, TransformerBlock)]
    if not blocks:
        raise ValueError(f"{layer.name!r} has no `TransformerBlock` to rematerialise.")
    with keras.RematScope("full"):
        mode = rematerialization_of(keras.layers.Layer())
    for block in blocks:
        set_rematerialization(block, mode)
    return layer
