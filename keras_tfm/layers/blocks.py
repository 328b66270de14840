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
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.cache import BlockCache
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.masks import cast_with_mask, combine_masks, key_mask_of
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regularization import Dropout, StochasticDepth
from keras_tfm.layers.signatures import Activation

PLACES = ("input", "sum", "output")


class Residual(SameShape):
    """x + branch(x), in the shape of x.

    Args:
        branch: a layer whose output has the shape of its input.
        norm: a normalisation layer, or None.
        normalize: what the norm is applied to: "input" of the branch, "output" of the branch, or the "sum".
        dropout: the rate at which values of the branch's output are dropped in training.
        stochastic_depth: the rate at which the whole branch is dropped, example by example.
        layer_scale: the first value of a learned factor for each feature of the branch's output (Touvron et
            al. 2021, "Going Deeper with Image Transformers"); None for no factor.
        causal: whether the branch, an attention layer, hides later positions.
        output_norm: a second norm, of the branch's output.

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
        causal: bool = False,
        output_norm: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # the branch casts what it does not need exactly
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
        self.causal = causal
        self.output_norm = output_norm
        self.value_dropout = Dropout(dropout, name="dropout") if dropout else None
        self.example_dropout = (
            StochasticDepth(stochastic_depth, name="stochastic_depth") if stochastic_depth else None
        )

    def build(self, x_shape, context_shape=None):
        self.branch.build(*(shape for shape in (x_shape, context_shape) if shape is not None))
        if self.norm is not None:
            self.norm.build(x_shape)
        if self.output_norm is not None:
            self.output_norm.build(x_shape)
        if self.layer_scale is not None:
            initial = keras.initializers.Constant(self.layer_scale)
            self.scale = self.add_weight((x_shape[-1],), initial, name="scale")

    def call(self, x, context=None, training=None, **tensors):
        """Calls the branch on `x`, on `context` if given, and with all `tensors` that are not None, by the
        names of the branch's arguments, in their own dtypes.
        """
        if x.dtype != self.compute_dtype:
            x = cast_with_mask(x, self.compute_dtype)
        y = self.before(x)
        inputs = (y,) if context is None else (y, context)
        options = {"causal": True} if self.causal else {}
        for name, value in tensors.items():
            if value is not None:
                options[name] = value
        return self.after(x, self.branch(*inputs, **options, training=training), training)

    def step(self, x, cache, mask=None, bias=None):
        """(Output (B, T, D), new cache) of causal self-attention at the next T positions."""
        y, cache = self.branch.step(self.before(x), cache, mask, bias)
        return self.after(x, y), cache

    def step_context(self, x, cache, positions):
        """The output (B, T, D) of cross-attention at the next T `positions`."""
        return self.after(x, self.branch.step_context(self.before(x), cache, positions))

    def before(self, x):
        """The input of the branch: `x`, normalised where the norm is at the input."""
        return self.norm(x) if self.norm is not None and self.normalize == "input" else x

    def after(self, x, y, training=False):
        """The residual's output, given `y`, the output of the branch."""
        if self.norm is not None and self.normalize == "output":
            y = self.norm(y)
        if self.output_norm is not None:
            y = self.output_norm(y)
        if self.layer_scale is not None:
            y = y * ops.cast(self.scale, y.dtype)
        if training:
            for layer in (self.value_dropout, self.example_dropout):
                y = y if layer is None else layer(y, training=True)
        x = x + ops.cast(y, x.dtype)
        return self.norm(x) if self.norm is not None and self.normalize == "sum" else x

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)


def residuals(dropout=0.0, epsilon=1e-6, norm=LayerNormalization, *, normalize_first=False, **rates):
    """A function that wraps a branch in a `Residual` with a norm of its own, for the equal parts of a block.

    With `normalize_first` the norm is at the branch's input, otherwise at the sum. `rates` are further
    arguments of all residuals: `stochastic_depth`, `layer_scale`.
    """
    place: Literal["input", "sum"] = "input" if normalize_first else "sum"
    return lambda branch, **options: Residual(branch, norm(epsilon), place, dropout, **rates, **options)


