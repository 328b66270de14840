"""The model that a name on the command line stands for."""

import os
import pathlib
from typing import Any


def model_of(name: str) -> Any:
    """The model of a RUN with its head, or a model of a published size, FAMILY:SIZE.

    To be called in a scope where variables get no values. ValueError for any other name.
    """
    from keras_tfm.models.families import family_called, names_with_sizes

    if os.path.isdir(name):
        return _model_of_run(name)
    known = {key.lower(): key for key in names_with_sizes()}
    family, colon, size = name.partition(":")
    if not colon or family.lower() not in known:
        names = ", ".join(sorted(known))
        raise ValueError(f"{name}: expected a RUN, or FAMILY:SIZE such as bert:base; families are {names}")
    return family_called(known[family.lower()]).from_size(size)


def _model_of_run(folder: str) -> Any:
    """The model of the task in `folder`, with its head; ValueError if it is not a Keras model."""
    from keras_tfm.tasks.task import task_called
    from keras_tfm.tasks.task_folder import read_config

    content = read_config(folder)
    task_class = task_called(content["task"])
    if "class" not in content["model"]:
        raise ValueError(f"{folder}: the task {content['task']!r} has no Keras model to count")
    config = task_class.config_class.from_json(content["config"])
    return task_class.load_parts(pathlib.Path(folder), config, content["model"]).model
