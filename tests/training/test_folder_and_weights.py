"""Folders appear whole or not at all; weights are all set or none."""

import json
import os
import re
import resource
import tracemalloc

import keras
import numpy as np
import pytest

from keras_tfm.training.callbacks import BestWeights
from keras_tfm.training.folder import new_file, new_folder
from keras_tfm.training.safetensors import CheckpointError, read_tensors
from keras_tfm.training.store import CheckpointFolder
from keras_tfm.training.weights import load_weights, save_weights, write_tensors

OURS = json.dumps({"keras_tfm": "0.1"})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "a") as work:
        (work / "file").write_text("half")
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_a_folder_is_replaced_only_when_asked_and_only_when_whole(tmp_path):
    with new_folder(tmp_path / "a") as work:
        (work / "config.json").write_text(OURS)
        (work / "metrics.csv").write_text("first")
    with pytest.raises(FileExistsError, match="exists already"), new_folder(tmp_path / "a"):
        pass
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "a", overwrite=True) as work:
        raise ZeroDivisionError
    assert (tmp_path / "a" / "metrics.csv").read_text() == "first"
    with new_folder(tmp_path / "a", overwrite=True) as work:
        (work / "other").write_text("second")
    assert names(tmp_path) == ["a"] and names(tmp_path / "a") == ["other"]


