"""SIGKILL, and a full disk, at each change of a file that a checkpoint makes, from real processes."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(__file__).with_name("faults.c")
CHECKPOINTS = {"step-00000000": "the first", "step-00000006": "the last"}

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The library to preload."""
    path = tmp_path_factory.mktemp("faults") / "faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", path, SOURCE, "-ldl"], check=True)
    return path


def run(library, folder, *arguments):
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    command = [sys.executable, "-m", "tests.training.faults", folder, *map(str, arguments)]
    end = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3600)
    assert end.returncode == 0, end.stderr[-4000:]
    return json.loads(end.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kill", "full"])
def test_some_faults(kind, library, tmp_path):
    found = run(library, tmp_path, kind, "step-00000006", 5, 16)
    assert found["faults"] >= 2 and found["ends"] == [-9 if kind == "kill" else 28]


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=CHECKPOINTS.get)
@pytest.mark.parametrize("kind", ["kill", "full"])
def test_every_fault(kind, checkpoint, library, tmp_path):
    found = run(library, tmp_path, kind, checkpoint, 1, 1)
    assert found["faults"] >= 20 and found["ends"] == [-9 if kind == "kill" else 28]
