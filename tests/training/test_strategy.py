"""Strategies by name: what cannot be is refused in one line that says why."""

import json
import subprocess
import sys

import pytest
import tensorflow as tf

from keras_tfm.training import strategy

WORKERS = {"worker": ["127.0.0.1:2001", "127.0.0.1:2002"]}


def test_none_is_the_default_strategy():
    assert strategy("none") is tf.distribute.get_strategy()
    assert strategy("none").num_replicas_in_sync == 1


@pytest.mark.parametrize("name", ["", "mirror", "none:2", "multi-worker:2"])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match="there are none, mirrored, mirrored:N, multi-worker, tpu"):
        strategy(name)


@pytest.mark.parametrize("count", ["0", "-1", "two", "1.5"])
def test_impossible_numbers_of_devices_are_refused(count):
    with pytest.raises(ValueError, match=f"a number of devices, at least 1; it is '{count}'"):
        strategy(f"mirrored:{count}")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "TF_CONFIG; it is not set"),
        ("{", "TF_CONFIG is not JSON"),
        ([], "the whole must be an object"),
        ({}, "cluster must be an object"),
        ({"cluster": {"worker": []}}, "cluster.worker must be a list of addresses"),
        ({"cluster": {"worker": ["here"]}}, "cluster.worker must be a list of addresses"),
        ({"cluster": WORKERS}, "task must be an object"),
        ({"cluster": WORKERS, "task": {"type": "chief", "index": 0}}, "task.type must be one of worker"),
        ({"cluster": WORKERS, "task": {"type": "worker", "index": 2}}, "task.index must be from 0 to 1"),
        ({"cluster": WORKERS, "task": {"type": "worker", "index": "0"}}, "task.index must be from 0 to 1"),
    ],
)
def test_a_malformed_cluster_names_the_key(config, message, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config if isinstance(config, str) else json.dumps(config))
    with pytest.raises(ValueError, match=message):
        strategy("multi-worker")


TWICE = """
import keras, numpy as np, tensorflow as tf, keras_tfm
from keras_tfm.training import strategy
for width in (3, 5):
    devices = strategy("mirrored:2")
    with devices.scope():
        inputs = keras.Input((width,))
        model = keras_tfm.Model(inputs, keras.layers.Dense(width, kernel_initializer="zeros")(inputs))
        model.compile("sgd", "mse", steps_per_execution=3)
    x = np.ones((32, width), "float32")
    dataset = tf.data.Dataset.from_tensor_slices((x, x)).batch(4)
    print(width, model.fit(dataset, verbose=0).history["loss"][0] > 0)
"""


@pytest.mark.slow
def test_a_second_strategy_in_one_process_trains():
    """TensorFlow's own would fail: "Shape mismatch in the collective instance"."""
    result = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.splitlines() == ["3 True", "5 True"]
