"""Attention masks: boolean, True = attend. The rank of a mask says what it means.

    (B, S)                 which keys are not padding          1 1 1 0

    (B or 1, T, S)         one row of keys per query           1 0 0 0
                                                               1 1 0 0
                                                               1 1 1 0   causal, last key padded

    (B or 1, H or 1, T, S) the same for each head

B is the batch size, and T, S and H are the numbers of queries, keys and heads.
"""

import keras
from keras import ops

from keras_tfm.inputs import fits, refuse_complex
from keras_tfm.layers.compiler.fused import fused
from keras_tfm.layers.signatures import Tensor
from keras_tfm.private.keras import get_keras_mask, set_keras_mask

# Half of the lowest float32: far below any score, and adding a score to it does not overflow.
LOWEST = -1.7e38


def causal_mask(
    query_length: int | Tensor, key_length: int | Tensor, offset: int | Tensor = 0, window: int | None = None
) -> Tensor:
    """Query t, at position `offset` + t, sees the keys at positions up to its own: a mask (1, T, S).

    With a `window` it sees the last `window` of them alone, its own included.

    >>> keras_tfm.layers.causal_mask(2, 3, offset=1)[0].numpy().tolist()
    [[True, True, False], [True, True, True]]
    """
    query_positions = offset + ops.arange(query_length, dtype="int32")
    key_positions = ops.arange(key_length, dtype="int32")
    distances = query_positions[:, None] - key_positions[None, :]  # (T, S)
    mask = distances >= 0
    return (mask if window is None else mask & (distances < window))[None]  # (1, T, S)


# The (B, S) mask that Keras carries on a tensor (from `mask_zero`, for example), or None.
key_mask_of = get_keras_mask


def cast_with_mask(x, dtype):
    """`x` in this dtype, with the mask that Keras carries on it, which a cast drops."""
    y = ops.cast(x, dtype)
    if (mask := key_mask_of(x)) is not None:
        set_keras_mask(y, mask)
    return y


def expand_mask(mask, rank=4, name="mask"):
    """A mask of rank 2, 3 or 4, expanded to `rank` (3 or 4) dimensions that broadcast over the scores.

    Raises ValueError, naming the argument, for any other rank and for a floating-point mask: a number to add
    to the scores is a `bias`.
    """
    mask = ops.convert_to_tensor(mask)
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if dtype != "bool" and not dtype.startswith(("int", "uint")):
        raise ValueError(
            f"`{name}` must be boolean (True = attend) or integers 0 and 1; it is {dtype}. "
            "Pass a mask that is added to the scores as `bias`."
        )
    mask = ops.cast(mask, "bool")
    if len(mask.shape) == 2:
        return ops.expand_dims(mask, (1, 2) if rank == 4 else 1)
    if len(mask.shape) == 3 and rank == 4:
        return ops.expand_dims(mask, 1)
    if len(mask.shape) == rank:
        return mask
    raise ValueError(
        f"`{name}` must have the shape (B, S), (B or 1, T, S)"
        f"{' or (B or 1, H or 1, T, S)' if rank == 4 else ''}; it is {tuple(mask.shape)}."
    )


def combine_masks(*masks: Tensor | None, rank: int = 4, name: str = "mask") -> Tensor | None:
    """The masks that are given, combined by AND; None if none is given.

    >>> padding, causal = np.array([[True, False]]), keras_tfm.layers.causal_mask(2, 2)
    >>> keras_tfm.layers.combine_masks(padding, causal).numpy().tolist()
    [[[[True, False], [True, False]]]]
    """
    combined = None
    for mask in masks:
        if mask is not None:
            mask = expand_mask(mask, rank, name)
            combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def fitting(mask, query, key, name="mask"):
    """The combined `mask`, of rank 3 or 4, or None. ValueError unless it fits queries (B, ..., T, K) and keys
    (B, ..., S, K): the axes of the batch, of heads and of queries may have the size 1.
    """
    if mask is None:
        return None
    shape = mask.shape[0], mask.shape[-2], mask.shape[-1]
    wanted = query.shape[0], query.shape[-2], key.shape[-2]
    if not fits(shape, wanted, broadcasts=(0, 1)):
        sizes = "B = {}, T = {} and S = {}".format(*("?" if size is None else size for size in wanted))
        raise ValueError(
            f"`{name}` must have the shape (B, S), (B or 1, T, S) or (B or 1, H or 1, T, S) for {sizes}; "
            f"as one of rank {len(mask.shape)} it has {tuple(mask.shape)}."
        )
    return mask


