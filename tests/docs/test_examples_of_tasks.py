"""The examples in the docstrings of tasks, data, training, word vectors and pictures give what they say."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import keras_tfm
import keras_tfm.data
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


QUICK = examples(keras_tfm.data, keras_tfm.training, keras_tfm.visualize, keras_tfm.word_vectors)
SLOW = examples(keras_tfm.tasks)  # each trains a model


def run(example):
    example.globs.update(np=np, keras_tfm=keras_tfm)
    said: list = []
    results = doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert not results.failed, "".join(said)


def test_there_are_examples():
    assert len(SLOW) >= 14


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_example(name):
    run(QUICK[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_an_example_of_a_task(name):
    run(SLOW[name])
