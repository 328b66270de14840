"""The examples in docstrings give what they say; an example that makes or trains a whole model is a slow
test. Every public class and function has one.

Each runs with `np`, `tf`, `keras` and `keras_tfm` in an empty folder, so that one that reads a file writes
it first, under a short name.
"""

import doctest
import importlib
import inspect
import pkgutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tfm
import keras_tfm.convert
import keras_tfm.data
import keras_tfm.generation
import keras_tfm.heads
import keras_tfm.layers
import keras_tfm.models
import keras_tfm.tasks
import keras_tfm.training
import keras_tfm.visualize
import keras_tfm.visualize.plots
import keras_tfm.word_vectors
from keras_tfm.configs import Config


def examples(*packages):
    """Every docstring with an example in the modules of these packages: {name: doctest}."""
    found = {}
    for package in packages:
        modules = [info.name for info in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
        for name in (package.__name__, *modules):
            for each in doctest.DocTestFinder().find(importlib.import_module(name)):
                if each.examples:
                    found[each.name] = each
    return found


QUICK = (keras_tfm.layers, keras_tfm.generation, keras_tfm.data, keras_tfm.word_vectors)
SLOW = (
    keras_tfm.heads,
    keras_tfm.models,
    keras_tfm.training,
    keras_tfm.visualize,
    keras_tfm.convert,
    keras_tfm.tasks,
)
LONG = ("keras_tfm.data.tokenizers.keras_hub.", "keras_tfm.word_vectors.factorization.")
EXAMPLES, SLOW_EXAMPLES = examples(*QUICK), examples(*SLOW)
SLOW_EXAMPLES |= {name: EXAMPLES.pop(name) for name in list(EXAMPLES) if name.startswith(LONG)}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(example):
    example.globs.update(np=np, tf=tf, keras=keras, keras_tfm=keras_tfm)
    said: list = []
    results = doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert not results.failed, "".join(said)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_give_what_they_say(name):
    run(EXAMPLES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_EXAMPLES)
def test_examples_with_models_give_what_they_say(name):
    run(SLOW_EXAMPLES[name])


@pytest.mark.parametrize("package", [*QUICK, *SLOW, keras_tfm.visualize.plots])
def test_public_names_have_an_example(package):
    """A configuration's example is its model's, or its task's."""
    missing = []
    for key, value in inspect.getmembers(package):
        is_one = inspect.isclass(value) or inspect.isfunction(value)
        if key[0] == "_" or not is_one or not value.__module__.startswith("keras_tfm."):
            continue
        if inspect.isclass(value) and issubclass(value, Config):
            continue
        if not doctest.DocTestParser().get_examples(value.__doc__ or ""):
            missing.append(key)
    assert not missing
