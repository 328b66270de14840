"""The examples in docstrings give what they say; those of tasks, which train models, are slow tests.

Each runs in an empty folder, so that one that reads a file writes it first, under a short name.
"""

import doctest
import importlib
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
import keras_tfm.word_vectors


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


EXAMPLES = examples(
    keras_tfm.layers,
    keras_tfm.heads,
    keras_tfm.models,
    keras_tfm.generation,
    keras_tfm.data,
    keras_tfm.training,
    keras_tfm.visualize,
    keras_tfm.word_vectors,
    keras_tfm.convert,
)
OF_TASKS = examples(keras_tfm.tasks)


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
@pytest.mark.parametrize("name", OF_TASKS)
def test_examples_of_tasks_give_what_they_say(name):
    run(OF_TASKS[name])
