"""One table per family: the path of our weight and their key or keys, with transforms for both directions.

Import and export read the same rows. `{}` stands for a number, for example a block's:

    *feedforward("block_{}/feedforward", "layer.{}.dense_1", "layer.{}.dense_2")
    *norm("norm", "LayerNorm")
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable

import keras
import numpy as np

from keras_tfm.private.keras import checking_variables
from keras_tfm.training.safetensors import CheckpointError
from keras_tfm.training.weights import assign_all


@dataclasses.dataclass(frozen=True)
class Transform:
    """`load` turns their arrays into ours; `save(array, count)` turns ours into their `count` arrays."""

    load: Callable
    save: Callable


AS_IS = Transform(lambda array: array, lambda array, count: [array])
# Several arrays of theirs, such as queries, keys and values, are concatenated on the last axis of ours.
JOINED = Transform(
    lambda *arrays: np.concatenate(arrays, axis=-1), lambda array, count: np.split(array, count, axis=-1)
)
STRIP = 64  # rows transposed at a time: they stay in the cache, which is several times faster


def _transpose(*arrays):
    """The transposed matrices, concatenated on the last axis."""
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
# A 1 x 1 torch.nn.Conv2d is a linear layer of (out, in, 1, 1).
POINTWISE = Transform(
    lambda *arrays: _transpose(*(array[:, :, 0, 0] for array in arrays)),
    lambda array, count: [part[..., None, None] for part in TRANSPOSED.save(array, count)],
)
# torch.nn.Conv2d keeps (out, in / groups, height, width), Keras (height, width, in / groups, out).
CONVOLVED = Transform(
    lambda array: array.transpose(2, 3, 1, 0), lambda array, count: [array.transpose(3, 2, 0, 1)]
)


def depthwise_kernel(multiplier=1):
    """torch.nn.Conv2d keeps (in multiplier, 1, height, width), Keras (height, width, in, multiplier)."""

    def load_kernel(array):
        outputs, _, height, width = array.shape
        return array.transpose(2, 3, 1, 0).reshape(height, width, outputs // multiplier, multiplier)

    def save_kernel(array, _):
        height, width = array.shape[:2]
        return [array.reshape(height, width, 1, -1).transpose(3, 2, 0, 1)]

    return Transform(load_kernel, save_kernel)


def reordered(transform, order):
    """`transform`, after their arrays' first axis is brought into this `order`."""
    order = np.asarray(order)
    back = np.argsort(order)
    return Transform(
        lambda *arrays: transform.load(*(array[order] for array in arrays)),
        lambda array, count: [array[back] for array in transform.save(array, count)],
    )


def parts_first(num_heads, *widths):
    """The order that changes "all parts of head 0, of head 1, ..." to "first parts of all heads, second ...".

    The parts of a head have these `widths`.
    """
    entries = np.arange(num_heads * sum(widths)).reshape(num_heads, sum(widths))
    return np.concatenate([x.ravel() for x in np.split(entries, np.cumsum(widths)[:-1], axis=1)])


@dataclasses.dataclass(frozen=True)
class Row:
    """The path pattern of our weight, the patterns of their keys, and the transform.

    If their tensor holds several of our weights, `part` (first, last, count) is the section of its first axis
    from `first` / `count` to `last` / `count`: (1, 3, 3) are the keys and values of a common projection.
    """

    ours: str
    theirs: tuple[str, ...]
    transform: Transform = AS_IS
    part: tuple[int, int, int] | None = None

    def __post_init__(self):
        if any(pattern.count("{}") != self.ours.count("{}") for pattern in self.theirs):
            raise ValueError(f"{self.ours!r} and {self.theirs} differ in their number of {{}}.")

    def keys(self, path):
        """Their keys for our weight at `path`, or None if the row is for other weights."""
        match = re.fullmatch(re.escape(self.ours).replace(r"\{\}", r"(\d+)"), path)
        return match and [pattern.format(*match.groups()) for pattern in self.theirs]


def weight(ours, theirs, transform=AS_IS):
    """One row: a weight that is equal on both sides, or differs by `transform`."""
    return [Row(ours, (theirs,), transform)]


