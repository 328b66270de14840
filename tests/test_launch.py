"""The launcher with real processes: what they are told, what becomes of their output, deaths and signals."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from keras_tfm.launch import free_ports, launch, visible_gpus, worker_environments
from keras_tfm.training.strategy import check_cluster

# What a shell starts in the background ignores SIGINT, and so would all that it starts.
LAUNCHER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from keras_tfm.launch import launch
assert "tensorflow" not in sys.modules and "keras" not in sys.modules
sys.exit(launch([sys.executable, "-u", "-c", sys.argv[3]], int(sys.argv[1]), float(sys.argv[2])))
"""
WHO = 'import json, os, sys, signal, time; index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]\n'


def start(code, workers=3, grace=20.0):
    """A launcher of processes that run `code`, in which `index` is the worker's."""
    command = [sys.executable, "-c", LAUNCHER, str(workers), str(grace), WHO + code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(launcher):
    """(exit code, standard output, lines of standard error in order of their workers)."""
    out, errors = launcher.communicate(timeout=60)
    return launcher.returncode, out, sorted(errors.splitlines())


def is_alive(pid):
    """Whether a process runs: one that died and waits to be seen does not, where that can be told."""
    if not os.path.isdir("/proc/self"):  # as on macOS
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            return True
        return False
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_every_worker_knows_the_cluster_and_answers_stand_once():
    code, out, errors = finish(
        start('print("answer"); print(os.environ["TF_CONFIG"], file=sys.stderr); assert not sys.stdin.read()')
    )
    assert (code, out) == (0, "answer\n")
    configs = [json.loads(re.sub(r"^\[worker \d\] ", "", line)) for line in errors if "{" in line]
    assert [line for line in errors if "{" not in line] == ["[worker 1] answer", "[worker 2] answer"]
    assert sorted(config["task"]["index"] for config in configs) == [0, 1, 2]
    assert len({json.dumps(config["cluster"]) for config in configs}) == 1
    for config in configs:
        check_cluster(json.dumps(config))


def test_lines_come_whole_and_as_a_terminal_would_keep_them():
    code, _, errors = finish(
        start(
            'sys.stderr.buffer.write(b"a\\xff\\r10 %\\r     \\r" + b"b" * 100_000 + b"\\n\\nno end")'
            ' if index else print("10 %\\r20 %", file=sys.stderr)',
            workers=2,
        )
    )
    assert code == 0
    assert sorted(errors) == sorted(
        ["10 %", "20 %", "[worker 1] " + "b" * 100_000, "[worker 1] ", "[worker 1] no end"]
    )


@pytest.mark.parametrize(
    ("death", "code", "how"),
    [
        ("sys.exit(7)", 7, "exit code 7"),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", 137, "SIGKILL", marks=pytest.mark.slow),
    ],
)
def test_when_one_dies_all_end_with_its_code(death, code, how):
    began = time.monotonic()
    answer, _, errors = finish(start(f"time.sleep(0.5)\nif index == 1: {death}\ntime.sleep(60)"))
    assert answer == code and time.monotonic() - began < 20
    assert errors == [f"keras-tfm: worker 1 ended with {how}; the others are stopped"]


SAVING = """
count = 0
def save(number, frame):
    global count
    count += 1
signal.signal(signal.SIGTERM, save)
open(f"{folder}/{{index}}", "w").close()
while not count: time.sleep(0.05)
time.sleep({seconds})
os.write(2, f"saved {{count}}\\n".encode())  # at once: the workers share the place
sys.exit(143)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_lets_each_worker_save_once_and_is_waited_for(number, tmp_path):
    launcher = start(SAVING.format(folder=tmp_path, seconds=0.5))
    while len(list(tmp_path.iterdir())) < 3:
        time.sleep(0.05)
    launcher.send_signal(number)
    code, _, errors = finish(launcher)
    assert code == 128 + number
    assert errors == ["[worker 1] saved 1", "[worker 2] saved 1", "saved 1"]


def test_a_second_interrupt_is_passed_on(tmp_path):
    launcher = start(SAVING.format(folder=tmp_path, seconds=60))
    while len(list(tmp_path.iterdir())) < 3:
        time.sleep(0.05)
    launcher.send_signal(signal.SIGINT)
    time.sleep(1)
    launcher.send_signal(signal.SIGINT)
    code, _, errors = finish(launcher)
    assert code in (1, 130) and any("KeyboardInterrupt" in line for line in errors)
    assert not any("saved" in line.split() for line in errors)


def test_who_ignores_sigterm_is_killed_with_its_children(tmp_path):
    launcher = start(
        f"""
import subprocess
if index == 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    open("{tmp_path}/child", "w").write(str(child.pid))
open(f"{tmp_path}/{{index}}", "w").close()
time.sleep(60)
""",
        workers=2,
        grace=1.0,
    )
    while len(list(tmp_path.iterdir())) < 3:
        time.sleep(0.05)
    launcher.terminate()
    code, _, errors = finish(launcher)
    assert code == 143  # of the one who listened, the first to end
    assert errors == ["keras-tfm: worker 1: killed, 1 s after it was asked to end"]
    assert not is_alive((tmp_path / "child").read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_no_worker_outlives_a_killed_launcher(tmp_path):
    launcher = start(f'open(f"{tmp_path}/{{os.getpid()}}", "w").close(); time.sleep(60)')
    while len(list(tmp_path.iterdir())) < 3:
        time.sleep(0.05)
    launcher.kill()
    launcher.communicate(timeout=20)  # the pipes close when all who hold them are going
    deadline = time.monotonic() + 10
    while any(is_alive(path.name) for path in tmp_path.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


TRAINING = """
import numpy as np, tensorflow as tf, keras, keras_tfm
from keras_tfm.training import strategy
devices = strategy("multi-worker")
keras.utils.set_random_seed(0)
with devices.scope():
    model = keras_tfm.Model(inputs := keras.Input((4,)), keras.layers.Dense(1)(inputs))
    model.compile(keras.optimizers.SGD(0.1), "mse")
x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(8)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
losses = model.fit(dataset.with_options(options), epochs=3, verbose=0).history["loss"]
print(devices.num_replicas_in_sync, *losses)
"""


@pytest.mark.slow
def test_workers_train_as_one(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    answers = []
    for workers in (1, 2):
        code, out, errors = finish(start(TRAINING, workers))
        assert code == 0, errors
        answers.append([float(word) for word in out.splitlines()[-1].split()])
    assert [answer.pop(0) for answer in answers] == [1, 2]
    assert answers[0] == pytest.approx(answers[1], rel=1e-5) and answers[0][0] > answers[0][-1]


def test_ports_are_free_and_different():
    assert len(set(free_ports(50))) == 50


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        ("", []),
        ("-1", []),
        ("0", ["0"]),
        ("2, 3", ["2", "3"]),
        ("1,-1,2", ["1"]),
        ("GPU-a,GPU-b", ["GPU-a", "GPU-b"]),
    ],
)
def test_visible_gpus_are_cudas(visible, gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus() == gpus


def test_gpus_are_divided_equally(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7,8")
    shares = [environment["CUDA_VISIBLE_DEVICES"] for environment in worker_environments(2)]
    assert shares == ["4,5", "6,7"]
    with pytest.raises(ValueError, match="6 workers need a GPU each, or none; there are 5"):
        worker_environments(6)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert worker_environments(2)[1]["CUDA_VISIBLE_DEVICES"] == "-1"


def test_what_cannot_be_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="`workers` must be at least 1; it is 0"):
        launch(["true"], 0)
    monkeypatch.setitem(os.environ, "TF_CONFIG", "{}")
    with pytest.raises(ValueError, match="TF_CONFIG is set"):
        launch(["true"], 2)
