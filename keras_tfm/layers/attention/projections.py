"""The first and the last stage of attention: from tokens to heads, and from heads back to tokens."""

import math
from collections.abc import Sequence
from typing import Any

from keras import ops

from keras_tfm.inputs import refuse_complex
from keras_tfm.layers.base import Layer, copy_of
from keras_tfm.layers.compiler.products import multiply, split
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.signatures import Initializer

PARTS = ("query", "key", "value")


class HeadProjections(Layer):
    """Linear projections of tokens to the queries, keys and values of `num_heads` heads.

    Self-attention, `project(x)`, uses one matrix product for all three. `project(x, context)` uses one for
    the queries and one for the keys and values of the context. `project(x, value, key)` uses three. The
    first build fixes which form is used.

    Args:
        num_heads: H, the number of heads.
        key_dim: K, the width of a head's queries and keys. By default the queries' width divided by
            `num_heads`, so that the number of weights does not depend on the number of heads.
        value_dim: Kv, the width of a head's values; by default `key_dim`.
        use_bias: True or False for all three, or the names of the projections that have a bias, such as
            ("query", "value"); cross-attention takes no names but `()`, for none.
        num_key_value_heads: G, the number of heads of keys and values, each for H / G neighbouring heads of
            queries (Ainslie et al. 2023, "GQA"); by default H.

    >>> projections = keras_tfm.layers.HeadProjections(num_heads=2)
    >>> projections.build((None, 5, 8))
    >>> query, key, value = projections.project(np.ones((1, 5, 8)))
    >>> query.shape
    TensorShape([1, 2, 5, 4])
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        use_bias: bool | Sequence[str] = True,
        kernel_initializer: Initializer = "glorot_uniform",
        num_key_value_heads: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, size in (("num_heads", num_heads), ("key_dim", key_dim), ("value_dim", value_dim)):
            if size is not None and size < 1:
                or_none = "" if name == "num_heads" else ", or None"
                raise ValueError(f"`{name}` must be at least 1{or_none}; it is {size}.")
        if not isinstance(use_bias, bool) and not {*use_bias} <= {*PARTS}:
            raise ValueError(
                f"`use_bias` must be a boolean, or some of the names {', '.join(PARTS)}; it is {use_bias}."
            )
        if num_key_value_heads is not None and (num_key_value_heads < 1 or num_heads % num_key_value_heads):
            raise ValueError(
                f"`num_key_value_heads` must divide `num_heads`, {num_heads}; it is {num_key_value_heads}."
            )
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.num_key_value_heads = num_key_value_heads

    def build(self, query_shape, value_shape=None, key_shape=None):
        width = query_shape[-1]
        if self.key_dim is None and width % self.num_heads:
            raise ValueError(
                f"`num_heads` must divide the queries' width, {width}, unless `key_dim` is given; "
                f"it is {self.num_heads}."
            )
        self.key_width = self.key_dim or width // self.num_heads
        self.value_width = self.value_dim or self.key_width
        self.form = form_of(value_shape, key_shape)
        self.is_self_attention = value_shape is None and key_shape is None
        if self.is_self_attention:
            widths = (self.key_width, self.key_width, self.value_width)
            self.query_key_value = self._heads("query_key_value", query_shape, PARTS, widths)
            parts = zip(PARTS, self.query_key_value.heads, widths, strict=True)
            self.biases = [
                self.add_weight((heads * width,), "zeros", name=f"{part}_bias")
                if not isinstance(self.use_bias, bool) and part in self.use_bias
                else None
                for part, heads, width in parts
            ]
            return
        if self.use_bias and self.use_bias is not True:
            raise ValueError(
                f"`use_bias` must be a boolean in cross-attention, not names of parts; it is {self.use_bias}."
            )
        self.query = self._heads("query", query_shape, ("query",), (self.key_width,))
        self.key_value = None
        if key_shape is None:
            self.key_value = self._heads(
                "key_value", value_shape, ("key", "value"), (self.key_width, self.value_width)
            )
        else:
            self.key = self._heads("key", key_shape, ("key",), (self.key_width,))
            self.value = self._heads("value", value_shape or key_shape, ("value",), (self.value_width,))

    def _heads(self, name, input_shape, parts, widths):
        others = self.num_key_value_heads or self.num_heads
        projection = HeadProjection(
            tuple(self.num_heads if part == "query" else others for part in parts),
            widths,
            use_bias=self.use_bias is True,
            kernel_initializer=copy_of(self.kernel_initializer),
            name=name,
        )
        projection.build(input_shape)
        return projection

    def project(self, query, value=None, key=None):
        """Heads (B, H, T, K), (B, G, S, K) and (B, G, S, Kv) of `query` (B, T, D), `value` and `key`, (B, S,
        D).
        """
        if not self.is_self_attention or value is not None or key is not None:
            self._require_form(value, key)
            return [*self.project_query(query), *self.project_context(value, key)]
        heads = self.query_key_value(query)
        if isinstance(self.use_bias, bool):
            return heads
        return [
            x if bias is None else x + ops.reshape(ops.cast(bias, x.dtype), (-1, 1, x.shape[-1]))
            for x, bias in zip(heads, self.biases, strict=True)
        ]

    def project_query(self, query):
        """The queries alone, [(B, H, T, K)], where keys and values come from another sequence."""
        return self.query(query)

    def project_context(self, value, key=None):
        """The keys and values alone, [(B, G, S, K), (B, G, S, Kv)]."""
        self._require_form(value, key)
        if self.key_value is not None:
            return self.key_value(value)
        return [*self.key(key), *self.value(key if value is None else value)]

    def _require_form(self, value, key):
        if (form := form_of(value, key)) != self.form:
            raise ValueError(f"{self.name!r} was built for {self.form}; it is called for {form}.")


def form_of(value, key):
    """What attention with these arguments is, in words."""
    if value is None and key is None:
        return "self-attention, `layer(x)`"
    return f"cross-attention, `layer(x, context{'' if key is None else ', key'})`"


class HeadProjection(Dense):
    """One matrix product to heads of several widths: (B, T, D) -> [(B, heads, T, width), ...].

    `heads` is a number for all parts, or one for each.

    The bias is added to the heads of each part. Its gradient is then a plain sum. Adding it before the split
    would have the gradients of the parts concatenated first, which XLA compiles to slow code on CPUs; adding
    it to the parts before their heads are split takes a training step 2 % longer there.
    """

    def __init__(self, heads, widths, **kwargs):
        heads = (heads,) * len(widths) if isinstance(heads, int) else tuple(heads)
        sizes = tuple(map(math.prod, zip(heads, widths, strict=True)))
        super().__init__(sum(sizes), **kwargs)
        self.heads = heads
        self.widths = tuple(widths)
        self.sizes = sizes  # of the parts, on the last axis of the kernel

    def call(self, x, training=None):
        if "complex" in str(x.dtype):
            refuse_complex(x, f"The input of {self.path!r}")
        heads = self._split(multiply(x, self.kernel))
        if self.bias is not None:
            biases = split(self.bias, self.sizes)
            for part, (bias, width) in enumerate(zip(biases, self.widths, strict=True)):
                heads[part] += ops.reshape(bias, (-1, 1, width))
        return heads

    def quantized_call(self, *args, **kwargs):
        return self._split(super().quantized_call(*args, **kwargs))

    def compute_output_shape(self, input_shape):
        batch_size, length, _ = input_shape
        parts = zip(self.heads, self.widths, strict=True)
        return [(batch_size, heads, length, width) for heads, width in parts]

    def _split(self, x):
        parts = split(x, self.sizes)
        for part, columns in enumerate(parts):
            parts[part] = split_heads(columns, self.heads[part])
        return parts


def split_heads(x, num_heads):
    """(B, T, H K) -> (B, H, T, K)."""
    batch_size, length, width = ops.shape(x) if None in x.shape else x.shape  # `ops.shape` is an operation
    x = ops.reshape(x, (batch_size, length, num_heads, width // num_heads))
    return ops.transpose(x, (0, 2, 1, 3))  # (B, H, T, K)


def join_heads(heads):
    """(B, H, T, K) -> (B, T, H K)."""
    _, num_heads, _, width = heads.shape
    heads = ops.transpose(heads, (0, 2, 1, 3))  # (B, T, H, K)
    shape = ops.shape(heads) if None in heads.shape else heads.shape
    return ops.reshape(heads, (*shape[:2], num_heads * width))  # (B, T, H K)
