"""A checkpoint's folder: one file, shards by an index, a hub's cache, and names that lead elsewhere."""

import json
import os
import sys

import huggingface_hub
import numpy as np
import pytest

from keras_tfm.convert.folder import INDEX, WEIGHTS, CheckpointError, find_folder, holds_model, read_weights
from keras_tfm.training.weights import write_tensors

TENSORS = {f"layer.{i}": np.full((2, 2), i, "float32") for i in range(4)}


def shards(folder, weight_map=None):
    """Two files of two tensors, and their index."""
    names = list(TENSORS)
    for i in range(2):
        write_tensors({name: TENSORS[name] for name in names[2 * i : 2 * i + 2]}, folder / f"{i}.safetensors")
    index = {name: f"{i // 2}.safetensors" for i, name in enumerate(names)}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index | (weight_map or {})}))


def test_one_file_and_shards_are_alike(tmp_path):
    (tmp_path / "one").mkdir(), (tmp_path / "two").mkdir()
    write_tensors(TENSORS, tmp_path / "one" / WEIGHTS)
    shards(tmp_path / "two")
    for name, file in (("one", WEIGHTS), ("two", INDEX)):
        tensors, path = read_weights(tmp_path / name)
        assert path == tmp_path / name / file and tensors.keys() == TENSORS.keys()
        for key, tensor in TENSORS.items():
            np.testing.assert_array_equal(tensors[key], tensor)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", ".", "", "a\\b", "a\0b"])
