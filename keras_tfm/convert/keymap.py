"""One table a family: our weight's path <-> their key or keys, by transforms that go both ways.

Import and export read the same rows, so what one can do the other can. `{}` stands for a number, a block's:

    *feedforward("block_{}/feedforward", "layer.{}.dense_1", "layer.{}.dense_2")
    *norm("norm", "LayerNorm")
"""

import dataclasses
import re
from collections.abc import Callable

import keras
import numpy as np

from keras_tfm.training.safetensors import CheckpointError
from keras_tfm.training.weights import assign_all


@dataclasses.dataclass(frozen=True)
class Transform:
    """`load` makes our array of theirs, `save(array, count)` their `count` arrays of ours."""

    load: Callable
    save: Callable


AS_IS = Transform(lambda array: array, lambda array, count: [array])
# Several of theirs are one of ours, side by side on the last axis: queries, keys and values.
JOINED = Transform(
    lambda *arrays: np.concatenate(arrays, axis=-1), lambda array, count: np.split(array, count, axis=-1)
)
STRIP = 64  # rows that are transposed at once: they stay in the cache, and all is several times faster


def _transpose(*arrays):
    """The transposed matrices, side by side."""
    width = sum(len(array) for array in arrays)
    joined = np.empty((arrays[0].shape[1], width), np.result_type(*arrays))
    column = 0
    for array in arrays:
        for first in range(0, len(array), STRIP):
            strip = array[first : first + STRIP]
            joined[:, column : column + len(strip)] = strip.T
            column += len(strip)
    return joined


# torch.nn.Linear keeps (out, in), Keras (in, out).
TRANSPOSED = Transform(_transpose, lambda array, count: [part.T for part in np.split(array, count, axis=-1)])


@dataclasses.dataclass(frozen=True)
class Row:
    """The path pattern of a weight, the patterns of the keys it is made of, and how."""

    ours: str
    theirs: tuple[str, ...]
    transform: Transform = AS_IS

    def __post_init__(self):
        if any(pattern.count("{}") != self.ours.count("{}") for pattern in self.theirs):
            raise ValueError(f"{self.ours!r} and {self.theirs} differ in their number of {{}}.")

    def keys(self, path):
        """Their keys for our weight at `path`; None where the row is not about it."""
        match = re.fullmatch(re.escape(self.ours).replace(r"\{\}", r"(\d+)"), path)
        return match and [pattern.format(*match.groups()) for pattern in self.theirs]


def weight(ours, theirs, transform=AS_IS):
    """One row: a weight that is the same in both, or differs by `transform`."""
    return [Row(ours, (theirs,), transform)]


def linear(ours, *theirs):
    """A `Dense` and the `torch.nn.Linear`s it joins."""
    return [
        Row(f"{ours}/kernel", tuple(f"{key}.weight" for key in theirs), TRANSPOSED),
        Row(f"{ours}/bias", tuple(f"{key}.bias" for key in theirs), JOINED),
    ]


def norm(ours, theirs):
    """A `LayerNormalization` and a `torch.nn.LayerNorm`."""
    return [*weight(f"{ours}/gamma", f"{theirs}.weight"), *weight(f"{ours}/beta", f"{theirs}.bias")]


def embedding(ours, theirs):
    """A table of vectors, a row each."""
    return weight(f"{ours}/embeddings", f"{theirs}.weight")


def attention(ours, query, key, value, output):
    """A residual's self-attention and the four `torch.nn.Linear`s of theirs."""
    return [
        *linear(f"{ours}/branch/projections/query_key_value", query, key, value),
        *linear(f"{ours}/branch/output", output),
    ]


def context_attention(ours, query, key, value, output):
    """A residual's cross-attention and the four `torch.nn.Linear`s of theirs."""
    return [
        *linear(f"{ours}/branch/projections/query", query),
        *linear(f"{ours}/branch/projections/key_value", key, value),
        *linear(f"{ours}/branch/output", output),
    ]


def feedforward(ours, hidden, output):
    """A residual's feed-forward layer and the two `torch.nn.Linear`s of theirs."""
    return [*linear(f"{ours}/branch/hidden", hidden), *linear(f"{ours}/branch/output", output)]


def load(model, tensors, rows, path):
    """Set the weights of `model` from `tensors` ({key: array}) by `rows`; returns the keys that were read.

    CheckpointError, which names `path`, and no weight is changed, where a tensor is missing, misshaped, not
    of floating-point numbers or not finite.
    """
    values, read = [], set()
    for variable, row, keys in _pairs(model, rows):
        arrays = [tensors.get(key) for key in keys]
        for key, array in zip(keys, arrays, strict=True):
            if array is None:
                raise CheckpointError(
                    path, key, f"a tensor for {variable.path} {tuple(variable.shape)}", "none"
                )
            _check_part(path, key, array, variable, row)
        values.append((variable, ", ".join(keys), row.transform.load(*arrays)))
        read.update(keys)
    assign_all(path, values)
    return read


def save(model, rows):
    """The weights of `model` by their keys."""
    tensors: dict = {}
    for variable, row, keys in _pairs(model, rows):
        arrays = row.transform.save(keras.ops.convert_to_numpy(variable), len(keys))
        tensors.update(zip(keys, arrays, strict=True))
    return tensors


def _check_part(path, key, array, variable, row):
    """Refuse a part whose shape is not what `save` would write: parts could else join by chance."""
    like = np.broadcast_to(np.float32(0), tuple(variable.shape))
    expected = row.transform.save(like, len(row.theirs))[0].shape
    if array.shape != expected:
        raise CheckpointError(path, key, f"the shape {expected}", f"{array.shape}")


def _pairs(model, rows):
    """(variable, row, their keys) of all weights that learn or are fixed, but not of random generators."""
    for variable in model.weights:
        if not keras.backend.is_float_dtype(variable.dtype):
            continue
        found = [(row, keys) for row in rows if (keys := row.keys(variable.path))]
        if len(found) != 1:
            raise ValueError(f"{variable.path} needs one row in its family's table; it has {len(found)}.")
        yield variable, *found[0]
