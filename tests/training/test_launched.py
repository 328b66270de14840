"""`keras-tfm launch -- train`, typed: two processes, stopped, killed, and gone on with."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from keras_tfm.data.worlds.dates import date_pairs
from tests.training import cluster

pytestmark = pytest.mark.slow
TINY = {"num_layers": 1, "dim": 32, "intermediate_dim": 64, "num_heads": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data, and the RUN `whole` of an unbroken training."""
    folder = tmp_path_factory.mktemp("launched")
    pairs = date_pairs(200, seed=1)
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(*pairs, strict=True)), "utf-8")
    (folder / "config.json").write_text(json.dumps(TINY))
    code, errors = finish(train(folder, "whole"))
    assert code == 0, errors[-3000:]
    return folder


def train(folder, run, *arguments):
    command = [sys.executable, "-m", "keras_tfm", "launch", "--workers", "2", "--", "train", "translate"]
    command += [
        "--data",
        "pairs.tsv",
        "--out",
        run,
        "--size",
        "tiny",
        "--config",
        "config.json",
        "--vocabulary",
        "300",
    ]
    command += [
        "--max-length",
        "48",
        "--epochs",
        "4",
        "--save-minutes",
        "0.01",
        "--deterministic",
        *arguments,
    ]
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)  # they run elsewhere
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": paths}
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def finish(process):
    ((code, errors),) = cluster.wait([process], timeout=300)
    return code, errors


def epochs_of(run):
    """The rows of metrics.csv without what is never twice the same."""
    header, *rows = (run / "metrics.csv").read_text().splitlines() if (run / "metrics.csv").exists() else [""]
    measures = [i for i, name in enumerate(header.split(",")) if "second" not in name]
    return [[row.split(",")[i] for i in measures] for row in rows]


def wait_for_epochs(run, count, process):
    """Return within the epoch after `count` of them."""
    until = time.monotonic() + 240
    while len(epochs_of(run)) < count:
        assert process.poll() is None and time.monotonic() < until, "training ended, or stands still"
        time.sleep(0.05)
    time.sleep(0.3)


def children_of(process):
    """The numbers of the workers that a `launch` has started."""
    command = ["pgrep", "-P", str(process.pid)]
    return [int(line) for line in subprocess.run(command, capture_output=True, text=True).stdout.split()]


def assert_gone_on_with(folder, run):
    code, errors = finish(train(folder, run, "--resume"))
    assert code == 0, errors[-3000:]
    ours, whole = (folder / name / "model.safetensors" for name in (run, "whole"))
    assert ours.read_bytes() == whole.read_bytes()
    assert epochs_of(folder / run) == epochs_of(folder / "whole")


def test_an_interrupt_and_resume(folder):
    process = train(folder, "stopped")
    wait_for_epochs(folder / "stopped", 2, process)
    process.send_signal(signal.SIGINT)
    code, errors = finish(process)
    assert code == 130 and "Stopped by SIGTERM after step" in errors
    command = "to go on: keras-tfm launch --workers 2 -- train translate --out stopped --resume"
    assert errors.count("to go on") == 1 and command in errors
    assert_gone_on_with(folder, "stopped")


def test_killed_while_the_workers_still_read_and_resume(folder):
    """The RUN holds the options of its training from the first moment on."""
    process = train(folder, "begun")
    until = time.monotonic() + 240
    while not (folder / "begun" / "config.json").exists():
        assert process.poll() is None and time.monotonic() < until, "no RUN was written"
        time.sleep(0.01)
    for child in children_of(process):
        os.kill(child, signal.SIGKILL)
    assert finish(process)[0] == 137 and not (folder / "begun" / "checkpoints").exists()
    assert_gone_on_with(folder, "begun")


@pytest.mark.slow
def test_a_killed_worker_and_resume(folder):
    process = train(folder, "killed")
    wait_for_epochs(folder / "killed", 2, process)
    os.kill(children_of(process)[1], signal.SIGKILL)
    code, errors = finish(process)
    assert code == 137 and "worker 1" in errors
    assert_gone_on_with(folder, "killed")


def test_a_run_in_use_is_refused(folder):
    process = train(folder, "used", "--epochs", "400", "--patience", "400")
    wait_for_epochs(folder / "used", 1, process)
    for arguments in (("--resume",), ("--overwrite",)):
        code, errors = finish(train(folder, "used", *arguments))
        assert code == 2 and "another process is training there" in errors
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 143
