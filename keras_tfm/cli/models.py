"""The model that a name on the command line stands for."""

import os
import pathlib
import sys
from typing import Any

import keras_tfm.models
from keras_tfm import on_demand
from keras_tfm.cli import sizes
from keras_tfm.configs import meant
from keras_tfm.serving import plugins


def family_and_size(name: str) -> tuple[str, str]:
    """The two parts of FAMILY:SIZE, the first one spelled as its class; ValueError for any other name, and an
    unknown size of a family of this package. Nothing is imported for it.
    """
    base = sys.modules.get("keras_tfm.models.base")
    outside = {} if base is None else base.OUTSIDE
    ours = vars(keras_tfm.models)[on_demand.PLACES]
    others = {*plugins.installed("family", ours), *(key for key, x in outside.items() if x.sizes)}
    counted = sizes.table()
    uncounted = (key.removesuffix("Config") for key in ours if key.endswith("Config"))
    known = {key.lower(): key for key in (*sorted(others), *uncounted, *counted)}
    family, colon, size = name.partition(":")
    if not colon or family.lower() not in known:
        names = ", ".join(sorted(known))
        raise ValueError(f"{name}: expected a RUN, or FAMILY:SIZE such as bert:base; families are {names}")
    family = known[family.lower()]
    published = counted.get(family)
    if published is not None and size not in published:
        raise ValueError(
            f"{family} has no size {size!r}{meant(size, published)}; it has {', '.join(published)}."
        )
    return family, size


def model_of(name: str) -> Any:
    """The model of a RUN with its head, or a model of a published size, FAMILY:SIZE.

    To be called in a scope where variables get no values. ValueError for any other name.
    """
    if os.path.isdir(name):
        return _model_of_run(name)
    family, size = family_and_size(name)
    from keras_tfm.models.families import family_called

    return family_called(family).from_size(size)


def described_run(folder: str) -> dict[str, Any]:
    """The content of a RUN's config.json; ValueError if its task has no Keras model."""
    from keras_tfm.tasks.task_folder import read_config

    content = read_config(folder)
    if "class" not in content["model"]:
        raise ValueError(f"{folder}: the task {content['task']!r} has no Keras model to count")
    return content


def _model_of_run(folder: str) -> Any:
    """The model of the task in `folder`, with its head; ValueError if it is not a Keras model."""
    content = described_run(folder)
    from keras_tfm.tasks.task import task_called

    task_class = task_called(content["task"])
    config = task_class.config_class.from_json(content["config"])
    return task_class.load_parts(pathlib.Path(folder), config, content["model"]).model
