"""What every test stands on: a quiet TensorFlow on the CPU, fixed seeds, Keras's own float policy.

The environment is set before anything imports TensorFlow. Each test's CPU time is measured: over LIMIT x
`stretch()` seconds, 40 or more, it fails unless it is marked slow, stands in tests/parity, or runs with XLA.
"""

import collections
import gc
import importlib.util
import json
import os
import pathlib
import random
import sys
import time

import hypothesis
import numpy as np
import pytest

from tests.environment import set_environment
from tests.quick_graphs import make_graphs_quickly

set_environment()
gc.disable()  # until all is imported: a tenth of the time that takes

SEED = 2017
LIMIT = 20  # seconds of CPU time, its own and its ended children's, on a quiet machine
QUIET = 0.07  # the least of 60 times that `stretch`'s loop took on a machine with other work
EXAMPLES = 10  # that hypothesis draws in `make test`
SHARED = 2  # an allowance for other work on the same core, not a measurement
SECONDS = collections.defaultdict(float)  # by test, with its fixtures

# Assertions in shared helpers say what differed, as assertions in test files do.
pytest.register_assert_rewrite("tests.contract.invariants", "tests.contract.tools")

# No deadline: the first call of a test may trace and compile. Examples are drawn alike on every machine:
# more of them each time would find nothing new, so `make test-slow` draws ten times as many.
hypothesis.settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=int(os.environ.get("KERAS_TFM_EXAMPLES", EXAMPLES)),
)
hypothesis.settings.load_profile("repeatable")

collect_ignore = [] if importlib.util.find_spec("torch") else ["parity"]


@pytest.fixture(autouse=True)
def fixed_seeds():
    """Seed Python and NumPy, from which Keras's layers take their seeds."""
    random.seed(SEED)
    np.random.seed(SEED)


@pytest.fixture(autouse=True, scope="module")
def settings_of_tensorflow():
    """Seed TensorFlow, once a file: each time it forgets its kernels, and functions are made ready anew."""
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.random.set_seed(SEED)
        is_off = os.environ["KERAS_TFM_GRAPPLER"] == "0"
        if is_off:
            make_graphs_quickly()
        tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": is_off})


@pytest.fixture
def optimised_graphs():
    """TensorFlow optimises graphs, as it does outside the tests."""
    optimizer = sys.modules["tensorflow"].config.optimizer
    before = optimizer.get_experimental_options()
    optimizer.set_experimental_options({"disable_meta_optimizer": False})
    yield
    optimizer.set_experimental_options(before)


@pytest.fixture(autouse=True)
def float_policy():
    """Give the next test float32 again, whatever policy this one set."""
    yield
    if "keras" in sys.modules:
        config = sys.modules["keras"].config
        config.set_floatx("float32")
        config.set_dtype_policy("float32")


@pytest.fixture
def jit(monkeypatch):
    """Training steps and decoding are compiled by XLA, as they are outside the tests."""
    monkeypatch.setenv("KERAS_TFM_JIT", "1")


@pytest.fixture(scope="module")
def loaded_runs():
    """{(file and its time of change of a RUN ...): its task} of `loaded_once`, for one file of tests."""
    return {}


@pytest.fixture
def loaded_once(loaded_runs, monkeypatch):
    """A RUN is loaded once until its files change, so that what its task computes with is traced once: for
    tests of what is asked of a task, which neither change it nor ask how it is loaded.
    """
    from keras_tfm import tasks

    load = tasks.load

    def remembered(folder, *arguments):
        if not os.path.isdir(folder):
            return load(folder, *arguments)
        key = (*arguments, *sorted((file.path, file.stat().st_mtime_ns) for file in os.scandir(folder)))
        if key not in loaded_runs:
            loaded_runs[key] = load(folder, *arguments)
        return loaded_runs[key]

    monkeypatch.setattr(tasks, "load", remembered)


def pytest_collection_modifyitems(items):
    """Draw the order of files, and of the tests in each, from the seed of `tests/run.py --shuffle`."""
    if seed := os.environ.get("KERAS_TFM_TEST_ORDER"):
        files = {item.path: [] for item in items}
        for item in items:
            files[item.path].append(item)
        draw = random.Random(seed)
        parts = list(files.values())
        draw.shuffle(parts)
        for part in parts:
            draw.shuffle(part)
        items[:] = [item for part in parts for item in part]


def pytest_collection_finish():
    """Spare the collector of garbage what was imported: it spent a tenth of the time looking through it.

    Between its rounds a million objects are made, some hundred MB: that is a twenty-fifth of the time again.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(1_000_000, 20, 100)


def cpu_seconds():
    """CPU time so far, of this process and of its children that have ended."""
    return sum(os.times()[:4])


def stretch():
    """How many times longer than on a quiet machine CPU time is now: by a loop, and by what waits for a core.

    TensorFlow's threads spin while they wait for each other, the longer the more processes there are.
    """
    began = time.thread_time()
    sum(i * i for i in range(1_000_000))
    slower = (time.thread_time() - began) / QUIET
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return max(SHARED, slower) * max(1.0, waiting)


def is_limited(item):
    """Whether `make test` runs it: the random models of parity, what XLA compiles and more examples take
    longer.
    """
    is_quick = not item.get_closest_marker("slow") and "parity" not in item.path.parts
    return is_quick and os.environ["KERAS_TFM_JIT"] == "0" and "KERAS_TFM_EXAMPLES" not in os.environ


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Measure each test with the fixtures that are made for it."""
    began = cpu_seconds()
    try:
        return (yield)
    finally:
        SECONDS[item.nodeid] = round(cpu_seconds() - began, 2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fail a test that takes too long, its fixtures apart."""
    began = cpu_seconds()
    result = yield
    taken = cpu_seconds() - began
    if taken > LIMIT and is_limited(item) and taken > (most := LIMIT * stretch()):
        pytest.fail(f"It took {taken:.0f} s of CPU time, over {most:.0f}: make it quicker, or mark it slow.")
    return result


def pytest_terminal_summary(terminalreporter):
    """Write the report that tests/run.py adds up: outcomes, failures, reasons of skips, seconds of tests."""
    if path := os.environ.get("KERAS_TFM_TEST_REPORT"):
        stats = terminalreporter.stats
        files = collections.Counter()
        for test, taken in SECONDS.items():
            files[test.partition("::")[0]] += taken
        report = {
            "outcomes": {name: len(stats.get(name, ())) for name in ("passed", "failed", "error", "skipped")},
            "skips": collections.Counter(
                skip.longrepr[2].removeprefix("Skipped: ") for skip in stats.get("skipped", ())
            ),
            "broken": [test.nodeid for name in ("failed", "error") for test in stats.get(name, ())],
            "seconds": files,
            "tests": dict(SECONDS),
        }
        pathlib.Path(path).write_text(json.dumps(report), "utf-8")
