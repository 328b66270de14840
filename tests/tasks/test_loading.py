"""A folder's weights are the first that its model gets, one at a time."""

import keras
import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.convert import from_huggingface
from keras_tfm.training import weights
from tests.recorded.record import RUNS

RANDOM = (
    keras.initializers.VarianceScaling,
    keras.initializers.TruncatedNormal,
    keras.initializers.RandomNormal,
    keras.initializers.RandomUniform,
)


@pytest.fixture
def nothing_drawn(monkeypatch):
    """Initial weights cannot be drawn."""

    def refuse(*_, **__):
        raise AssertionError("an initial weight was drawn")

    for kind in RANDOM:
        monkeypatch.setattr(kind, "__call__", refuse)


def test_no_initial_weights_are_drawn(nothing_drawn, tmp_path):
    with pytest.raises(AssertionError, match="was drawn"):
        keras.layers.Dense(2).build((None, 2))
    task = tasks.load(RUNS / "classify")
    task.model.backbone.save_huggingface(tmp_path / "folder")
    again = from_huggingface(tmp_path / "folder")
    for ours, theirs in zip(task.model.backbone.weights, again.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=ours.path)


def test_the_file_is_let_go_after_each_weight(monkeypatch, tmp_path):
    """In both passes, over what is checked and over what is set."""
    given = []
    monkeypatch.setattr(weights, "let_go", lambda tensors: given.append(len(list(tensors))))
    task = tasks.load(RUNS / "classify")
    count = len([weight for weight in task.model.weights])
    assert given == [count] * 2 * count