def padding_mask_of(x, mask, name="mask"):
    """`mask` (B, T) for `x` (B, T, D), combined by AND with the mask that Keras carries on `x`; or None."""
    if mask is not None and not fits(mask.shape, x.shape[:2], broadcasts=(0,)):
        raise ValueError(
            f"`{name}` must have the shape (B, T) of the sequence, {tuple(x.shape[:2])}; it is "
            f"{tuple(mask.shape)}."
        )
    mask = combine_masks(mask, key_mask_of(x), rank=3, name=name)
    return None if mask is None else mask[:, 0]  # (B, T)


def in_float32(x):
    """`x` in float32, or as it is if it is float64. ValueError for complex numbers."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    if dtype.startswith("complex"):
        refuse_complex(x, "The input of a layer")
    # Cast even what is float64 already: the cast turns a variable into a tensor, which custom gradients need.
    return ops.cast(x, dtype if dtype == "float64" else "float32")


def out_of_float16(x):
    """`x` in float32 if it is float16, beyond whose range a sum of products may be; others as they are."""
    return in_float32(x) if keras.backend.standardize_dtype(x.dtype) == "float16" else x


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """The mean of the tokens where `mask` (B, T) is True, in float32 or float64: (B, T, D) -> (B, D).

    Without such a token the result is 0.

    >>> keras_tfm.layers.masked_mean(np.array([[[1.0], [5.0]]]), np.array([[True, False]])).numpy().tolist()
    [[1.0]]
    """
    x = in_float32(x)
    weights = ops.cast(mask, x.dtype)[..., None]
    return ops.sum(x * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1.0)


def masked_max(x, mask):
    """The maximum of each feature over the tokens where `mask` (B, T) is True: (B, T, D) -> (B, D).

    Without such a token the result is 0.
    """
    x, mask = in_float32(x), ops.cast(mask, "bool")[..., None]
    # Keras needs an `initial` value for an empty batch.
    highest = ops.max(ops.where(mask, x, ops.cast(LOWEST, x.dtype)), axis=1, initial=LOWEST)
    return ops.where(ops.any(mask, axis=1), highest, ops.zeros_like(highest))


@fused
def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """The softmax over the last axis, in float32 or float64, with a weight of exactly 0 where `mask` is
    False.

    `mask` broadcasts over `scores`. Each row sums to 1; a row whose keys are all masked is zero, never NaN.

    >>> keras_tfm.layers.masked_softmax(np.array([[2.0, 2.0]]), np.array([[True, False]])).numpy().tolist()
    [[1.0, 0.0]]
    """
    scores = in_float32(scores)
    if mask is not None:
        scores = scores + ops.cast(ops.logical_not(mask), scores.dtype) * LOWEST
    if scores.shape[-1] == 1:  # a single key weighs exp(0) = 1, and Keras would warn
        weights = ops.exp(scores - scores)
    elif len(scores.shape) <= 5:
        weights = ops.softmax(scores)
    else:  # on processors with AVX-512, TensorFlow's kernel refuses more than five axes
        rows = ops.softmax(ops.reshape(scores, (-1, ops.shape(scores)[-1])))  # (N, S)
        weights = ops.reshape(rows, ops.shape(scores))
    return weights if mask is None else weights * ops.cast(mask, weights.dtype)
