"""What AlphaFold and ESMFold begin with: distances along the chain, features, and what the last pass found.

Jumper et al. 2021, supplement, sections 1.7.1 and 1.10, algorithms 3 to 5 and 32; Evans et al. 2022,
"Protein complex prediction with AlphaFold-Multimer", section 7.3, for chains.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.base import Layer, require_sizes
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.points import squared_distances

FARTHEST = 1e8  # where the last bin of squared distances ends


def sequence_offsets(index, limit):
    """How far apart residues are, i - j, in [-limit, limit], plus `limit`: `index` (B, N) -> (B, N, N)."""
    index = ops.cast(index, "int32")
    return ops.clip(index[:, :, None] - index[:, None], -limit, limit) + limit


def chain_features(index, limit, chains, chain_limit):
    """What is known of a pair by its places in chains, (B, N, N, 2 limit + 3 + 2 chain_limit + 2) of 0 and 1.

    `index` (B, N) numbers residues; `chains` (B, N, 3) are the chain, its entity (chains of one sequence are
    one entity), and which of the entity's copies it is. Residues of other chains, and copies of other
    entities, have a class of their own.
    """
    chains = ops.cast(chains, "int32")
    chain, entity, _ = (chains[..., i, None] == chains[:, None, :, i] for i in range(3))  # (B, N, N)
    offsets = ops.where(chain, sequence_offsets(index, limit), 2 * limit + 1)
    copies = ops.where(entity, sequence_offsets(chains[..., 2], chain_limit), 2 * chain_limit + 1)
    parts = ops.one_hot(offsets, 2 * limit + 2), ops.cast(entity, "float32")[..., None]
    return ops.concatenate([*parts, ops.one_hot(copies, 2 * chain_limit + 2)], axis=-1)


class InputEmbedder(Layer):
    """Features of a protein and of its alignment to vectors: (B, S, N, `msa_dim`) and pairs (B, N, N,
    `pair_dim`). Algorithms 3 and 4.

    Args:
        limit: distances along the chain above it are one class.
        chain_limit: for complexes, the same of the copies of a chain; None for single chains.

    >>> embedder = keras_tfm.models.InputEmbedder(msa_dim=8, pair_dim=6)
    >>> msa, pair = embedder(np.ones((1, 5, 22)), np.ones((1, 3, 5, 49)), np.arange(5)[None])
    >>> msa.shape, pair.shape
    (TensorShape([1, 3, 5, 8]), TensorShape([1, 5, 5, 6]))
    """

    def __init__(
        self, msa_dim: int, pair_dim: int, limit: int = 32, chain_limit: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        require_sizes(msa_dim=msa_dim, pair_dim=pair_dim, limit=limit)
        self.msa_dim = msa_dim
        self.pair_dim = pair_dim
        self.limit = limit
        self.chain_limit = chain_limit
        self.target_row, self.target_column = Dense(pair_dim), Dense(pair_dim)
        self.target, self.msa, self.position = Dense(msa_dim), Dense(msa_dim), Dense(pair_dim)

    def build(self, target_shape, msa_shape, index_shape=None, chains_shape=None):
        for layer in (self.target_row, self.target_column, self.target):
            layer.build(target_shape)
        self.msa.build(msa_shape)
        classes = 2 * self.limit + 1
        if self.chain_limit is not None:
            classes += 2 + 2 * self.chain_limit + 2
        self.position.build((*target_shape[:2], target_shape[1], classes))

    def call(self, target, msa, index, chains=None):
        """`target` (B, N, F), `msa` (B, S, N, F'), `index` (B, N) of residues in the chain, and `chains` (B,
        N, 3), of complexes alone: chain, entity, copy.
        """
        if (chains is None) != (self.chain_limit is None):
            needs = "no `chains`" if self.chain_limit is None else "`chains` (B, N, 3)"
            raise ValueError(f"With `chain_limit` {self.chain_limit} {self.name!r} takes {needs}.")
        if chains is None:
            places = ops.one_hot(sequence_offsets(index, self.limit), 2 * self.limit + 1)
        else:
            places = chain_features(index, self.limit, chains, self.chain_limit)
        pair = self.target_row(target)[:, :, None] + self.target_column(target)[:, None]
        pair = pair + self.position(ops.cast(places, pair.dtype))
        return self.msa(msa) + self.target(target)[:, None], pair

    def compute_output_shape(self, target_shape, msa_shape, *others, **more):
        pair_shape = (*target_shape[:2], target_shape[1], self.pair_dim)
        return (*msa_shape[:3], self.msa_dim), pair_shape


class RecyclingEmbedder(Layer):
    """What is added at the start of a pass for what the last pass gave: (B, N, D) to the first sequence and
    (B, N, N, P) to the pairs. Algorithm 32.

    The squared distance of two residues falls between two edges, which the first and last are of a row of
    `num_bins`; the last bin has no end, and below the first edge there is none.

    Args:
        nearest: the first edge, in angstroms.
        farthest: the last one.

    >>> embedder, x = keras_tfm.models.RecyclingEmbedder(), np.ones((1, 5, 8))
    >>> embedder(x, np.ones((1, 5, 5, 6)), np.ones((1, 5, 3)))[1].shape
    TensorShape([1, 5, 5, 6])
    """

    def __init__(
        self, num_bins: int = 15, nearest: float = 3.25, farthest: float = 20.75, **kwargs: Any
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # angstroms are wrong in lower precision
        require_sizes(num_bins=num_bins)
        self.num_bins = num_bins
        self.nearest = nearest
        self.farthest = farthest
        self.msa_norm, self.pair_norm = LayerNormalization(1e-5), LayerNormalization(1e-5)

    def build(self, row_shape, pair_shape, positions_shape=None):
        self.msa_norm.build(row_shape)
        self.pair_norm.build(pair_shape)
        self.distance = Dense(pair_shape[-1], name="distance")
        self.distance.build((*pair_shape[:-1], self.num_bins))

    def call(self, row, pair, positions):
        """`row` (B, N, D) of the first sequence, `pair` (B, N, N, P) and `positions` (B, N, 3), of CB or, in
        glycine, CA, in angstroms: zeros in the first pass.
        """
        edges = np.linspace(self.nearest, self.farthest, self.num_bins, dtype="float32") ** 2
        squares = squared_distances(positions, positions)[..., None]  # (B, N, N, 1)
        inside = ops.logical_and(squares > edges, squares < np.append(edges[1:], np.float32(FARTHEST)))
        row, pair = (ops.cast(x, self.compute_dtype) for x in (row, pair))
        pair = self.pair_norm(pair)
        return self.msa_norm(row), pair + self.distance(ops.cast(inside, pair.dtype))

    def compute_output_shape(self, row_shape, pair_shape, positions_shape=None):
        return tuple(row_shape), tuple(pair_shape)


class PairPositionTable(Layer):
    """A vector (B, N, N, `dim`) for each distance along the chain, j - i, up to `limit` either way, and one
    for all pairs with padding. Lin et al. 2023, ESMFold.

    >>> keras_tfm.models.PairPositionTable(dim=6)(np.arange(5)[None]).shape
    TensorShape([1, 5, 5, 6])
    """

    def __init__(self, dim: int, limit: int = 32, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(dim=dim, limit=limit)
        self.dim = dim
        self.limit = limit
        self.embedding = keras.layers.Embedding(2 * limit + 2, dim)

    def build(self, index_shape, mask_shape=None):
        self.embedding.build(index_shape)

    def call(self, index, mask=None):
        """`index` (B, N) of residues in the chain and `mask` (B, N), False at padding."""
        rows = 2 * self.limit + 1 - sequence_offsets(index, self.limit)  # j - i + limit + 1
        if mask is not None:
            mask = ops.cast(mask, "bool")
            rows = ops.where(ops.logical_and(mask[:, :, None], mask[:, None]), rows, 0)
        return self.embedding(rows)

    def compute_output_shape(self, index_shape, mask_shape=None):
        return (*index_shape, index_shape[1], self.dim)
