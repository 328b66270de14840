"""Folders of transformers: models written and read again, and configurations that are refused."""

import json

import numpy as np
import pytest

from keras_tfm.convert import from_huggingface, save_huggingface
from keras_tfm.training.safetensors import CheckpointError
from tests.contract import randomise


def check_both_ways(model, folder):
    """A model with random weights, written to the `folder`, is read as it was."""
    randomise(model, 1)
    save_huggingface(model, folder)
    assert_same(from_huggingface(folder), model)


def assert_same(actual, expected):
    """Two models have one class, one configuration and the same weights; seeds are their own."""
    assert type(actual) is type(expected) and actual.get_config() == expected.get_config()
    for a, b in zip(actual.weights, expected.weights, strict=True):
        assert a.path == b.path
        if "float" in a.dtype:
            np.testing.assert_array_equal(a, b, a.path)


def change_config(folder, **entries):
    """Write other entries to the config.json of a `folder`."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def check_refusal(folder, changes, message):
    """A `folder` whose config.json has these `changes` is refused; afterwards it is as before."""
    path = folder / "config.json"
    before = path.read_text()
    change_config(folder, **changes)
    try:
        with pytest.raises(CheckpointError, match=message):
            from_huggingface(folder)
    finally:
        path.write_text(before)
