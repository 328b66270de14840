"""Blocks: branches, attention and a feed-forward layer for example, each in a residual; and stacks of blocks.

    x --> norm --> branch --> dropout --> + -->      normalize="input"   Xiong et al. 2020
    |____________________________________|

    x --> branch --> dropout --> + --> norm -->      "sum"               Vaswani et al. 2017, section 3.1
    |____________________________|

    x --> branch --> norm --> dropout --> + -->      "output"            Liu et al. 2022, "Swin Transformer
    V2" |____________________________________|

A family composes its block of such parts; `TransformerBlock` is the plain one.
"""

import inspect

import keras
from keras import ops

from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer
from keras_tfm.layers.cache import BlockCache
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.masks import combine_masks, key_mask_of, tokens_of
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regularization import Dropout, StochasticDepth

PLACES = ("input", "sum", "output")


class Residual(Layer):
    """x + branch(x), any shape in and the same out.

    `normalize` is what `norm` acts on, "input" of the branch, "sum" or "output" of the branch; without a
    `norm` nothing is normalised. What the branch gives is multiplied by a learned gain for each feature, at
    first `layer_scale` (Touvron et al. 2021, "Going Deeper with Image Transformers"), its values are dropped
    with the probability `dropout`, and it is left out of whole examples with that of `stochastic_depth`.
    """

    def __init__(
        self,
        branch,
        norm=None,
        normalize="sum",
        dropout=0.0,
        stochastic_depth=0.0,
        layer_scale=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if normalize not in PLACES:
            raise ValueError(f"`normalize` must be one of {', '.join(PLACES)}; it is {normalize!r}.")
        for name, rate in (("dropout", dropout), ("stochastic_depth", stochastic_depth)):
            if not 0 <= rate < 1:
                raise ValueError(f"`{name}` must lie in [0, 1); it is {rate}.")
        self.branch = branch
        self.takes_mask = "mask" in inspect.signature(branch.call).parameters
        self.norm = norm
        self.normalize = normalize
        self.dropout = dropout
        self.stochastic_depth = stochastic_depth
        self.layer_scale = layer_scale
        self.value_dropout = Dropout(dropout, name="dropout") if dropout else None
        self.example_dropout = (
            StochasticDepth(stochastic_depth, name="stochastic_depth") if stochastic_depth else None
        )

    def build(self, x_shape, context_shape=None):
        self.branch.build(*(shape for shape in (x_shape, context_shape) if shape is not None))
        if self.norm is not None:
            self.norm.build(x_shape)
        if self.layer_scale is not None:
            initial = keras.initializers.Constant(self.layer_scale)
            self.scale = self.add_weight((x_shape[-1],), initial, name="scale")
        self.built = True

    def call(self, x, context=None, mask=None, bias=None, causal=False, training=None):
        """The branch is called on `x`, the `context`, and what is given of `mask`, `bias` and `causal`.

        A branch without a `mask`, such as a feed-forward layer, treats padding like all else.
        """
        inputs = (self.before(x),) if context is None else (self.before(x), context)
        options = {"mask": mask if self.takes_mask else None, "bias": bias, "causal": causal or None}
        options = {name: value for name, value in options.items() if value is not None}
        return self.after(x, self.branch(*inputs, **options, training=training), training)

    def before(self, x):
        """What the branch is called on."""
        return self.norm(x) if self.norm is not None and self.normalize == "input" else x

    def after(self, x, y, training=False):
        """The residual's output for what the branch gave, `y`."""
        if self.norm is not None and self.normalize == "output":
            y = self.norm(y)
        if self.layer_scale is not None:
            y = y * ops.cast(self.scale, y.dtype)
        if training:
            for layer in (self.value_dropout, self.example_dropout):
                y = y if layer is None else layer(y, training=True)
        x = x + ops.cast(y, x.dtype)
        return self.norm(x) if self.norm is not None and self.normalize == "sum" else x

    def compute_output_shape(self, x_shape, context_shape=None):
        return tuple(x_shape)

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)