def fill(folder, files):
    """Write {path in the folder: text}; a text that begins with "->" is a link."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(text.removeprefix("->")) if text.startswith("->") else path.write_text(text)


RUN = {
    "config.json": OURS,
    "model.safetensors": "",
    "tokenizer.vocab.txt": "",
    "checkpoints/.lock": "",
    "checkpoints/step-00000004/state.json": "{}",
    "checkpoints/.step-00000008/worker-0.index": "",  # training was killed there
    ".model.safetensors.123": "",
    "metrics.csv": "",
    "logs/train/events.out.tfevents.1": "",
}
SERVED = {"saved_model.pb": "", "variables/variables.index": "", "assets/pieces.model": ""}


@pytest.mark.parametrize(
    ("files", "foreign"),
    [
        ({}, None),
        (RUN, None),
        (SERVED | {"assets.extra/keras_tfm.json": OURS}, None),
        ({"config.json": OURS, "model.safetensors": "", "tokenizer.json": ""}, None),  # for transformers
        ({"config.json": OURS, "preprocessor_config.json": ""}, None),
        ({"thesis.tex": "years of work"}, "thesis.tex"),
        (RUN | {"notes.txt": ""}, "notes.txt"),
        (RUN | {"logs/thesis.tex": ""}, "logs/thesis.tex"),
        (RUN | {"tokenizer.json": "->../elsewhere"}, "tokenizer.json"),
        (SERVED, "assets/pieces.model, saved_model.pb, variables/variables.index"),  # somebody else's
        ({"config.json": "{}", "model.safetensors": ""}, "config.json, model.safetensors"),
        ({"config.json": "[" * 100_000}, "config.json"),
    ],
)
def test_only_what_the_package_wrote_is_replaced(files, foreign, tmp_path):
    (tmp_path / "a").mkdir()
    fill(tmp_path / "a", files)
    if foreign is None:
        with new_folder(tmp_path / "a", overwrite=True) as work:
            (work / "new").write_text("")
        assert names(tmp_path / "a") == ["new"]
        return
    with (
        pytest.raises(FileExistsError, match=f"a holds files that keras_tfm did not write.*: {foreign}"),
        new_folder(tmp_path / "a", overwrite=True),
    ):
        pass
    assert all(os.path.lexists(tmp_path / "a" / name) for name in files)


@pytest.mark.parametrize("name", ["[1]", "*", "a?", "\udcff", "x" * 255, "é" * 127])
def test_a_name_is_taken_as_it_is_and_written_under_one_that_tensorflow_takes(name, tmp_path):
    with new_folder(tmp_path / name) as work:
        plain = work.name
        with new_file(work / name) as file:
            file.write_text("whole")
    assert re.fullmatch(r"[\w.-]{1,200}", plain, re.ASCII)
    assert (tmp_path / name / name).read_text() == "whole" and len(names(tmp_path / name)) == 1


def test_only_a_run_replaces_a_run(tmp_path):
    (tmp_path / "a").mkdir()
    fill(tmp_path / "a", RUN | {"config.json": json.dumps({"keras_tfm": "0.1", "task": "classify"})})
    message = "a is a RUN, which only another RUN replaces"
    with pytest.raises(FileExistsError, match=message), new_folder(tmp_path / "a", overwrite=True):
        pass
    assert "metrics.csv" in names(tmp_path / "a")
    with new_folder(tmp_path / "a", overwrite=True, as_run=True) as work:
        (work / "new").write_text("")
        begun = CheckpointFolder(tmp_path / "a" / "checkpoints")
        with pytest.raises(BlockingIOError, match="another process is training"):
            begun.lock()  # as a training would that begins meanwhile
    assert names(tmp_path / "a") == ["new"]


def test_what_was_there_comes_back_if_the_new_folder_cannot_be_renamed(tmp_path):
    (tmp_path / "a").mkdir()
    fill(tmp_path / "a", RUN)
    with pytest.raises(FileNotFoundError), new_folder(tmp_path / "a", overwrite=True) as work:
        work.rmdir()
    assert names(tmp_path) == ["a"] and names(tmp_path / "a") == sorted({x.partition("/")[0] for x in RUN})


def test_links_and_files_are_never_replaced_and_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "run").mkdir()
    fill(tmp_path / "run", RUN)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    (tmp_path / "loose").symlink_to(tmp_path / "nowhere")
    for name, kind in (("file", "file"), ("link", "link"), ("loose", "link")):
        with (
            pytest.raises(FileExistsError, match=f"{name} is a {kind}, and a folder is to be written"),
            new_folder(tmp_path / name, overwrite=True),
        ):
            pass
    (tmp_path / "empty").mkdir()
    with new_folder(tmp_path / "empty") as work:
        (work / "new").write_text("")
    assert names(tmp_path / "empty") == ["new"] and names(tmp_path / "run") == sorted(
        {name.partition("/")[0] for name in RUN}
    )


@pytest.mark.parametrize("name", [".", "", ".."])
def test_the_current_folder_is_not_replaced(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileExistsError, match="to work in, and is not replaced"), new_folder(name):
        pass


def test_the_umask_alone_says_who_may_read(tmp_path):
    before = os.umask(0o027)
    try:
        with new_folder(tmp_path / "a") as work:
            (work / "config.json").write_text(OURS)
            write_tensors({"x": KERNEL}, work / "model.safetensors")
    finally:
        os.umask(before)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "a").iterdir()}
    assert modes == {"config.json": "0o640", "model.safetensors": "0o640"}
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o750


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


def test_a_best_epoch_of_frozen_weights_copies_what_is_trained_alone(tmp_path):
    inputs = keras.Input((1024,))
    frozen = keras.layers.Dense(1024, trainable=False)(inputs)  # 4 MiB
    kept = keras.Model(inputs, keras.layers.Dense(2)(frozen))
    kept.compile("sgd", "mse")
    best = BestWeights("loss", on_best=lambda: save_weights(kept, tmp_path / "weights"))
    best.set_model(kept)
    tracemalloc.start()
    try:
        best.on_train_begin()
        best.on_epoch_end(0, {"loss": 1.0})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20
    frozen_kernel = kept.layers[1].kernel
    key = frozen_kernel.path
    np.testing.assert_array_equal(read_tensors(tmp_path / "weights")[0][key], frozen_kernel, strict=True)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "bool"])
def test_variables_of_every_kind_of_number_are_written(dtype, tmp_path):
    variable = keras.Variable(keras.ops.cast(np.arange(6).reshape(3, 2) % 2, dtype), dtype=dtype)
    write_tensors({"x": variable, "scalar": variable[0, 0]}, tmp_path / "file")
    tensors, _ = read_tensors(tmp_path / "file")
    assert tensors["x"].shape == (3, 2) and tensors["scalar"].shape == ()
    np.testing.assert_array_equal(tensors["x"].astype("float32"), np.arange(6).reshape(3, 2) % 2)


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
