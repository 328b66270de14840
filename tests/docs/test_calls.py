"""The functions that a block's forward pass runs: their order, as the guide has it, and how many they are."""

import collections
import pathlib
import re
import sys

import numpy as np
import pytest

import keras_tfm
from keras_tfm.layers.attention import functional
from keras_tfm.models import BERT, GPT2, Swin, ViT
from tests.docs.pages import ROOT
from tests.docs.test_pages import pytestmark  # noqa: F401

PACKAGE = str(pathlib.Path(keras_tfm.__file__).parent) + "/"
IDS = np.ones((2, 5), "int32")


def name_of(code):
    """(Class.function, file) of this package's code; else None."""
    if not code.co_filename.startswith(PACKAGE):
        return None
    return code.co_qualname, code.co_filename.removeprefix(PACKAGE)


@pytest.fixture
def callers(monkeypatch):
    """[[(function, file) of this package, the outermost first] at each product of queries and keys]."""
    lists, product = [], functional.product

    def recorded(*arguments, **options):
        frame, names = sys._getframe(1), []
        while frame is not None:
            names.insert(0, name_of(frame.f_code))
            frame = frame.f_back
        lists.append([name for name in names if name])
        return product(*arguments, **options)

    monkeypatch.setattr(functional, "product", recorded)
    return lists


def test_the_guide_lists_what_runs(callers):
    page = (ROOT / "docs/guides/add_a_family.md").read_text("utf-8")
    section = page.split("## What a call runs\n")[1].split("\n## ")[0]
    table = re.findall(r"^\| `(.*)` \| (\S+) \|", section, re.MULTILINE)
    (before,) = re.findall(r"Before it stand (.*):", section, re.DOTALL)
    model = GPT2.from_size("tiny", vocabulary_size=10, num_layers=1)
    callers.clear()
    model({"token_ids": IDS, "padding_mask": IDS > 0})
    model.step(IDS[:, :1], model.start(2, 4))
    called, decoded = callers
    assert called == table
    names = [name for name, _ in table]
    shared = names[names.index("Attention.attend") :]
    assert [name for name, _ in decoded] == re.findall(r"`(.*?)`", before) + shared


def bert(num_layers):
    model = BERT.from_size("tiny", vocabulary_size=10, num_layers=num_layers)
    return lambda: model({"token_ids": IDS, "padding_mask": IDS > 0, "segment_ids": 0 * IDS})


def vit(num_layers):
    model = ViT.from_size("tiny", num_layers=num_layers)
    return lambda: model(np.ones((2, *model.inputs[0].shape[1:]), "float32"))


def swin(num_layers):
    model = Swin.from_size("tiny", depths=(num_layers,), num_heads=(2,))
    return lambda: model(np.ones((2, *model.inputs[0].shape[1:]), "float32"))


def gpt2_step(num_layers):
    model = GPT2.from_size("tiny", vocabulary_size=10, num_layers=num_layers)
    cache = model.start(2, 8)
    return lambda: model.step(IDS[:, :1], cache)


def counted(function):
    """How often each function of this package is called in the third run of `function`."""
    calls: collections.Counter = collections.Counter()

    def count(frame, event, _):
        if event == "call" and (name := name_of(frame.f_code)):
            calls[name] += 1

    function()
    function()
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize(("make", "most"), [(bert, 64), (vit, 62), (swin, 76), (gpt2_step, 68)])
def test_a_block_calls_few_functions(make, most):
    """Calls of this package's functions in one block, without a graph: half of what two more blocks call."""
    more = counted(make(4)) - counted(make(2))
    assert more.total() / 2 <= most, more.most_common()
