"""Packages import what they offer once it is asked for, and the table of tasks says where each stands."""

import importlib
import inspect
import pathlib
import pkgutil
import random
import sys

import pytest

from keras_tfm import tasks
from keras_tfm.asking import ASKED
from keras_tfm.tasks.task import task_called

TWO = """
import random

random.random()
TWO = 2
"""
INIT = """
from typing import TYPE_CHECKING

from keras_tfm import on_demand

if TYPE_CHECKING:
    from lazy.one import ONE
    from lazy.two import TWO as SECOND
else:
    on_demand.begin(globals())


def third():
    return 3
"""


@pytest.fixture
def lazy(tmp_path, monkeypatch):
    (tmp_path / "lazy").mkdir()
    for name, text in (("__init__", INIT), ("one", "ONE = 1\n"), ("two", TWO)):
        (tmp_path / "lazy" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("lazy")
    for name in [name for name in sys.modules if name.partition(".")[0] == "lazy"]:
        del sys.modules[name]


def test_a_name_is_imported_when_it_is_asked_for(lazy):
    assert lazy.__all__ == ["ONE", "SECOND", "third"] and {"ONE", "third"} <= set(dir(lazy))
    assert "lazy.one" not in sys.modules
    random.seed(0)
    assert lazy.SECOND == 2 and "lazy.one" not in sys.modules
    assert random.random() == random.Random(0).random()  # an import draws no number
    namespace = {}
    exec("from lazy import *", namespace)
    assert (namespace["ONE"], namespace["SECOND"], namespace["third"]()) == (1, 2, 3)
    with pytest.raises(AttributeError, match="module 'lazy' has no attribute 'four'"):
        lazy.four  # noqa: B018 - reading it is what fails


def test_a_name_stays_where_a_module_has_it_too(lazy):
    """As `training.strategy`, a function in the module of this name."""
    (pathlib.Path(lazy.__file__).parent / "SECOND.py").write_text("")
    importlib.import_module("lazy.SECOND")
    assert lazy.SECOND == 2 and "lazy.SECOND" in sys.modules


def test_the_table_says_where_each_task_stands():
    places = {}
    for info in pkgutil.walk_packages(tasks.__path__, f"{tasks.__name__}."):
        for _, value in inspect.getmembers(importlib.import_module(info.name), inspect.isclass):
            if "name" in vars(value) and value.__module__ == info.name and issubclass(value, tasks.Task):
                places[value.name] = f"{info.name}:{value.__name__}"
    assert places == {name: f"{tasks.__name__}.{asked.place}" for name, asked in ASKED.items()}
    assert all(task_called(name).name == name for name in ASKED)


def test_the_name_of_a_task_is_taken():
    with pytest.raises(ValueError, match=r"Two tasks have the name 'tag': .*:TokenClassifier"):
        type("Mine", (tasks.Task,), {"name": "tag", "__module__": __name__})
    with pytest.raises(ValueError, match=r"unknown task 'tagg' \(did you mean tag"):
        task_called("tagg")