def linear(ours, *theirs, part=None, transform=TRANSPOSED, widths=None):
    """A `Dense` layer, and the `torch.nn.Linear`s that it joins or of which it is a `part`.

    With the transform `POINTWISE` theirs are 1 x 1 `torch.nn.Conv2d`s. The layers that it joins have these
    `widths`, by default all the same.
    """
    kernel, bias = (transform, JOINED) if widths is None else (transposed(widths), joined(widths))
    return [
        Row(f"{ours}/kernel", tuple(f"{key}.weight" for key in theirs), kernel, part),
        Row(f"{ours}/bias", tuple(f"{key}.bias" for key in theirs), bias, part),
    ]


def transposed(widths):
    """`TRANSPOSED` for matrices of different `widths`."""
    return Transform(_transpose, lambda array, _: [part.T for part in _sections(array, widths)])


def joined(widths):
    """`JOINED` for arrays of different `widths`."""
    return Transform(JOINED.load, lambda array, _: _sections(array, widths))


def _sections(array, widths):
    return np.split(array, np.cumsum(widths)[:-1], axis=-1)


def patches(ours, theirs, patch_size):
    """A `PatchEmbedding` and the `torch.nn.Conv2d` of such patches, whose kernel is (D, C, height, width)."""
    height, width = patch_size if isinstance(patch_size, tuple) else (patch_size, patch_size)

    def load(kernel):
        return kernel.transpose(2, 3, 1, 0).reshape(-1, len(kernel))  # (height width C, D)

    def save(kernel, _):
        return [kernel.reshape(height, width, -1, kernel.shape[1]).transpose(3, 2, 0, 1)]

    return [
        *weight(f"{ours}/projection/kernel", f"{theirs}.weight", Transform(load, save)),
        *weight(f"{ours}/projection/bias", f"{theirs}.bias"),
    ]


def norm(ours, theirs):
    """A `LayerNormalization` and a `torch.nn.LayerNorm`."""
    return [*weight(f"{ours}/gamma", f"{theirs}.weight"), *weight(f"{ours}/beta", f"{theirs}.bias")]


def batch_norm(ours, theirs, order=None):
    """A `BatchNormalization` and a `torch.nn.BatchNorm`, its features in another `order` if given."""
    names = {
        "gamma": "weight",
        "beta": "bias",
        "moving_mean": "running_mean",
        "moving_variance": "running_var",
    }
    transform = AS_IS if order is None else reordered(AS_IS, order)
    return [Row(f"{ours}/{name}", (f"{theirs}.{key}",), transform) for name, key in names.items()]


def batch_counts(tensors):
    """The counts of batches, 0, that `torch.nn.BatchNorm` stores with the running statistics in `tensors`.

    They have no effect on the outputs.
    """
    ends = (".running_mean", ".num_batches_tracked")
    return {key.replace(*ends): np.zeros((), "int64") for key in tensors if key.endswith(ends[0])}


def convolution(ours, theirs, transform=CONVOLVED):
    """A `Convolution`'s kernel and bias and a `torch.nn.Conv2d`; of a depthwise one the `transform` is
    `depthwise_kernel()`.
    """
    return [
        *weight(f"{ours}/convolution/kernel", f"{theirs}.weight", transform),
        *weight(f"{ours}/convolution/bias", f"{theirs}.bias"),
    ]


def embedding(ours, theirs):
    """An embedding table."""
    return weight(f"{ours}/embeddings", f"{theirs}.weight")


