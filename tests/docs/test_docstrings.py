"""The examples in the docstrings of layers, heads, models and decoding give what they say."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import keras_tfm
import keras_tfm.generation
import keras_tfm.heads
import keras_tfm.layers
import keras_tfm.models


def examples():
    """Every docstring with an example: {name: doctest}."""
    found = {}
    for package in (keras_tfm.layers, keras_tfm.heads, keras_tfm.models, keras_tfm.generation):
        modules = [info.name for info in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
        for name in (package.__name__, *modules):
            for each in doctest.DocTestFinder().find(importlib.import_module(name)):
                if each.examples:
                    found[each.name] = each
    return found


EXAMPLES = examples()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_give_what_they_say(name):
    EXAMPLES[name].globs.update(np=np, keras_tfm=keras_tfm)
    said: list = []
    results = doctest.DocTestRunner(verbose=False).run(EXAMPLES[name], out=said.append)
    assert not results.failed, "".join(said)
