"""What every test stands on: a quiet TensorFlow on the CPU, fixed seeds, Keras's own float policy.

The environment is set before anything imports TensorFlow, by `setdefault`: `CUDA_VISIBLE_DEVICES=0 make test`
runs on a GPU.
"""

import importlib.util
import os
import random
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import hypothesis
import numpy as np
import pytest

SEED = 2017

# Assertions in shared helpers say what differed, as those in test files do.
pytest.register_assert_rewrite("tests.contract.invariants", "tests.contract.tools")

# No deadline: the first call of a test may trace and compile. Examples are drawn alike on every machine.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("repeatable")

collect_ignore = [] if importlib.util.find_spec("torch") else ["parity"]


@pytest.fixture(autouse=True)
def fixed_seeds():
    """Seed Python and NumPy, and Keras and TensorFlow where the test's file has imported them."""
    random.seed(SEED)
    np.random.seed(SEED)
    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(SEED)


@pytest.fixture(autouse=True)
def float_policy():
    """Give the next test float32 again, whatever policy this one set."""
    yield
    if "keras" in sys.modules:
        config = sys.modules["keras"].config
        config.set_floatx("float32")
        config.set_dtype_policy("float32")