def residuals(
    normalize_first=False, dropout=0.0, epsilon=1e-6, norm=LayerNormalization, stochastic_depth=0.0
):
    """The function that puts a branch in a `Residual`: a block's are alike, each with a `norm` of its own.

    With `normalize_first` it normalises the branch's input, otherwise the sum.
    """
    place = "input" if normalize_first else "sum"
    return lambda branch: Residual(branch, norm(epsilon), place, dropout, stochastic_depth)


class Block(Layer):
    """Self-attention, cross-attention where there is one, and a feed-forward layer, each a `Residual`.

    `causal` hides later positions from self-attention. A feed-forward layer whose call takes a `mask` is told
    which tokens are no padding.
    """

    is_block = True  # for `rematerialize` and for what goes by depth

    def __init__(self, attention, feedforward, context_attention=None, causal=False, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention
        self.context_attention = context_attention
        self.feedforward = feedforward
        self.causal = causal

    def build(self, x_shape, context_shape=None):
        self.attention.build(x_shape)
        if self.context_attention is not None:
            if context_shape is None:
                raise ValueError(f"{self.name!r} has cross-attention: call it with a `context` (B, S, D).")
            self.context_attention.build(x_shape, context_shape)
        self.feedforward.build(x_shape)
        self.built = True

    def call(self, x, context=None, mask=None, context_mask=None, bias=None, training=None):
        """(B, T, D) -> (B, T, D), attending to `context` (B, S, D) where there is cross-attention.

        `mask` is that of self-attention, `context_mask` that of the context; both follow
        `keras_tfm.layers.masks`, and are ANDed with what Keras carries on the tensors. `bias` is added to the
        scores of self-attention.
        """
        mask = combine_masks(mask, key_mask_of(x))
        tokens = tokens_of(mask) if self.feedforward.takes_mask and mask is not None else None
        x = self.attention(x, mask=mask, bias=bias, causal=self.causal, training=training)
        if self.context_attention is not None:
            context_mask = combine_masks(context_mask, key_mask_of(context), name="context_mask")
            x = self.context_attention(x, context, mask=context_mask, training=training)
        return self.feedforward(x, mask=tokens, training=training)

    def start(self, batch_size, max_length, context=None, context_mask=None):
        """The cache for decoding up to `max_length` positions against `context` (B, S, D)."""
        attention = self.attention.branch.start(batch_size, max_length)
        if self.context_attention is None:
            return BlockCache(attention)
        return BlockCache(attention, self.context_attention.branch.start_context(context, context_mask))

    def step(self, x, cache, mask=None, bias=None):
        """The next T positions (B, T, D) of a causal block; `mask` (B, T) hides padding among them.

        `bias` is for queries and keys as `cache.attention.positions(T)` numbers them.
        """
        part = self.attention
        y, attention = part.branch.step(part.before(x), cache.attention, mask, bias)
        x = part.after(x, y)
        if self.context_attention is not None:
            part = self.context_attention
            positions = cache.attention.index + ops.arange(ops.shape(x)[1], dtype="int32")
            x = part.after(x, part.branch.step_context(part.before(x), cache.context, positions))
        return self.feedforward(x, mask=mask), BlockCache(attention, cache.context)

    def compute_output_shape(self, x_shape, context_shape=None):
        return tuple(x_shape)

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)


class TransformerBlock(Block):
    """The plain block of Vaswani et al. 2017: multi-head attention and two dense layers.

    `intermediate_dim` is the feed-forward width. `dropout` acts on the attention weights and on what each
    part adds. `normalize_first` normalises each part's input instead of each sum, and leaves the block's
    output as it is. With `cross_attention` the block is called with a `context`.
    """

    def __init__(
        self,
        num_heads,
        intermediate_dim,
        dropout=0.1,
        activation="relu",
        normalize_first=False,
        causal=False,
        cross_attention=False,
        **kwargs,
    ):
        part = residuals(normalize_first, dropout)
        super().__init__(
            part(MultiHeadAttention(num_heads, dropout=dropout)),
            part(FeedForward(intermediate_dim, activation)),
            part(MultiHeadAttention(num_heads, dropout=dropout)) if cross_attention else None,
            causal,
            **kwargs,
        )
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.activation = activation
        self.normalize_first = normalize_first
        self.cross_attention = cross_attention