class Block(SameShape):
    """Residuals in a row: (B, T, D), or a map, in and out.

    `parts` are {name: a `Residual`, or another layer that keeps the shape} in the order in which they run;
    one that is None is left out. A part is the attribute of its name, by which `call` hands it its tensors.
    Parts that decode are `Residual`s called "attention", causal self-attention, and "context_attention",
    cross-attention.

    >>> part, attention = keras_tfm.layers.Residual, keras_tfm.layers.MultiHeadAttention(2)
    >>> feedforward = part(keras_tfm.layers.FeedForward(16))
    >>> block = keras_tfm.layers.Block({"attention": part(attention), "feedforward": feedforward})
    >>> block(np.ones((1, 5, 8)), attention={"mask": np.array([[True, True, True, False, False]])}).shape
    TensorShape([1, 5, 8])
    """

    is_block = True  # read by `rematerialize`, and where learning rates or freezing depend on depth
    attention: Any = None
    context_attention: Any = None
    feedforward: Any = None

    def __init__(self, parts: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)  # the parts cast what they do not need exactly
        parts = {name: part for name, part in parts.items() if part is not None}
        for name, part in parts.items():
            setattr(self, name, part)
        self.parts = parts

    def build(self, x_shape, tensors_shape=None):
        for name, part in self.parts.items():
            context_shape = (tensors_shape or {}).get(name, {}).get("context")
            if name == "context_attention" and context_shape is None:
                raise ValueError(f"{self.name!r} has cross-attention: call it with a `context` (B, S, D).")
            part.build(x_shape, *(() if context_shape is None else (context_shape,)))

    def call(self, x, training=None, **tensors):
        """The output of the last part, in the shape of `x`.

        `tensors` are {part: what it gets beside x, by the names of its branch's arguments}, each a tensor or
        None: `attention={"mask": mask, "bias": bias}, context_attention={"context": context}`.
        """
        if unknown := tensors.keys() - self.parts.keys():
            names = ", ".join(map(repr, self.parts))
            raise ValueError(f"{self.name!r} has the parts {names}; it is called with {sorted(unknown)}.")
        if x.dtype != self.compute_dtype:
            x = cast_with_mask(x, self.compute_dtype)
        for name, part in self.parts.items():
            x = part(x, **tensors.get(name, {}), training=training)
        return x

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
        attention = cache.attention
        for name, part in self.parts.items():
            if name == "attention":
                x, attention = part.step(x, attention, mask, bias)
            elif name == "context_attention":
                positions = cache.attention.index + ops.arange(ops.shape(x)[1], dtype="int32")
                x = part.step_context(x, cache.context, positions)
            else:
                x = part(x, mask=mask if part.takes_mask else None)
        return x, BlockCache(attention, cache.context)


def block_of(part, name=None, causal=False, **branches):
    """A `Block` of the `branches` that are not None, each in the residual that `part` makes of it.

    With `causal` the branch "attention" hides later positions.
    """
    options = {"attention": {"causal": True}} if causal else {}
    parts = {key: part(x, **options.get(key, {})) for key, x in branches.items() if x is not None}
    return Block(parts, name=name)


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
        part = residuals(dropout, normalize_first=normalize_first)

        def attention(**options):
            return part(MultiHeadAttention(num_heads, dropout=dropout), **options)

        parts = {
            "attention": attention(causal=causal),
            "context_attention": attention() if cross_attention else None,
            "feedforward": part(FeedForward(intermediate_dim, activation)),
        }
        super().__init__(parts, **kwargs)
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.activation = activation
        self.normalize_first = normalize_first
        self.causal = causal
        self.cross_attention = cross_attention

    def build(self, x_shape, context_shape=None):
        super().build(x_shape, {"context_attention": {"context": context_shape}})

    def call(  # type: ignore[override]
        self, x, context=None, mask=None, context_mask=None, bias=None, training=None
    ):
        """(B, T, D) -> (B, T, D), attending to `context` (B, S, D) too if there is cross-attention.

        `mask` is for self-attention, `context_mask` for the context; both are described in
        `keras_tfm.layers.masks` and combined by AND with the masks that Keras carries on the tensors. `bias`
        is added to the scores of self-attention.
        """
        tensors = {"attention": {"mask": mask, "bias": bias}}
        if self.cross_attention:
            context_mask = combine_masks(context_mask, name="context_mask")  # refused by the name it has here
            tensors["context_attention"] = {"context": context, "mask": context_mask}
        return super().call(x, training, **tensors)

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)
