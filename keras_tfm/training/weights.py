"""A model's weights in a safetensors file, by their paths: no code is stored, none is run."""

import collections

import keras
import numpy as np
import safetensors
import safetensors.numpy

from keras_tfm.training.folder import new_file


class WeightsError(ValueError):
    """A weights file that cannot be used: names the file, the weight, what was expected and came."""


def save_weights(model, path):
    """Write every weight of `model` to `path`, whole or not at all."""
    write_tensors({weight.path: weight for weight in _distinct(model)}, path)


def load_weights(model, path):
    """Set every weight of `model` from `path`; on any WeightsError none is changed."""
    weights = {weight.path: weight for weight in _distinct(model)}
    tensors, _ = read_tensors(path)
    for kind, names in (
        ("lacks", weights.keys() - tensors.keys()),
        ("has unknown", tensors.keys() - weights.keys()),
    ):
        if names:
            raise WeightsError(f"{path}: {kind} {', '.join(sorted(names)[:5])}{' …' * (len(names) > 5)}")
    for name, weight in weights.items():
        if tensors[name].shape != tuple(weight.shape):
            raise WeightsError(
                f"{path}: {name} has the shape {tensors[name].shape}, expected {tuple(weight.shape)}"
            )
        if not np.isfinite(tensors[name]).all():
            raise WeightsError(f"{path}: {name} holds values that are not finite")
    for name, weight in weights.items():
        weight.assign(tensors[name])


def write_tensors(tensors, path, metadata=None):
    """Write {name: array or variable} and {key: text} to a safetensors file, whole or not at all."""
    arrays = {
        name: np.asarray(keras.ops.convert_to_numpy(tensor), order="C") for name, tensor in tensors.items()
    }
    with new_file(path) as work:
        safetensors.numpy.save_file(arrays, work, metadata)


def read_tensors(path):
    """Read ({name: array}, {key: text}); WeightsError where the file is not whole."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError:
        raise WeightsError(f"{path}: no such file") from None
    except (safetensors.SafetensorError, OSError) as error:
        raise WeightsError(f"{path}: not a whole safetensors file ({error})") from None


def _distinct(model):
    weights = model.weights
    paths = collections.Counter(weight.path for weight in weights)
    twice = [path for path, count in paths.items() if count > 1]
    if twice:
        raise ValueError(
            f"Weights need distinct paths, give the layers names: {', '.join(twice[:5])} occur twice."
        )
    return weights
