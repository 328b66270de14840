"""Folders appear whole or not at all; weights are all set or none."""

import resource

import keras
import numpy as np
import pytest

from keras_tfm.training.folder import new_file, new_folder
from keras_tfm.training.safetensors import CheckpointError, read_tensors
from keras_tfm.training.weights import load_weights, save_weights, write_tensors


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "a") as work:
        (work / "file").write_text("half")
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_a_folder_is_replaced_only_when_asked_and_only_when_whole(tmp_path):
    with new_folder(tmp_path / "a") as work:
        (work / "file").write_text("first")
    with pytest.raises(FileExistsError, match="exists already"), new_folder(tmp_path / "a"):
        pass
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "a", overwrite=True) as work:
        raise ZeroDivisionError
    assert (tmp_path / "a" / "file").read_text() == "first"
    with new_folder(tmp_path / "a", overwrite=True) as work:
        (work / "other").write_text("second")
    assert names(tmp_path) == ["a"] and names(tmp_path / "a") == ["other"]


def test_a_file_that_fails_keeps_the_earlier_one(tmp_path):
    (tmp_path / "file").write_text("first")
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "file") as work:
        work.write_text("half")
        raise ZeroDivisionError
    assert names(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "first"


def model():
    inputs = keras.Input((3,))
    return keras.Model(inputs, keras.layers.Dense(2, name="dense")(inputs))


def test_weights_are_kept_bit_by_bit(tmp_path):
    first, second = model(), model()
    save_weights(first, tmp_path / "weights")
    load_weights(second, tmp_path / "weights")
    for a, b in zip(first.weights, second.weights, strict=True):
        np.testing.assert_array_equal(a, b)


KERNEL, BIAS = np.ones((3, 2), "float32"), np.ones(2, "float32")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"kernel": KERNEL}, r"dense/bias: expected a weight of shape \(2,\), got none"),
        ({"kernel": KERNEL, "bias": BIAS, "more": BIAS}, "dense/more: expected no such weight"),
        ({"kernel": KERNEL.T, "bias": BIAS}, r"dense/kernel: expected the shape \(3, 2\), got \(2, 3\)"),
        ({"kernel": KERNEL, "bias": BIAS * np.nan}, "dense/bias: expected finite values"),
        ({"kernel": KERNEL, "bias": BIAS.astype("int32")}, "dense/bias: expected numbers like float32"),
    ],
)
def test_wrong_weights_change_nothing(tensors, message, tmp_path):
    write_tensors({f"dense/{name}": tensor for name, tensor in tensors.items()}, tmp_path / "weights")
    target = model()
    before = target.get_weights()
    with pytest.raises(CheckpointError, match=message):
        load_weights(target, tmp_path / "weights")
    for a, b in zip(before, target.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_paths_must_differ(tmp_path):
    inputs = keras.Input((2,))
    twice = keras.layers.Dense(2, name="same")(keras.layers.Dense(2, name="same_")(inputs))
    ambiguous = keras.Model(inputs, twice)
    for weight in ambiguous.weights:
        weight._path = "one"
    with pytest.raises(ValueError, match=r"distinct paths.*one"):
        save_weights(ambiguous, tmp_path / "weights")


def test_transposed_tensors_are_written_as_they_look(tmp_path):
    write_tensors({"transposed": KERNEL.T}, tmp_path / "file")
    np.testing.assert_array_equal(read_tensors(tmp_path / "file")[0]["transposed"], KERNEL.T, strict=True)


def test_a_file_that_cannot_be_written_whole_is_an_os_error_and_not_there(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        with pytest.raises(OSError, match=r"model.safetensors: .*File too large"):
            write_tensors({"x": np.zeros(1_000, "float32")}, tmp_path / "model.safetensors")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())
