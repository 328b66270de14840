"""What is refused of the tensors that models and layers are called with, by a line that names the argument.

Shapes are compared as far as they are known: a size may be None while a graph is traced.
"""

import keras
import numpy as np
from keras import ops


def every_position(token_ids):
    """0 .. T-1 for each row of (B, T)."""
    return ops.cumsum(ops.ones_like(token_ids), axis=1) - 1


def _every_place(x):
    return ops.ones_like(x[..., 0])


def _every_map(maps):
    return ops.ones_like(maps[:, :, 0, 0, 0])


# {the end of an optional input's name: (the input beside it, the function of that one which is the default)}
OPTIONAL = {
    "padding_mask": ("token_ids", ops.ones_like),
    "segment_ids": ("token_ids", ops.zeros_like),
    "mask_positions": ("token_ids", every_position),
    "video_mask": ("videos", _every_place),
    "pixel_mask": ("images", _every_place),
    "feature_mask": ("features", _every_place),
    "feature_times": ("features", lambda features: -_every_place(features)),
    "frame_mask": ("videos", _every_map),
    "region_mask": ("regions", _every_map),
    "image_mask": ("image_tokens", _every_place),
    "text_mask": ("text_tokens", _every_place),
}


def beside(name):
    """(The name of the input beside an optional one, the default); (None, None) for any other name."""
    for suffix, (other, default) in OPTIONAL.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix) + other, default
    return None, None


def as_integers(ids, name):
    """Ids as integers: integers are returned as they are, whole numbers in float32 or float64 become int32.

    A fraction raises ValueError, naming the argument; while a graph is traced it becomes -1, which lies
    outside every table. Half precision raises too, because it cannot represent every id above 256 or 2,048.
    """
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if "int" in dtype:
        return ids
    whole = ops.cast(ids, "int32")
    is_whole = ops.equal(ops.cast(whole, ids.dtype), ids)
    has_values = hasattr(is_whole, "numpy")  # not while a graph is traced
    if dtype not in ("float32", "float64") or (has_values and not ops.convert_to_numpy(is_whole).all()):
        raise ValueError(
            f"`{name}` must be integers; they are {dtype}. In a `keras.Sequential`, put "
            'keras.Input((None,), dtype="int32") first.'
        )
    return ops.where(is_whole, whole, -1)


def refuse_outside(indices, size, name):
    """Raise ValueError for `indices` of a table that do not lie in [0, size), unless a graph is traced."""
    if ops.is_tensor(indices) and not hasattr(indices, "numpy"):
        return
    values = ops.convert_to_numpy(indices)
    if wrong := values[(values < 0) | (values >= size)].tolist():
        raise ValueError(f"`{name}` must lie in [0, {size:,}); one of them is {wrong[0]:,}.")


def refuse_complex(x, name):
    """Raise ValueError for an array or tensor of complex numbers, of which TensorFlow would drop a part."""
    if "complex" in str(getattr(x, "dtype", "")):
        raise ValueError(f"{name} must be real numbers; they are {keras.backend.standardize_dtype(x.dtype)}.")


def checked_inputs(inputs, expected):
    """The `inputs` of a model, {name: array}, of which `expected` has symbols: ids as integers.

    ValueError for None, complex numbers, ids that are no whole numbers, another rank, and a mask or segments
    of another shape than what they are of.
    """
    inputs = {name: _checked(x, name, expected[name]) for name, x in inputs.items()}
    for name, x in inputs.items():
        other, _ = beside(name)
        has_its_shape = other in inputs and not name.endswith("mask_positions")
        if has_its_shape and None not in (rank_of(x), rank_of(inputs[other])):
            shape = tuple(inputs[other].shape)[: len(x.shape)]
            if not fits(x.shape, shape):
                raise ValueError(
                    f"`{name}` must have the shape {shape}, like `{other}`; it has {tuple(x.shape)}."
                )
    return inputs


def _checked(x, name, symbol):
    if x is None:
        raise ValueError(f"`{name}` must be an array; it is None. Leave out an input that has a default.")
    x = x if hasattr(x, "shape") and hasattr(x, "dtype") else np.asarray(x)
    refuse_complex(x, f"`{name}`")
    rank, expected = rank_of(x), len(symbol.shape)
    # Keras adds and drops a last axis of size 1.
    is_near = (rank == expected - 1 and symbol.shape[-1] == 1) or (rank == expected + 1 and x.shape[-1] == 1)
    if rank not in (None, expected) and not is_near:
        axes = ", ".join("?" if size is None else str(size) for size in symbol.shape)
        raise ValueError(f"`{name}` must have {expected} axes, ({axes}); its shape is {tuple(x.shape)}.")
    if "int" in symbol.dtype and "float" in str(x.dtype) and not isinstance(x, keras.KerasTensor):
        return as_integers(ops.convert_to_tensor(x), name)
    return x


def rank_of(x):
    """The number of axes, None where a graph does not know it."""
    return x.shape.rank if hasattr(x.shape, "rank") else len(x.shape)


def fits(shape, wanted, broadcasts=()):
    """Whether each size in `shape` equals the size in `wanted`, as far as both are known; sizes of the axes
    `broadcasts` may be 1.
    """
    if len(shape) != len(wanted):
        return False
    for axis, (size, other) in enumerate(zip(shape, wanted, strict=True)):
        if None not in (size, other) and size != other and not (size == 1 and axis in broadcasts):
            return False
    return True
