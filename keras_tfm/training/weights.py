"""A model's weights in a safetensors file, named by their paths; no code is stored or run."""

import collections
import types
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

from keras_tfm.private.keras import kernel_of, set_value
from keras_tfm.training.folder import Path, new_file
from keras_tfm.training.low_rank import adapted_layers
from keras_tfm.training.safetensors import UNTRAINED, CheckpointError, let_go, read_tensors

BLOCK = 1 << 16  # values, looked at together


def save_weights(model: keras.Model, path: Path, trained: bool = True) -> None:
    """Write all weights of `model` to `path`, completely or not at all; low-rank updates are merged.

    `trained=False` is noted in the file: no epoch of the training has ended yet.

    >>> import tempfile
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keras_tfm.training.save_weights(model, f"{folder}/model.safetensors")
    ...     keras_tfm.training.load_weights(model, f"{folder}/model.safetensors")
    True
    """
    values = _plain(model)
    values |= {kernel_of(layer).path: layer.kernel for layer in adapted_layers(model)}
    write_tensors(values, path, None if trained else UNTRAINED)


def load_weights(model: keras.Model, path: Path) -> bool:
    """Set all weights of `model` from `path`, and low-rank updates to zero; after a CheckpointError none is
    changed.

    Returns whether the weights are trained: False if no epoch of their training had ended.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> keras_tfm.training.save_weights(model, "model.safetensors", trained=False)
    >>> keras_tfm.training.load_weights(model, "model.safetensors")
    False
    """
    weights = _plain(model)
    tensors, metadata = read_tensors(path)
    for key in sorted(tensors.keys() - weights.keys()):
        raise CheckpointError(path, key, "no such weight", f"one of shape {tensors[key].shape}")
    assign_all(path, [(weight, key, tensors.get(key)) for key, weight in weights.items()], tensors)
    for layer in adapted_layers(model):
        layer.lora_kernel_b.assign(keras.ops.zeros_like(layer.lora_kernel_b))
    return not UNTRAINED.items() <= metadata.items()


def assign_all(
    path: Path,
    values: Sequence[tuple[keras.Variable, str, Any]],
    tensors: Mapping[str, np.ndarray] = types.MappingProxyType({}),
) -> None:
    """Set variables from `values`, (variable, name in the file, array or None, or a function that makes the
    array): all of them or, after an error, none. No more than one variable's array is in memory, of what
    `tensors` show of a file too.

    CheckpointError if an array is missing, has another shape or kind of number, or is not finite.
    """
    for weight, key, value in values:
        array = value() if callable(value) else value
        shape, is_float = tuple(weight.shape), keras.backend.is_float_dtype(weight.dtype)
        if array is None:
            raise CheckpointError(path, key, f"a weight of shape {shape}", "none")
        if array.shape != shape:
            raise CheckpointError(path, key, f"the shape {shape}", f"{array.shape}")
        if is_float != (array.dtype.kind == "f") or not (is_float or array.dtype == weight.dtype):
            raise CheckpointError(path, key, f"numbers like {weight.dtype}", f"{array.dtype}")
        if is_float and not are_finite(array):
            raise CheckpointError(path, key, "finite values", "some that are not")
        let_go(tensors.values())
    for weight, _, value in values:
        set_value(weight, value() if callable(value) else value)
        let_go(tensors.values())


def write_tensors(
    tensors: Mapping[str, Any],
    path: Path,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write {name: array or variable} and {key: text} to a safetensors file, completely or not at all. No
    copy of them is made in memory.

    OSError if it cannot be written, for example on a full disk.
    """
    arrays = {name: np.asarray(shared_array(tensor), order="C") for name, tensor in tensors.items()}
    with new_file(path) as work:
        try:
            safetensors.numpy.save_file(arrays, work, metadata)
        except safetensors.SafetensorError as error:
            raise OSError(f"{path}: {error}") from error


def shared_array(x: Any) -> np.ndarray:
    """The numbers of a variable, tensor or array, to be read at once: on a CPU they are not copied, unless
    NumPy itself lacks their type, as it does bfloat16.
    """
    if isinstance(x, np.ndarray):
        return x
    tensor = tf.convert_to_tensor(x)
    if np.dtype(tensor.dtype.as_numpy_dtype).isbuiltin != 1:
        return np.asarray(tensor.numpy())  # a scalar's is no array
    return np.asarray(memoryview(tensor))


def are_finite(array: np.ndarray) -> bool:
    """Whether no number is NaN or infinite, without a mask as large as the array."""
    flat = array.reshape(-1)
    return all(np.isfinite(flat[i : i + BLOCK]).all() for i in range(0, flat.size, BLOCK))


def by_path(model: keras.Model) -> dict[str, keras.Variable]:
    """{path: weight} of all weights."""
    return {weight.path: weight for weight in model.weights}


def assign_by_path(model: keras.Model, given: Mapping[str, Any]) -> None:
    """Set the weights of `model` for whose path `given` has a variable or an array; the others stay.
    ValueError for weights in 8 bits where the model has floats, and for floats where it has 8 bits.
    """
    for path, weight in by_path(model).items():
        if path not in given:
            continue
        kinds = (keras.backend.standardize_dtype(x.dtype) for x in (weight, given[path]))
        if len(set(map(keras.backend.is_float_dtype, kinds))) > 1:
            raise ValueError(
                "Weights in 8 bits cannot be part of a model in floats, nor be resized: take the model that "
                "they come from, and quantise the result."
            )
        weight.assign(given[path])


def _plain(model: keras.Model) -> dict[str, keras.Variable]:
    """{path: weight} of all weights except low-rank updates."""
    updates = {
        id(weight) for layer in adapted_layers(model) for weight in (layer.lora_kernel_a, layer.lora_kernel_b)
    }
    return {weight.path: weight for weight in _distinct(model) if id(weight) not in updates}


def _distinct(model: keras.Model) -> list[keras.Variable]:
    weights = model.weights
    paths = collections.Counter(weight.path for weight in weights)
    twice = [path for path, count in paths.items() if count > 1]
    if twice:
        raise ValueError(
            f"Weights need distinct paths: give the layers names. These occur twice: {', '.join(twice[:5])}."
        )
    return weights
