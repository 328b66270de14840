"""Tables of pairs (B, N, N, D): row i, column j holds what is known of the edge from i to j.

    outgoing                incoming               edges ik and jk, or ki and kj, update the edge ij, for
    i ----> k <---- j       i <---- k ----> j      all k: the third side of a triangle

Jumper et al. 2021, "Highly accurate protein structure prediction with AlphaFold", supplement, algorithms 7
and 11 to 14. What a layer normalises of its own input is the norm of the `Residual` around it.
"""

from typing import Any

from keras import ops

from keras_tfm.layers.attention.gated import GatedAttention
from keras_tfm.layers.base import Layer, SameShape, require_sizes
from keras_tfm.layers.compiler.products import split
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.masks import out_of_float16
from keras_tfm.layers.normalization import LayerNormalization

GATE = {"activation": "sigmoid", "kernel_initializer": "zeros", "bias_initializer": "ones"}


class PairBias(Layer):
    """A bias for the scores of `num_heads` heads from pairs: (B, N, N, D) -> (B, H, N, N).

    Algorithm 7, line 3, with the norm.

    >>> keras_tfm.layers.PairBias(num_heads=2)(np.ones((1, 5, 5, 8))).shape
    TensorShape([1, 2, 5, 5])
    """

    def __init__(self, num_heads: int, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(num_heads=num_heads)
        self.num_heads = num_heads
        self.epsilon = epsilon
        self.norm = LayerNormalization(epsilon)
        self.projection = Dense(num_heads, use_bias=False)

    def build(self, pair_shape):
        self.norm.build(pair_shape)
        self.projection.build(pair_shape)

    def call(self, pair):
        """(B, N, N, D) -> (B, H, N, N)."""
        return ops.transpose(self.projection(self.norm(pair)), (0, 3, 1, 2))

    def compute_output_shape(self, pair_shape):
        return (pair_shape[0], self.num_heads, *pair_shape[1:3])


class TriangleAttention(SameShape):
    """Gated attention among the edges that start at one node, (B, N, N, D) in and out: edge ij attends to ik
    with a bias from the third side, jk (algorithm 13). In `OnColumns` the edges end at one node (14).

    >>> keras_tfm.layers.TriangleAttention(num_heads=2)(np.ones((1, 5, 5, 8))).shape
    TensorShape([1, 5, 5, 8])
    """

    def __init__(self, num_heads: int, key_dim: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.bias = Dense(num_heads, use_bias=False)
        self.attention = GatedAttention(num_heads, key_dim)

    def build(self, x_shape):
        self.bias.build(x_shape)
        self.attention.build(x_shape)

    def call(self, x, mask=None, training=None):
        """(B, N, N, D) -> (B, N, N, D); `mask` (B, N, N) hides edges."""
        bias = ops.transpose(self.bias(x), (0, 3, 1, 2))  # (B, H, N, N)
        return self.attention(x, mask=mask, bias=bias, training=training)


class TriangleMultiplication(SameShape):
    """Each edge from the products of the other two sides of all its triangles: (B, N, N, D) in and out.

    With a and b gated projections of the edges, `outgoing` sums a_ik b_jk over k (algorithm 11), otherwise
    a_ki b_kj (12); a norm, a dense layer and a gate follow. A new layer gives 0.

    Args:
        hidden_dim: the width of a and of b.
        outgoing: which of the two it is.

    >>> keras_tfm.layers.TriangleMultiplication(hidden_dim=4)(np.ones((1, 5, 5, 8))).shape
    TensorShape([1, 5, 5, 8])
    """

    def __init__(self, hidden_dim: int, outgoing: bool = True, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(hidden_dim=hidden_dim)
        self.hidden_dim = hidden_dim
        self.outgoing = outgoing
        self.epsilon = epsilon
        self.edges = Dense(2 * hidden_dim)
        self.edge_gates = Dense(2 * hidden_dim, **GATE)
        self.norm = LayerNormalization(epsilon)

    def build(self, x_shape):
        dim = x_shape[-1]
        self.gate = Dense(dim, **GATE, name="gate")
        self.output_projection = Dense(dim, kernel_initializer="zeros", name="output")
        for layer in (self.edges, self.edge_gates, self.gate):
            layer.build(x_shape)
        for layer in (self.norm, self.output_projection):
            layer.build((*x_shape[:-1], self.hidden_dim))

    def call(self, x, mask=None):
        """(B, N, N, D) -> (B, N, N, D); `mask` (B, N, N) hides edges."""
        edges = self.edges(x) * self.edge_gates(x)
        if mask is not None:
            edges = edges * ops.cast(mask, edges.dtype)[..., None]
        a, b = split(out_of_float16(edges), (self.hidden_dim, self.hidden_dim))
        y = ops.einsum("bikc,bjkc->bijc" if self.outgoing else "bkic,bkjc->bijc", a, b)
        y = self.norm.call(y)  # `__call__` would cast the sums to float16
        return self.gate(x) * self.output_projection(y)
