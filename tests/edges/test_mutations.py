"""Configurations of folders, changed at random: a folder loads, or is refused in one line; nothing hangs."""

import copy
import json
import math
import random
import shutil
import time

import pytest

from keras_tfm import tasks
from keras_tfm.convert import from_huggingface
from keras_tfm.data import read_huggingface_tokenizer

VALUES = (
    *(None, True, False, -1, 0, 1, 2, 3, 7, 2**20, 2**31, 2**63, 10**12, 10**40, -0.5, 0.5, 1e308, math.nan),
    *("", "x", "1", "\ud800", [], {}, [1], ["x"], {"a": 1}, [[[]]], {"": None}),
)
SECONDS = 10  # of CPU time; a model that is loaded takes about one


def places(value, path=()):
    """The paths of keys and numbers to everything inside `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inside in items:
        yield (*path, key)
        yield from places(inside, (*path, key))


def mutated(content, draw):
    """`content` with one or two of its entries dropped, renamed or replaced."""
    content = copy.deepcopy(content)
    for _ in range(draw.randint(1, 2)):
        few = [place for place in places(content) if "vocab" not in place or draw.random() < 0.02]
        *path, key = draw.choice(few)
        holder = content
        for step in path:
            holder = holder[step]
        change = draw.choice(["drop", "rename", "replace", "replace", "replace"])
        if change == "replace":
            holder[key] = copy.deepcopy(draw.choice(VALUES))
        elif change == "rename" and isinstance(holder, dict):
            holder[f"{key}_"] = holder.pop(key)
        else:
            holder.pop(key)
    return content


def faults(load, folder, name, count):
    """What neither loads nor is refused as it should be, of `count` mutations of the JSON file `name`."""
    content = json.loads((folder / name).read_text())
    for seed in range(count):
        (folder / name).write_text(json.dumps(mutated(content, random.Random(seed))))
        start = time.process_time()
        try:
            load(folder)
        except ValueError as error:  # TaskError, CheckpointError and DataError are
            if "\n" in str(error) or not str(error):
                yield seed, error
        except Exception as error:
            yield seed, error
        if time.process_time() - start > SECONDS:
            yield seed, "slow"


@pytest.mark.parametrize("kind", ["translate", "generate", "classify", "classify-images", "recommend"])
def test_runs(kind, run_of, tmp_path):
    folder = shutil.copytree(run_of(kind), tmp_path / "run")
    assert list(faults(tasks.load, folder, "config.json", 60)) == []


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_published_folders(name, run_of, tmp_path):
    folder = shutil.copytree(run_of("bert"), tmp_path / "bert")
    load = from_huggingface if name == "config.json" else read_huggingface_tokenizer
    assert list(faults(load, folder, name, 60)) == []
