"""Residual connections, and the Transformer blocks made of them.

A `Residual` adds what its branch (attention or a feed-forward layer, for example) computes to its input. Its
norm stands at one of three places:

    x --> norm --> branch --> dropout --> + -->      normalize="input"   Xiong et al. 2020
    |____________________________________|

    x --> branch --> dropout --> + --> norm -->      "sum"               Vaswani et al. 2017, section 3.1
    |____________________________|

    x --> branch --> norm --> dropout --> + -->      "output"            Liu et al. 2022, "Swin V2"
    |____________________________________|

A model family composes its block of such parts; `TransformerBlock` is the plain one.
"""

import inspect
from typing import Any, Literal

import keras
from keras import ops

from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer
from keras_tfm.layers.cache import BlockCache
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.masks import combine_masks, key_mask_of, tokens_of
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regularization import Dropout, StochasticDepth
from keras_tfm.layers.signatures import Activation

PLACES = ("input", "sum", "output")


class Residual(Layer):
    """x + branch(x), in the shape of x.

    Args:
        branch: a layer whose output has the shape of its input.
        norm: a normalisation layer, or None.
        normalize: what the norm is applied to: "input" of the branch, "output" of the branch, or the "sum".
        dropout: the rate at which values of the branch's output are dropped in training.
        stochastic_depth: the rate at which the whole branch is dropped, example by example.
        layer_scale: the first value of a learned factor for each feature of the branch's output (Touvron et
            al. 2021, "Going Deeper with Image Transformers"); None for no factor.

    >>> branch, norm = keras_tfm.layers.FeedForward(16), keras_tfm.layers.LayerNormalization()
    >>> layer = keras_tfm.layers.Residual(branch, norm, normalize="input")
    >>> layer(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self,
        branch: keras.layers.Layer,
        norm: keras.layers.Layer | None = None,
        normalize: Literal["input", "output", "sum"] = "sum",
        dropout: float = 0.0,
        stochastic_depth: float = 0.0,
        layer_scale: float | None = None,
        **kwargs: Any,
    ) -> None:
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

    def call(self, x, context=None, mask=None, bias=None, causal=False, training=None):
        """Calls the branch on `x`, on `context` if given, and with those of `mask`, `bias` and `causal` that
        are given.

        A branch without a `mask` argument, such as `FeedForward`, treats padding like any other token.
        """
        inputs = () if context is None else (context,)
        options = {"mask": mask if self.takes_mask else None, "bias": bias, "causal": causal or None}
        options = {name: value for name, value in options.items() if value is not None}
        return self.around(x, *inputs, **options, training=training)

    def around(self, x, *inputs, training=None, **options):
        """The residual's output, where the branch also takes `inputs` after its first one, and `options`."""
        return self.after(x, self.branch(self.before(x), *inputs, **options, training=training), training)

    def before(self, x):
        """The input of the branch: `x`, normalised where the norm is at the input."""
        return self.norm(x) if self.norm is not None and self.normalize == "input" else x

    def after(self, x, y, training=False):
        """The residual's output, given `y`, the output of the branch."""
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
    """A function that wraps a branch in a `Residual` with a norm of its own, for the equal parts of a block.

    With `normalize_first` the norm is at the branch's input, otherwise at the sum.
    """
    place: Literal["input", "sum"] = "input" if normalize_first else "sum"
    return lambda branch: Residual(branch, norm(epsilon), place, dropout, stochastic_depth)


class Block(Layer):
    """Self-attention, cross-attention if given, and a feed-forward layer, each in a `Residual`: (B, T, D) in
    and out.

    Args:
        attention: a `Residual` whose branch is an attention layer.
        feedforward: a `Residual` of a feed-forward layer. If that layer's call has a `mask`, it is told
            which tokens are not padding.
        context_attention: a `Residual` for cross-attention, or None.
        causal: whether self-attention hides later positions.

    >>> part = keras_tfm.layers.Residual
    >>> attention, feedforward = keras_tfm.layers.MultiHeadAttention(2), keras_tfm.layers.FeedForward(16)
    >>> block = keras_tfm.layers.Block(part(attention), part(feedforward), causal=True)
    >>> block(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    is_block = True  # read by `rematerialize`, and where learning rates or freezing depend on depth

    def __init__(
        self,
        attention: keras.layers.Layer,
        feedforward: keras.layers.Layer,
        context_attention: keras.layers.Layer | None = None,
        causal: bool = False,
        **kwargs: Any,
    ) -> None:
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

    def call(self, x, context=None, mask=None, context_mask=None, bias=None, training=None):
        """(B, T, D) -> (B, T, D), attending to `context` (B, S, D) too if there is cross-attention.

        `mask` is for self-attention, `context_mask` for the context; both are described in
        `keras_tfm.layers.masks` and combined by AND with the masks that Keras carries on the tensors. `bias`
        is added to the scores of self-attention.
        """
        mask = combine_masks(mask, key_mask_of(x))
        tokens = tokens_of(mask) if self.feedforward.takes_mask and mask is not None else None
        x = self.attention(x, mask=mask, bias=bias, causal=self.causal, training=training)
        if self.context_attention is not None:
            context_mask = combine_masks(context_mask, key_mask_of(context), name="context_mask")
            x = self.context_attention(x, context, mask=context_mask, training=training)
        return self.feedforward(x, mask=tokens, training=training)

    def start(self, batch_size, max_length, context=None, context_mask=None):
        """The cache for decoding up to `max_length` positions with `context` (B, S, D)."""
        attention = self.attention.branch.start(batch_size, max_length)
        if self.context_attention is None:
            return BlockCache(attention)
        return BlockCache(attention, self.context_attention.branch.start_context(context, context_mask))

    def step(self, x, cache, mask=None, bias=None):
        """A causal block's output for the next T positions (B, T, D); `mask` (B, T) is False at padding
        among them.

        `bias` is for queries and keys in the order of `cache.attention.next_positions(T)`.
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
    """The plain Transformer block of Vaswani et al. 2017: multi-head attention and a feed-forward layer.

    Args:
        num_heads: H, of each attention layer.
        intermediate_dim: F, the width of the feed-forward layer.
        dropout: the rate for attention weights and for the output of each part.
        activation: of the feed-forward layer.
        normalize_first: whether the norms are at the input of each part instead of at the sums. The block's
            output is then not normalised.
        causal: whether self-attention hides later positions.
        cross_attention: whether the block also attends to a `context`.

    >>> block = keras_tfm.layers.TransformerBlock(num_heads=2, intermediate_dim=32, cross_attention=True)
    >>> block(np.ones((1, 5, 8)), context=np.ones((1, 7, 8))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self,
        num_heads: int,
        intermediate_dim: int,
        dropout: float = 0.1,
        activation: Activation = "relu",
        normalize_first: bool = False,
        causal: bool = False,
        cross_attention: bool = False,
        **kwargs: Any,
    ) -> None:
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
