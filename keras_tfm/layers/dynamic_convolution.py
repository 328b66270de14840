"""Convolution of a region by weights that are made of its query: dynamic interaction.

Sun et al. 2021, "Sparse R-CNN: End-to-End Object Detection with Learnable Proposals", section 3.3; with ELU,
Hu et al. 2021, "ISTR: End-to-End Instance Segmentation with Transformers".
"""

from typing import Any

from keras import ops

from keras_tfm.layers.base import SameShape, require_sizes
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.signatures import Activation


class DynamicConvolution(SameShape):
    """What each query finds in a region of its own: (B, N, D) and (B, N, P, D) -> (B, N, D).

    A dense layer of the query gives two matrices, D x K and K x D, which multiply the features of the P
    places one after the other; a dense layer joins the places. A norm and the activation follow each of the
    three products.

    Args:
        hidden_dim: K, the width between the two matrices.
        activation: a name.
        epsilon: of the norms.

    >>> layer = keras_tfm.layers.DynamicConvolution(hidden_dim=4)
    >>> layer(np.ones((1, 5, 8)), np.ones((1, 5, 9, 8))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self, hidden_dim: int, activation: Activation = "elu", epsilon: float = 1e-5, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        require_sizes(hidden_dim=hidden_dim)
        self.hidden_dim = hidden_dim
        self.activation = activation
        self.epsilon = epsilon
        self.function = activation_of(activation)
        self.hidden_norm = LayerNormalization(epsilon)
        self.place_norm = LayerNormalization(epsilon)
        self.output_norm = LayerNormalization(epsilon)

    def build(self, x_shape, context_shape):
        if len(context_shape) != 4 or context_shape[-1] != x_shape[-1] or context_shape[2] is None:
            raise ValueError(
                f"`context` must have the shape (B, N, P, {x_shape[-1]}), P places of each of N regions; "
                f"it is {tuple(context_shape)}."
            )
        dim, num_places = x_shape[-1], context_shape[2]
        self.matrices = Dense(2 * dim * self.hidden_dim, name="matrices")
        self.matrices.build(x_shape)
        self.output_projection = Dense(dim, name="output")
        self.output_projection.build((*x_shape[:2], num_places * dim))
        self.hidden_norm.build((*context_shape[:-1], self.hidden_dim))
        self.place_norm.build(context_shape)
        self.output_norm.build(x_shape)

    def call(self, x, context):
        """`x` (B, N, D), `context` (B, N, P, D), the regions -> (B, N, D)."""
        dim, (batch_size, count, num_places) = x.shape[-1], ops.shape(context)[:3]
        first, second = ops.split(self.matrices(x), 2, axis=-1)
        first = ops.reshape(first, (batch_size, count, dim, self.hidden_dim))  # (B, N, D, K)
        second = ops.reshape(second, (batch_size, count, self.hidden_dim, dim))  # (B, N, K, D)
        y = self.function(self.hidden_norm(ops.einsum("bnpd,bndk->bnpk", context, first)))
        y = self.function(self.place_norm(ops.einsum("bnpk,bnkd->bnpd", y, second)))
        y = self.output_projection(ops.reshape(y, (batch_size, count, num_places * dim)))
        return self.function(self.output_norm(y))
