"""Blocks of two tracks: a sequence, or the sequences of an alignment, beside a table of pairs.

Jumper et al. 2021, "Highly accurate protein structure prediction with AlphaFold", supplement, section 1.6;
Lin et al. 2023, "Evolutionary-scale prediction of atomic-level protein structure with a language model".
"""

from typing import Any

from keras import ops

from keras_tfm.layers.base import Layer, require_sizes
from keras_tfm.layers.blocks import Residual
from keras_tfm.layers.compiler.bits import keeps
from keras_tfm.layers.compiler.products import split
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regularization import Dropout, keep_some


class OuterProductMean(Layer):
    """Pairs from the sequences of an alignment: (B, S, N, D) -> (B, N, N, `pair_dim`). Algorithm 10.

    For columns i and j the outer product of their projections, the mean over the S sequences that have both,
    and a dense layer. A new layer gives 0.

    Args:
        pair_dim: the width of a pair.
        hidden_dim: C, the width of each projection; the outer product has C² numbers.

    >>> keras_tfm.layers.OuterProductMean(pair_dim=6, hidden_dim=4)(np.ones((1, 3, 5, 8))).shape
    TensorShape([1, 5, 5, 6])
    """

    def __init__(self, pair_dim: int, hidden_dim: int, *, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(pair_dim=pair_dim, hidden_dim=hidden_dim)
        self.pair_dim = pair_dim
        self.hidden_dim = hidden_dim
        self.epsilon = epsilon
        self.norm = LayerNormalization(epsilon)
        self.factors = Dense(2 * hidden_dim)
        self.output_projection = Dense(pair_dim, kernel_initializer="zeros", name="output")

    def build(self, x_shape):
        self.norm.build(x_shape)
        self.factors.build(x_shape)
        self.output_projection.build((x_shape[0], x_shape[2], x_shape[2], self.hidden_dim**2))

    def call(self, x, mask=None):
        """(B, S, N, D) -> (B, N, N, pair_dim); `mask` (B, S, N) is False where a sequence has no residue."""
        factors = self.factors(self.norm(x))  # (B, S, N, 2 C)
        present = ops.ones_like(x[..., 0]) if mask is None else ops.cast(mask, x.dtype)
        left, right = split(factors * present[..., None], (self.hidden_dim, self.hidden_dim))
        counts = ops.einsum("bsi,bsj->bij", present, present) + 1e-3  # there may be none
        product = ops.einsum("bsic,bsjd->bijcd", left, right)
        product = ops.reshape(product, (*ops.shape(product)[:3], self.hidden_dim**2))  # (B, N, N, C²)
        return self.output_projection(product) / counts[..., None]

    def compute_output_shape(self, x_shape):
        return (x_shape[0], x_shape[2], x_shape[2], self.pair_dim)


class SequenceToPair(Layer):
    """Pairs from one sequence: (B, N, D) -> (B, N, N, `pair_dim`). Lin et al. 2023, ESMFold.

    A dense layer of the products and the differences of two projections, u of j and v of i: [u_j v_i, u_j -
    v_i]. Padding is not hidden here: what reads the pairs does that.

    >>> keras_tfm.layers.SequenceToPair(pair_dim=6)(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 5, 6])
    """

    def __init__(
        self, pair_dim: int, hidden_dim: int | None = None, epsilon: float = 1e-5, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        require_sizes(pair_dim=pair_dim)
        self.pair_dim = pair_dim
        self.hidden_dim = hidden_dim
        self.width = pair_dim // 2 if hidden_dim is None else hidden_dim
        self.epsilon = epsilon
        self.norm = LayerNormalization(epsilon)
        self.factors = Dense(2 * self.width)
        self.output_projection = Dense(pair_dim, name="output")

    def build(self, x_shape):
        self.norm.build(x_shape)
        self.factors.build(x_shape)
        self.output_projection.build((x_shape[0], x_shape[1], x_shape[1], 2 * self.width))

    def call(self, x, mask=None):
        """(B, N, D) -> (B, N, N, pair_dim)."""
        of_column, of_row = split(self.factors(self.norm(x)), (self.width, self.width))
        of_column, of_row = of_column[:, None], of_row[:, :, None]
        return self.output_projection(ops.concatenate([of_column * of_row, of_column - of_row], axis=-1))

    def compute_output_shape(self, x_shape):
        return (*x_shape[:2], x_shape[1], self.pair_dim)


class Transition(FeedForward):
    """A feed-forward layer whose output is 0 where `mask` is False, and everywhere in a new layer (algorithms
    9 and 15).

    >>> keras_tfm.layers.Transition(16)(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def _new_output(self, width):
        return Dense(width, use_bias=self.use_bias, kernel_initializer="zeros", name="output")

    def call(self, x, mask=None, training=None):  # type: ignore[override]
        """(..., D) -> (..., D); `mask` (...)."""
        y = super().call(x, training)
        return y if mask is None else y * ops.cast(mask, y.dtype)[..., None]


class SharedDropout(Dropout):
    """Dropout of a table (B, R, T, D) that drops a feature of a whole row, or column, at once.

    The choice is shared along `axis`: 1 for all rows, 2 for all columns (Jumper et al. 2021, supplement,
    section 1.11.6).

    >>> keras_tfm.layers.SharedDropout(0.5, axis=1)(np.ones((1, 2, 3, 4))).shape
    TensorShape([1, 2, 3, 4])
    """

    def __init__(self, rate: float, axis: int, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(rate, seed, **kwargs)
        if axis not in (1, 2):
            raise ValueError(f"`axis` must be 1, along rows, or 2, along columns; it is {axis}.")
        self.axis = axis

    def call(self, x, training=False):
        """The shape of `x`; without `training` the result is `x` itself."""
        if not training or not self.rate:
            return x
        shape = list(ops.shape(x))
        shape[self.axis] = 1
        return keep_some(x, keeps(tuple(shape), self.rate, self.seed_generator.next()), rate=self.rate)


class TableResidual(Residual):
    """x + branch(norm(x)) of a table (B, R, T, D), with a `SharedDropout` along `axis` of what is added.

    >>> branch, norm = keras_tfm.layers.Transition(16), keras_tfm.layers.LayerNormalization()
    >>> keras_tfm.layers.TableResidual(branch, norm, dropout=0.1)(np.ones((1, 3, 5, 8))).shape
    TensorShape([1, 3, 5, 8])
    """

    def __init__(self, branch: Any, norm: Any, dropout: float = 0.0, axis: int = 1, **kwargs: Any) -> None:
        super().__init__(branch, norm, "input", **kwargs)  # whose own dropout would drop single values
        self.dropout = dropout
        self.axis = axis
        if dropout:
            self.value_dropout = SharedDropout(dropout, axis, name="dropout")


class TwoTrackBlock(Layer):
    """A block of a sequence, or of an alignment, and of pairs, each of which updates the other.

        sequence (B, N, D) or (B, S, N, D) --> `sequence` with a bias from the pairs --+-->
                                                                                       | `to_pair`
        pair (B, N, N, P) -------------------------------------------------------------+--> `pair` -->

    Args:
        pair_bias: a layer from pairs to the bias of the part `attention` of `sequence`.
        sequence: a `Block`.
        to_pair: a layer from the sequence to what is added to the pairs.
        pair: a `Block`.
        pair_first: whether `to_pair` stands before `sequence`, so that its bias knows of it.

    >>> attention = keras_tfm.layers.Residual(keras_tfm.layers.GatedAttention(num_heads=2))
    >>> triangles = keras_tfm.layers.Residual(keras_tfm.layers.TriangleMultiplication(hidden_dim=4))
    >>> sequence = keras_tfm.layers.Block({"attention": attention})
    >>> pair = keras_tfm.layers.Block({"outgoing": triangles})
    >>> bias, to_pair = keras_tfm.layers.PairBias(2), keras_tfm.layers.SequenceToPair(pair_dim=6)
    >>> block = keras_tfm.layers.TwoTrackBlock(bias, sequence, to_pair, pair)
    >>> [x.shape for x in block(np.ones((1, 5, 8)), np.ones((1, 5, 5, 6)))]
    [TensorShape([1, 5, 8]), TensorShape([1, 5, 5, 6])]
    """

    is_block = True

    def __init__(
        self,
        pair_bias: Any,
        sequence: Any,
        to_pair: Any,
        pair: Any,
        pair_first: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pair_bias = pair_bias
        self.sequence = sequence
        self.to_pair = to_pair
        self.pair = pair
        self.pair_first = pair_first

    def build(self, sequence_shape, pair_shape):
        self.pair_bias.build(pair_shape)
        self.sequence.build(sequence_shape)
        self.to_pair.build(sequence_shape)
        self.pair.build(pair_shape)

    def call(self, sequence, pair, sequence_mask=None, pair_mask=None, training=None):
        """(sequence, pair) in the shapes of both; the masks (B, N) or (B, S, N), and (B, N, N)."""
        if self.pair_first:
            pair = pair + self.to_pair(sequence, mask=sequence_mask)
        tensors = masks_for(self.sequence, sequence_mask)
        tensors["attention"] = {"mask": sequence_mask, "bias": self.pair_bias(pair)}
        sequence = self.sequence(sequence, **tensors, training=training)
        if not self.pair_first:
            pair = pair + self.to_pair(sequence, mask=sequence_mask)
        return sequence, self.pair(pair, **masks_for(self.pair, pair_mask), training=training)

    def compute_output_shape(self, sequence_shape, pair_shape):
        return tuple(sequence_shape), tuple(pair_shape)


def masks_for(block, mask):
    """What the parts of a `Block` that take a mask get: {part: {"mask": mask}}."""
    return {name: {"mask": mask} for name, part in block.parts.items() if part.takes_mask}