def test_shards_are_named_plainly(name, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    write_tensors({"layer.3": TENSORS["layer.3"]}, tmp_path / "x")
    shards(folder, {"layer.3": name})
    with pytest.raises(CheckpointError, match="expected a plain file name, got a path"):
        read_weights(folder)


def test_links_and_pipes(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    write_tensors(TENSORS, tmp_path / "outside")
    (folder / WEIGHTS).symlink_to("../outside")
    with pytest.raises(CheckpointError, match=r"expected a file inside .*folder, got a link to .*outside"):
        read_weights(folder)
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(WEIGHTS)
    with pytest.raises(CheckpointError):
        read_weights(folder)
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)
    with pytest.raises(CheckpointError, match="expected a regular file"):
        read_weights(folder)
    (folder / WEIGHTS).unlink()
    (tmp_path / "outside").rename(folder / "inside")
    (folder / WEIGHTS).symlink_to("inside")
    assert read_weights(folder)[0].keys() == TENSORS.keys()


def cached_model(tmp_path, monkeypatch):
    """A hub's (repository, snapshot) of which a program fetched the configuration and the weights."""
    repository = tmp_path / "models--owner--name"
    snapshot = repository / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    for folder in (snapshot, repository / "blobs", repository / "refs"):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text(snapshot.name)
    (snapshot / "config.json").write_text("{}")
    write_tensors(TENSORS, repository / "blobs" / "hash")
    (snapshot / WEIGHTS).symlink_to("../../blobs/hash")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return repository, snapshot


def test_a_model_of_which_single_files_are_cached_is_completed(tmp_path, monkeypatch):
    """Transformers fetches single files: its cache may lack the preprocessing or the tokenizer."""
    repository, snapshot = cached_model(tmp_path, monkeypatch)
    download, answers = huggingface_hub.snapshot_download, []

    def answer(name, local_files_only=False, **options):
        if local_files_only:
            return download(name, local_files_only=True, **options)
        answers.append(name)
        if len(answers) == 1:
            raise RuntimeError("a proxy that does not answer")
        (snapshot / "preprocessor_config.json").write_text("{}")
        (repository / "trees").mkdir(exist_ok=True)
        files = {file.name: {"size": 2, "blob_id": "0"} for file in snapshot.iterdir()}
        listing = {"format_version": 1, "files": files}
        (repository / "trees" / f"{snapshot.name}.json").write_text(json.dumps(listing))
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", answer)
    assert find_folder("owner/name").samefile(snapshot) and len(answers) == 1
    assert (find_folder("owner/name") / "preprocessor_config.json").exists() and len(answers) == 2
    assert find_folder("owner/name").samefile(snapshot) and len(answers) == 2  # it is whole now
    (snapshot / "preprocessor_config.json").unlink()
    find_folder("owner/name")
    assert len(answers) == 3


def test_the_links_of_a_hub_cache_are_followed(tmp_path, monkeypatch):
    _, snapshot = cached_model(tmp_path, monkeypatch)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    folder = find_folder("owner/name")
    assert folder.resolve() == snapshot.resolve()
    assert read_weights(folder)[0].keys() == TENSORS.keys()
    (snapshot / WEIGHTS).unlink()
    write_tensors(TENSORS, tmp_path / "outside")
    (snapshot / WEIGHTS).symlink_to("../../../outside")
    with pytest.raises(CheckpointError, match="a link to"):
        read_weights(folder)


def test_a_cached_model_is_whole(tmp_path):
    """Whether a download can be spared: a program that reads only tokenizers caches no weights."""
    (tmp_path / "tokenizer.json").write_text("{}")
    assert not holds_model(tmp_path)
    shards(tmp_path)
    assert not holds_model(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert holds_model(tmp_path)
    (tmp_path / "1.safetensors").rename(tmp_path / WEIGHTS)
    assert holds_model(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    assert not holds_model(tmp_path)
    (tmp_path / INDEX).unlink()
    assert not holds_model(tmp_path)


def test_index_and_shards_must_agree(tmp_path):
    shards(tmp_path, {"layer.3": "0.safetensors"})
    with pytest.raises(CheckpointError, match=r"0.safetensors: layer.3: .* got only in the index"):
        read_weights(tmp_path)
    shards(tmp_path)
    write_tensors(TENSORS, tmp_path / "1.safetensors")
    with pytest.raises(CheckpointError, match=r"1.safetensors: layer.0: .* got only in the shard"):
        read_weights(tmp_path)
    (tmp_path / "1.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"1.safetensors: expected a file to read, got no such file"):
        read_weights(tmp_path)
    for text, message in (
        ("{}", "weight_map: expected names of shards by key, got None"),
        ('{"weight_map": {"layer.0": 1}}', "weight_map: expected names of shards"),
        ('{"weight_map": {"layer.0": "a", "layer.0": "b"}}', "layer.0: expected one entry of this name"),
        ("[]", "expected a JSON object"),
    ):
        (tmp_path / INDEX).write_text(text)
        with pytest.raises(CheckpointError, match=message):
            read_weights(tmp_path)


def test_nothing_pickled_is_read(tmp_path):
    canary = tmp_path / "canary"
    (tmp_path / "pytorch_model.bin").write_bytes(f"cbuiltins\nopen\n(V{canary}\nVw\ntR.".encode())
    with pytest.raises(CheckpointError, match=r"nothing pickled is read\), got pytorch_model.bin"):
        read_weights(tmp_path)
    assert not canary.exists()


def test_a_path_is_not_looked_for_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # asking the hub would raise ImportError
    for folder in ("runs/mine", "runs/films"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("no folder")
    for name, message in (
        ("runs/mnie", r"mnie: there is no such folder \(did you mean runs/mine\?\); the hub is not asked"),
        (
            "runs/other",
            "runs/other: there is no such folder; the hub is not asked, since runs is a folder here$",
        ),
        ("./mnie/", "./mnie/: there is no such folder$"),
        ("rnus/mine/", r"rnus/mine/: there is no such folder \(did you mean runs\?\)$"),
        (f"{tmp_path}/runs/mnie", rf"there is no such folder \(did you mean {tmp_path}/runs/mine\?\)$"),
        ("notes.txt", "notes.txt: expected a folder, got a file"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            find_folder(name)


def test_neither_folder_nor_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "owners").mkdir()
    for name, near in (("owner/name", r" \(did you mean owners\?\)"), ("name", "")):
        message = rf"^{name}: there is no such folder{near}, nor does .* hub give such a model \(.+\)$"
        with pytest.raises(FileNotFoundError, match=message):
            find_folder(name)