def attention(ours, query, key, value, output, widths=None):
    """A residual's self-attention and the four `torch.nn.Linear`s of theirs; `widths` are the widths of
    queries, keys and values where they differ.
    """
    return [
        *linear(f"{ours}/branch/projections/query_key_value", query, key, value, widths=widths),
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


def renamed(rows, ours="", theirs=""):
    """The rows with prefixes before our paths and before their keys."""
    return [
        dataclasses.replace(row, ours=ours + row.ours, theirs=tuple(theirs + key for key in row.theirs))
        for row in rows
    ]


def load(model, tensors, rows, path):
    """Set the weights of `model` from `tensors` ({key: array}) by `rows`; returns the keys that were read.

    Raises CheckpointError, which names `path`, and changes no weight if a tensor is missing, has another
    shape, or does not consist of finite floating-point numbers.
    """
    values, read = [], set()
    for variable, row, keys in _pairs(model, rows):
        arrays = [_part_of(array, row.part) for array in _arrays_for(variable, row, keys, tensors, path)]
        values.append((variable, ", ".join(keys), functools.partial(row.transform.load, *arrays)))
        read.update(keys)
    assign_all(path, values, tensors)
    return read


def checked_by(tensors, rows, path):
    """A scope to make a model in, as `checking_variables`: each weight is compared with its `tensors`, and
    gets no value.

    Raises CheckpointError, as `load` does, for the first weight whose tensor has another shape, or is missing
    though the weight is larger than all tensors. A smaller one may lack it: a detector makes the last norm of
    its backbone, and leaves it out.
    """
    largest = max((tensor.size for tensor in tensors.values()), default=0)

    def check(variable):
        is_small = math.prod(variable.shape) <= largest
        for row, keys in _rows_of(variable, rows):
            if not (is_small and any(key not in tensors for key in keys)):
                _arrays_for(variable, row, keys, tensors, path)

    return checking_variables(check)


def read_state(model, weights, rows, unread_keys=(), path="the state"):
    """Set the weights of `model` from `weights` ({key: array}) by `rows`.

    Raises CheckpointError if one is missing, or unused and not in `unread_keys`.
    """
    check_unread(weights, load(model, weights, rows, path), unread_keys, path)


def check_unread(weights, read, unread_keys, path):
    """Raise CheckpointError for the first of the `weights` that is neither `read` nor in `unread_keys`."""
    for key in sorted(weights.keys() - read - {*unread_keys}):
        raise CheckpointError(path, key, "no such weight", f"one of shape {weights[key].shape}")


def save(model, rows):
    """The weights of `model`, {their key: array}."""
    tensors: dict = {}
    parts: dict = {}
    for variable, row, keys in _pairs(model, rows):
        arrays = row.transform.save(keras.ops.convert_to_numpy(variable), len(keys))
        for key, array in zip(keys, arrays, strict=True):
            if row.part:
                parts.setdefault(key, {})[row.part[0]] = array
            else:
                tensors[key] = array
    joined = {key: np.concatenate([found[i] for i in sorted(found)]) for key, found in parts.items()}
    return tensors | joined


def _arrays_for(variable, row, keys, tensors, path):
    """Their arrays for `variable`; CheckpointError if one is missing or has another shape."""
    arrays = [tensors.get(key) for key in keys]
    for i, (key, array) in enumerate(zip(keys, arrays, strict=True)):
        if array is None:
            raise CheckpointError(path, key, f"a tensor for {variable.path} {tuple(variable.shape)}", "none")
        _check_part(path, key, array, variable, row, i)
    return arrays


def _part_of(array, part):
    """The `part` of their array that a row reads."""
    if part is None:
        return array
    first, last, count = part
    size = len(array) // count
    return array[first * size : last * size]


def _check_part(path, key, array, variable, row, number):
    """Raise CheckpointError if part `number` of a row has another shape than `save` would write.

    Without this check, parts of wrong shapes could fit together by chance.
    """
    like = np.broadcast_to(np.float32(0), tuple(variable.shape))
    expected = row.transform.save(like, len(row.theirs))[number].shape
    if row.part:
        first, last, count = row.part
        expected = (expected[0] * count // (last - first), *expected[1:])
    if array.shape != expected:
        raise CheckpointError(path, key, f"the shape {expected}", f"{array.shape}")


def _pairs(model, rows):
    """(variable, row, their keys) of all weights, except the states of random generators."""
    for variable in model.weights:
        if keras.backend.is_float_dtype(variable.dtype):
            found = _rows_of(variable, rows)
            if len(found) != 1:
                raise ValueError(f"{variable.path} needs one row in its family's table; it has {len(found)}.")
            yield variable, *found[0]


def _rows_of(variable, rows):
    """(row, their keys) of each row for `variable`."""
    return [(row, keys) for row in rows if (keys := row.keys(variable.path))]
