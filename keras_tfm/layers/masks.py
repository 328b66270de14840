"""Masks: boolean, True = attend; the rank alone says what a mask is.

(B, S)             hides padding keys          1 1 1 0
(B or 1, T, S)     a row of keys a query       1 0 0 0
(B or 1, H|1, T, S)  the same for each head    1 1 0 0
                                               1 1 1 0   <- causal, last key padded
"""

import keras
from keras import ops

from keras_tfm.private.keras import get_keras_mask

# Half of the lowest float32: far below any score, and its sum with one does not overflow.
LOWEST = -1.7e38


def causal_mask(query_length, key_length, offset=0):
    """Query t, at position `offset + t`, sees the keys at positions up to its own: (1, T, S)."""
    query_positions = offset + ops.arange(query_length, dtype="int32")
    key_positions = ops.arange(key_length, dtype="int32")
    return (key_positions[None, :] <= query_positions[:, None])[None]  # (1, T, S)


def key_mask_of(tensor):
    """The (B, S) mask that Keras carries on `tensor` (`mask_zero`), or None."""
    return get_keras_mask(tensor)


def expand_mask(mask, rank=4, name="mask"):
    """Bring a mask of rank 2, 3 or 4 to `rank` (3 or 4) dimensions that broadcast over scores.

    Raises ValueError, naming the argument, for another rank or a floating-point mask (an additive
    one is a `bias`).
    """
    mask = ops.convert_to_tensor(mask)
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if dtype != "bool" and not dtype.startswith(("int", "uint")):
        raise ValueError(
            f"`{name}` must be boolean, True = attend, or 0/1 integers; it is {dtype}. "
            "An additive mask is passed as `bias`."
        )
    mask = ops.cast(mask, "bool")
    if len(mask.shape) == 2:
        return mask[:, None, None, :] if rank == 4 else mask[:, None, :]
    if len(mask.shape) == 3 and rank == 4:
        return mask[:, None]
    if len(mask.shape) == rank:
        return mask
    raise ValueError(
        f"`{name}` must have the shape (B, S), (B or 1, T, S)"
        f"{' or (B or 1, H or 1, T, S)' if rank == 4 else ''}; it is {tuple(mask.shape)}."
    )


def combine_masks(*masks, rank=4, name="mask"):
    """AND the masks that are given, or None where none is."""
    combined = None
    for mask in masks:
        if mask is not None:
            mask = expand_mask(mask, rank, name)
            combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def padding_mask_of(x, mask, name="mask"):
    """`mask` (B, T) of `x` (B, T, D), ANDed with the one that Keras carries on `x`, or None."""
    if mask is not None and len(mask.shape) != 2:
        raise ValueError(f"`{name}` must have the shape (B, T) of the sequence; it is {tuple(mask.shape)}.")
    mask = combine_masks(mask, key_mask_of(x), rank=3, name=name)
    return None if mask is None else mask[:, 0]  # (B, T)


def tokens_of(mask):
    """Which tokens are no padding (B or 1, T): a self-attention's `mask` of rank 4 shows them themselves."""
    mask = ops.any(mask, axis=1)  # (B or 1, T or 1, S)
    return mask[:, 0] if mask.shape[1] == 1 else ops.diagonal(mask, axis1=1, axis2=2)


def in_float32(x):
    """`x` in float32 at least."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    # A cast reads a variable, also one of float64 already: a custom gradient takes tensors alone.
    return ops.cast(x, dtype if dtype == "float64" else "float32")


def masked_mean(x, mask):
    """The mean of what `mask` (B, T) shows of x, in float32 at least: (B, T, D) -> (B, D), 0 of nothing."""
    x = in_float32(x)
    weights = ops.cast(mask, x.dtype)[..., None]
    return ops.sum(x * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1.0)


def masked_max(x, mask):
    """The maximum, for each feature, of what `mask` (B, T) shows of x: (B, T, D) -> (B, D), 0 of nothing."""
    x, mask = in_float32(x), ops.cast(mask, "bool")[..., None]
    # With an `initial` value Keras takes an empty batch too.
    highest = ops.max(ops.where(mask, x, ops.cast(LOWEST, x.dtype)), axis=1, initial=LOWEST)
    return ops.where(ops.any(mask, axis=1), highest, ops.zeros_like(highest))


def masked_softmax(scores, mask=None):
    """Softmax over the last axis in float32 at least: masked keys weigh exactly 0, rows sum to 1.

    A row with nothing to attend to is all zeros, never NaN. `mask` broadcasts over `scores`.
    """
    scores = in_float32(scores)
    if mask is not None:
        scores = scores + ops.cast(ops.where(mask, 0.0, LOWEST), scores.dtype)
    # One key weighs exp(0): Keras warns of a softmax over an axis of size 1.
    weights = ops.exp(scores - scores) if scores.shape[-1] == 1 else ops.softmax(scores)
    return weights if mask is None else weights * ops.cast(mask, weights.dtype)
