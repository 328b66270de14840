"""The model that a name on the command line stands for."""

import os
import pathlib
from typing import Any


def model_of(name: str) -> Any:
    """The model of a RUN with its head, or a model of a published size, FAMILY:SIZE.

    To be called in a scope where variables get no values. ValueError for any other name.
    """
    import keras_tfm.models

    if os.path.isdir(name):
        return _model_of_run(name)
    families: dict[str, Any] = {
        key.lower(): value
        for key, value in vars(keras_tfm.models).items()
        if isinstance(value, type) and getattr(value, "sizes", None)
    }
    family, colon, size = name.partition(":")
    if not colon or family.lower() not in families:
        known = ", ".join(sorted(families))
        raise ValueError(f"{name}: expected a RUN, or FAMILY:SIZE such as bert:base; families are {known}")
    return families[family.lower()].from_size(size)


def _model_of_run(folder: str) -> Any:
    """The model of the task in `folder`, with its head; ValueError if it is not a Keras model."""
    from keras_tfm.tasks.task import TASKS
    from keras_tfm.tasks.task_folder import read_config

    content = read_config(folder)
    if content["task"] not in TASKS:
        raise ValueError(f"{folder}: unknown task {content['task']!r}; known are {', '.join(TASKS)}")
    if "class" not in content["model"]:
        raise ValueError(f"{folder}: the task {content['task']!r} has no Keras model to count")
    task_class = TASKS[content["task"]]
    config = task_class.config_class.from_json(content["config"])
    return task_class.load_parts(pathlib.Path(folder), config, content["model"]).model
