"""One vector for the tokens of a text: the poolings of sentence-transformers, by its names.

Reimers and Gurevych 2019, "Sentence-BERT", section 3; Muennighoff 2022, "SGPT", section 3.1, for
"weightedmean" and "lasttoken". B is the batch size, T the number of tokens and D their width.
"""

from collections.abc import Callable, Collection

from keras import ops

from keras_tfm.layers.masks import in_float32, masked_max, masked_mean
from keras_tfm.layers.signatures import Tensor


def pooled_tokens(hidden: Tensor, mask: Tensor, poolings: Collection[str]) -> Tensor:
    """The tokens of `hidden` (B, T, D) where `mask` (B, T) is True, as one vector by each of `poolings`.

    The vectors of several poolings stand side by side, in the order of `TOKEN_POOLINGS`: (B, D times their
    number). Texts begin at the first position. Raises ValueError for an unknown pooling, and for none.

    >>> hidden, mask = np.array([[[1.0], [2.0], [9.0]]]), np.array([[True, True, False]])
    >>> keras_tfm.heads.pooled_tokens(hidden, mask, ["cls", "lasttoken", "mean"]).numpy().tolist()
    [[1.0, 1.5, 2.0]]
    """
    if not poolings or set(poolings) - TOKEN_POOLINGS.keys():
        raise ValueError(f"`poolings` must be some of {', '.join(TOKEN_POOLINGS)}; they are {poolings}.")
    hidden = in_float32(hidden)
    vectors = [pool(hidden, mask) for name, pool in TOKEN_POOLINGS.items() if name in poolings]
    return ops.concatenate(vectors, axis=-1)


def _first(hidden, mask):
    return ops.take(hidden, 0, axis=1)


def _sum_by_root_of_length(hidden, mask):
    weights = ops.cast(mask, hidden.dtype)[..., None]
    count = ops.maximum(ops.sum(weights, axis=1), 1.0)
    return ops.sum(hidden * weights, axis=1) / ops.sqrt(count)


def _mean_by_position(hidden, mask):
    """Each token counts as often as its position says, from 1."""
    weights = ops.cast(mask, hidden.dtype) * (_positions(hidden) + 1.0)
    total = ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1.0)
    return ops.sum(hidden * weights[..., None], axis=1) / total


def _last(hidden, mask):
    count = ops.sum(ops.cast(mask, hidden.dtype), axis=1, keepdims=True)
    is_last = ops.equal(_positions(hidden), count - 1.0)  # (B, T)
    return ops.sum(hidden * ops.cast(is_last, hidden.dtype)[..., None], axis=1)


def _positions(hidden):
    return ops.arange(ops.shape(hidden)[1], dtype=hidden.dtype)[None]  # (1, T)


TOKEN_POOLINGS: dict[str, Callable] = {
    "cls": _first,
    "max": masked_max,
    "mean": masked_mean,
    "mean_sqrt_len_tokens": _sum_by_root_of_length,
    "weightedmean": _mean_by_position,
    "lasttoken": _last,
}
