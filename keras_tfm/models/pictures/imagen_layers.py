"""The parts of Imagen's U-Nets: attention by cosines, the text as tokens and as a vector, the time.

As in the re-creation lucidrains/imagen-pytorch: the paper (Saharia et al. 2022) has no code.
"""

import math
from typing import Any

import keras
from keras import ops

from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.projections import HeadProjection
from keras_tfm.layers.base import Layer, SameShape
from keras_tfm.layers.blocks import Residual
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.grid import to_map
from keras_tfm.layers.masks import in_float32, masked_softmax
from keras_tfm.layers.normalization import LayerNormalization, unit
from keras_tfm.layers.patches import flatten_map

EPSILON = 1e-5
SCALE = 8.0  # of the cosines of queries and keys


def scaling_norm(name=None):
    """Layer normalisation that scales and does not shift."""
    return keras.layers.LayerNormalization(epsilon=EPSILON, center=False, name=name)


class CosineProjections(Layer):
    """Queries and keys of length 1, scaled by learned factors, and values: projections for `Attention`.

    Args:
        num_key_value_heads: how many heads keys and values have, 1 or `num_heads`.
        has_null: whether a learned key and value stand before all others, so that a query may attend to
            nothing.
        joins: whether keys and values of the query itself stand before the context's, which are normalised
            first; else the context's, if there is one, are the only ones.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        num_key_value_heads: int | None = None,
        has_null: bool = True,
        joins: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.key_dim = self.key_width = self.value_width = key_dim
        self.num_key_value_heads = num_key_value_heads
        self.has_null = has_null
        self.joins = joins

    def build(self, query_shape, value_shape=None, key_shape=None):
        heads, width = self.num_key_value_heads or self.num_heads, self.key_dim
        self.query = HeadProjection(self.num_heads, (width,), use_bias=False, name="query")
        self.query.build(query_shape)
        self.key_value = HeadProjection(heads, (width, width), use_bias=False, name="key_value")
        self.key_value.build(query_shape if value_shape is None or self.joins else value_shape)
        self.context_norm: Any = None
        self.context_key_value: Any = None
        if self.joins and value_shape is not None:
            self.context_norm = LayerNormalization(EPSILON, name="context_norm")
            self.context_key_value = HeadProjection(heads, (width, width), name="context_key_value")
            for layer in (self.context_norm, self.context_key_value):
                layer.build(value_shape)
        self.query_scale = self.add_weight((width,), "ones", name="query_scale")
        self.key_scale = self.add_weight((width,), "ones", name="key_scale")
        self.null = self.add_weight((2, width), "random_normal", name="null") if self.has_null else None

    def project(self, query, value=None, key=None):
        """Heads (B, H, T, K), (B, G, S, K) and (B, G, S, K) of `query` (B, T, D) and a context `value`."""
        parts = [self.key_value(query if value is None or self.joins else value)]
        if self.context_key_value is not None:
            parts.append(self.context_key_value(self.context_norm(value)))
        if self.null is not None:
            like = parts[0][0][:, :, :1]  # (B, G, 1, K)
            null = ops.cast(self.null, like.dtype)
            parts.insert(0, [ops.zeros_like(like) + null[i] for i in (0, 1)])
        keys, values = (ops.concatenate(heads, axis=2) for heads in zip(*parts, strict=True))
        (query,) = self.query(query)
        return [_scaled(query, self.query_scale), _scaled(keys, self.key_scale), values]

    def project_query(self, query):
        """The queries alone, [(B, H, T, K)]."""
        return [_scaled(self.query(query)[0], self.query_scale)]


def _scaled(x, scale):
    """Vectors (..., K) of length 1, then scaled."""
    return ops.cast(unit(x) * in_float32(scale), x.dtype)


def cosine_attention(dim, num_heads, key_dim, norm, name=None, **options):
    """Attention (B, T, D) -> (B, T, D) by cosines, whose output passes a dense layer and a `norm`."""
    projections = CosineProjections(num_heads, key_dim, **options)
    output = Chain([Dense(dim, use_bias=False), norm])
    return Attention(projections, scale=SCALE, output_layer=output, name=name)


def feedforward(dim, multiple=2, name=None):
    """A residual of two dense layers, each behind a norm."""
    layers = [Dense(multiple * dim, "gelu", use_bias=False), scaling_norm(), Dense(dim, use_bias=False)]
    return Residual(Chain(layers), scaling_norm(), normalize="input", name=name)


class ContextAttention(SameShape):
    """The cells of a map attend to a context, in a residual: (B, height, width, D) and (B, S, Dc) -> (B,
    height, width, D).
    """

    def __init__(self, num_heads: int, key_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.key_dim = key_dim

    def build(self, x_shape, context_shape):
        batch_size, height, width, dim = x_shape
        attention = cosine_attention(dim, self.num_heads, self.key_dim, scaling_norm())
        self.residual = Residual(attention, scaling_norm(), normalize="input", name="residual")
        self.residual.build((batch_size, height * width, dim), context_shape)

    def call(self, x, context, training=None):
        """A map and a context -> a map."""
        return to_map(self.residual(flatten_map(x), context, training=training), x.shape[1:3])


class GlobalContext(SameShape):
    """A factor in (0, 1) for each channel of a map, made of a mean of its cells by learned weights: (B,
    height, width, D) in and out (Cao et al. 2019, "GCNet", with a gate instead of a sum).
    """

    def build(self, x_shape):
        batch_size, height, width, dim = x_shape
        self.score = Dense(1, name="score")
        self.hidden, self.gate = Dense(max(3, dim // 2), "silu", name="hidden"), Dense(dim, name="gate")
        self.score.build((batch_size, height * width, dim))
        self.hidden.build((batch_size, dim))
        self.gate.build((batch_size, self.hidden.units))

    def call(self, x):
        """(B, height, width, D) -> (B, height, width, D)."""
        cells = flatten_map(x)  # (B, N, D)
        weights = masked_softmax(self.score(cells)[..., 0])[..., None]  # (B, N, 1)
        mean = ops.sum(ops.cast(weights, cells.dtype) * cells, axis=1)  # (B, D)
        return x * ops.sigmoid(self.gate(self.hidden(mean)))[:, None, None]


class LearnedSines(Layer):
    """Times with sines and cosines of learned frequencies: (B,) -> (B, 1 + `dim`)."""

    def __init__(self, dim: int, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)  # lower precision does not distinguish times
        self.dim = dim

    def build(self, times_shape):
        self.frequencies = self.add_weight((self.dim // 2,), "random_normal", name="frequencies")

    def call(self, times):
        """(B,) -> (B, 1 + dim)."""
        times = ops.cast(times, "float32")[:, None]
        angles = times * ops.cast(self.frequencies, "float32") * (2 * math.pi)  # (B, dim / 2)
        return ops.cast(
            ops.concatenate([times, ops.sin(angles), ops.cos(angles)], axis=-1), self.compute_dtype
        )

    def compute_output_shape(self, times_shape):
        return (times_shape[0], 1 + 2 * (self.dim // 2))


class TextTokens(Layer):
    """The vectors of a text, projected and padded to one length: (B, S, Dt) and a mask (B, S) -> (B,
    `max_length`, `dim`). Padding is replaced by learned vectors, so that a text without any token is "no
    text"; what is longer is cut off.
    """

    def __init__(self, dim: int, max_length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = dim
        self.max_length = max_length

    def build(self, text_shape, mask_shape=None):
        self.projection = Dense(self.dim, name="projection")
        self.projection.build(text_shape)
        self.null = self.add_weight((self.max_length, self.dim), "random_normal", name="null")

    def call(self, text, mask):
        """(B, S, Dt), (B, S) -> (B, max_length, dim)."""
        tokens = self.projection(text[:, : self.max_length])
        missing = self.max_length - ops.shape(tokens)[1]
        tokens = ops.pad(tokens, ((0, 0), (0, missing), (0, 0)))
        shown = ops.pad(ops.cast(mask[:, : self.max_length], "int32"), ((0, 0), (0, missing)))
        shape = ops.shape(tokens)
        tokens = ops.where(shown[..., None] > 0, tokens, ops.cast(self.null, tokens.dtype))
        return ops.reshape(tokens, (shape[0], self.max_length, self.dim))

    def compute_output_shape(self, text_shape, mask_shape=None):
        return (text_shape[0], self.max_length, self.dim)


class TextVector(Layer):
    """The mean of a text's tokens through two dense layers: (B, T, D) and a mask (B, S) -> (B, `dim`). A text
    without any token has a learned vector instead.
    """

    def __init__(self, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = dim

    def build(self, tokens_shape, mask_shape=None):
        mean_shape = (tokens_shape[0], tokens_shape[2])
        self.norm = LayerNormalization(EPSILON, name="norm")
        self.hidden, self.output_layer = (
            Dense(self.dim, "silu", name="hidden"),
            Dense(self.dim, name="output"),
        )
        self.norm.build(mean_shape)
        self.hidden.build(mean_shape)
        self.output_layer.build((tokens_shape[0], self.dim))
        self.null = self.add_weight((self.dim,), "random_normal", name="null")

    def call(self, tokens, mask):
        """(B, T, D), (B, S) -> (B, dim)."""
        vector = self.output_layer(self.hidden(self.norm(ops.mean(tokens, axis=1))))
        return ops.where(ops.any(mask, axis=1, keepdims=True), vector, ops.cast(self.null, vector.dtype))

    def compute_output_shape(self, tokens_shape, mask_shape=None):
        return (tokens_shape[0], self.dim)


class Resampler(Layer):
    """Few latent vectors that attend to many tokens and to themselves: (B, T, D) -> (B, `num_latents` +
    `num_means`, D); `num_means` of them begin as functions of the tokens' mean (Alayrac et al. 2022,
    "Flamingo", section 3.1.1).
    """

    def __init__(
        self,
        num_latents: int,
        num_heads: int,
        key_dim: int,
        num_means: int = 4,
        num_layers: int = 2,
        multiple: int = 4,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_latents = num_latents
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.num_means = num_means
        self.num_layers = num_layers
        self.multiple = multiple

    def build(self, tokens_shape):
        batch_size, length, dim = tokens_shape
        latents_shape = (batch_size, self.num_latents + self.num_means, dim)
        self.latents = self.add_weight((self.num_latents, dim), "random_normal", name="latents")
        self.position = self.add_weight((length, dim), "random_normal", name="position")
        self.mean_norm = scaling_norm("mean_norm")
        self.mean_projection = Dense(self.num_means * dim, name="mean_projection")
        for layer in (self.mean_norm, self.mean_projection):
            layer.build((batch_size, dim))
        context_shape = (batch_size, length + latents_shape[1], dim)
        self.token_norms, self.latent_norms, self.attentions, self.feedforwards = [], [], [], []
        for i in range(self.num_layers):
            norm, options = LayerNormalization(EPSILON), {"has_null": False, "name": f"attention_{i}"}
            attention = cosine_attention(dim, self.num_heads, self.key_dim, norm, **options)
            self.attentions.append(attention)
            self.token_norms.append(LayerNormalization(EPSILON, name=f"token_norm_{i}"))
            self.latent_norms.append(LayerNormalization(EPSILON, name=f"latent_norm_{i}"))
            self.feedforwards.append(feedforward(dim, self.multiple, name=f"feedforward_{i}"))
            attention.build(latents_shape, context_shape)
            self.token_norms[-1].build(tokens_shape)
            self.latent_norms[-1].build(latents_shape)
            self.feedforwards[-1].build(latents_shape)

    def call(self, tokens):
        """(B, T, D) -> (B, num_latents + num_means, D)."""
        dim = tokens.shape[-1]
        means = self.mean_projection(self.mean_norm(ops.mean(tokens, axis=1)))
        means = ops.reshape(means, (-1, self.num_means, dim))  # (B, num_means, D)
        shape = (ops.shape(tokens)[0], self.num_latents, dim)
        latents = ops.broadcast_to(ops.cast(self.latents, means.dtype), shape)
        x = ops.concatenate([means, latents], axis=1)
        tokens = tokens + ops.cast(self.position, tokens.dtype)
        layers = zip(self.token_norms, self.latent_norms, self.attentions, self.feedforwards, strict=True)
        for token_norm, latent_norm, attend, forward in layers:
            y = latent_norm(x)
            x = x + attend(y, ops.concatenate([token_norm(tokens), y], axis=1))
            x = forward(x)
        return x

    def compute_output_shape(self, tokens_shape):
        return (tokens_shape[0], self.num_latents + self.num_means, tokens_shape[2])
