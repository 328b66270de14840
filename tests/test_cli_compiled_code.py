"""What the command keeps of XLA's code: sound files alone, for the same processor, within a bound."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from keras_tfm.cli import compiled_code
from keras_tfm.cli.compiled_code import keep_compiled_code
from keras_tfm.data.worlds.dates import date_pairs
from tests.fresh_process import run_fresh


@pytest.fixture
def home(monkeypatch, tmp_path):
    """An empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    for name in ("KERAS_TFM_JIT", "KERAS_TFM_XLA_CACHE", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "keras_tfm" / "xla"


def begin():
    """(The folder of a new run, the function that ends it)."""
    os.environ["TF_XLA_FLAGS"] = ""
    finish = keep_compiled_code()
    return pathlib.Path(re.search(r"cache_directory=(\S+)", os.environ["TF_XLA_FLAGS"])[1]), finish


def files(folder):
    """{name: content} of TensorFlow's files."""
    return {path.name: path.read_bytes() for path in folder.glob("*.pb")}


def test_what_a_run_compiled_the_next_one_finds(home):
    own, finish = begin()
    assert files(own) == {}
    (own / "a.pb").write_bytes(b"code")
    (own / "b.pb.tmp").write_bytes(b"half")
    finish()
    assert not own.exists() and len(list(home.glob("*/a.pb.*"))) == 1 == len(list(home.glob("*/*.pb*")))
    own, finish = begin()
    other, end = begin()  # at the same time
    assert files(own) == files(other) == {"a.pb": b"code"}
    (own / "c.pb").write_bytes(b"more")
    (other / "c.pb").write_bytes(b"more")
    (other / "d.pb").write_bytes(b"other")
    end()
    assert files(own).keys() == {"a.pb", "c.pb"}
    finish()
    own, finish = begin()
    assert files(own) == {"a.pb": b"code", "c.pb": b"more", "d.pb": b"other"}
    finish()


@pytest.mark.parametrize("spoilt", [b"cOde", b"", b"code and more"])
def test_a_damaged_file_is_removed(home, spoilt):
    own, finish = begin()
    (own / "a.pb").write_bytes(b"code")
    (own / "b.pb").write_bytes(b"sound")
    finish()
    (kept,) = home.glob("*/a.pb.*")
    kept.write_bytes(spoilt)
    own, finish = begin()
    assert files(own) == {"b.pb": b"sound"} and not kept.exists()
    finish()


def test_the_folder_of_a_killed_run_is_removed(home):
    own, finish = begin()
    code = """
import os
from keras_tfm.cli.compiled_code import keep_compiled_code
assert keep_compiled_code() is not None
os._exit(1)
"""
    os.environ["TF_XLA_FLAGS"] = ""
    result = run_fresh(code, blocked=["tensorflow"])
    assert result.returncode == 1 and not result.stderr
    assert len(list(home.glob("*/run-*"))) == 2
    other, end = begin()
    assert set(home.glob("*/run-*")) == {own, other}
    end()
    finish()


def test_the_oldest_files_go_first(home, monkeypatch):
    for number, name in enumerate("abcd"):
        own, finish = begin()
        (own / f"{name}.pb").write_bytes(bytes(10))
        os.utime(own / f"{name}.pb", (number, number))
        monkeypatch.setattr(compiled_code, "LIMIT", 25)
        finish()
    assert sorted(path.name[0] for path in home.glob("*/*.pb.*")) == ["c", "d"]


def test_flags_have_code_of_their_own(home, monkeypatch):
    own, finish = begin()
    (own / "a.pb").write_bytes(b"code")
    finish()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    own, finish = begin()
    assert files(own) == {}
    finish()


def test_nothing_is_kept_where_it_is_turned_off_or_cannot_be(home, monkeypatch):
    def is_off():
        before = os.environ["TF_XLA_FLAGS"]
        return keep_compiled_code() is None and os.environ["TF_XLA_FLAGS"] == before

    for name, value in (
        ("KERAS_TFM_XLA_CACHE", "0"),
        ("KERAS_TFM_JIT", "0"),
        ("TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory=/else"),
        ("XDG_CACHE_HOME", f"{home}/with spaces"),
    ):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            assert is_off(), name
    with monkeypatch.context() as changed:
        changed.setattr(compiled_code, "FREE", 2**62)
        assert is_off()
    for folder in (home, home.parent, home.parent.parent):  # anybody could put code there, or another folder
        before = folder.stat().st_mode
        folder.chmod(0o777)
        assert is_off(), folder
        folder.chmod(before)
    begin()[1]()
    monkeypatch.setenv("KERAS_TFM_XLA_CACHE", "yes")
    with pytest.raises(ValueError, match="KERAS_TFM_XLA_CACHE must be 0 or 1; it is 'yes'"):
        keep_compiled_code()


@pytest.mark.slow
def test_a_training_is_the_same_with_kept_code_and_with_damaged_code(home, tmp_path):
    for name, lines in zip(("source.txt", "target.txt"), date_pairs(48, seed=3), strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (tmp_path / "tiny.json").write_text('{"dim": 32, "intermediate_dim": 64, "num_layers": 1}')

    def train(out, *more, **environment):
        """The weights of a training of one epoch, the same each time, or of one with `more` options."""
        sizes = ["--size", "tiny", "--config", tmp_path / "tiny.json", "--vocabulary", 300]
        data = ["--data", tmp_path / "source.txt", tmp_path / "target.txt", "--out", tmp_path / out]
        options = [*data, *sizes, "--max-length", 48, "--schedule", "constant", "--epochs", 1, *more]
        command = [sys.executable, "-m", "keras_tfm", "train", "translate", *options]
        variables = {**os.environ, "KERAS_TFM_JIT": "1", **environment}
        subprocess.run(list(map(str, command)), check=True, env=variables)
        return (tmp_path / out / "model.safetensors").read_bytes()

    expected = train("without", KERAS_TFM_XLA_CACHE="0")
    assert not home.exists()
    assert train("first") == expected
    kept = {path: path.read_bytes() for path in home.glob("*/*.pb.*")}
    assert kept and train("second") == expected
    train("second", "--epochs", 2, "--resume")  # which reads a checkpoint first
    assert {path: path.read_bytes() for path in home.glob("*/*.pb.*")} == kept  # nothing was compiled anew
    train("faster", "--learning-rate", 0.01)
    (update,) = set(home.glob("*/*.pb.*")) - kept.keys()  # the gradients do not depend on the learning rate
    update.unlink()
    for path, content in kept.items():
        path.write_bytes(content[: len(content) // 2] + bytes(8) + content[len(content) // 2 + 8 :])
    assert train("third") == expected
    assert len(list(home.glob("*/*.pb.*"))) == len(kept)
