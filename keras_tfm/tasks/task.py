"""A task: what a user trains, asks, keeps and exports."""

import abc
import dataclasses
import json
import pathlib
from typing import Any

import keras_tfm.models
from keras_tfm.heads.language_model import LanguageModel
from keras_tfm.training.folder import mark_saved_model, new_folder
from keras_tfm.training.quantization import quantization_of, quantize
from keras_tfm.training.weights import load_weights, save_weights
from keras_tfm.version import __version__


class TaskError(ValueError):
    """A task's folder that cannot be used: names the file, what was expected and what came."""


class Task(abc.ABC):
    """A plain object that holds `.model`, `.tokenizer` where there is one, and `.config`.

    `task(batch)` takes token dicts or image arrays and gives logits. A folder keeps a task:
    config.json with its "task", model.safetensors, and what `save_parts` adds; weights in 8 bits stay so.
    `is_trained` is False of a task whose folder says that no epoch of its training has ended.
    """

    name: str  # in config.json and on the command line
    config_class: type
    model: Any
    config: Any
    is_trained: bool = True

    def __call__(self, batch, training=False):
        return self.model(batch, training=training)

    @abc.abstractmethod
    def save_parts(self, folder):
        """Write what belongs to the task beside its model, tokenizer files for example."""

    @abc.abstractmethod
    def describe_model(self):
        """The model as JSON values, from which `load_parts` makes it again."""

    @classmethod
    @abc.abstractmethod
    def load_parts(cls, folder, config, model):
        """A task with fresh weights from its folder, its config, and `describe_model`'s values."""

    @abc.abstractmethod
    def export_endpoints(self):
        """{signature: (function, input signature)} of the SavedModel, `serving_default` among them."""

    def as_line(self, answer):
        """One of `predict`'s answers as a line of text."""
        return str(answer).replace("\n", " ")

    def save(self, folder, overwrite=False, trained=True):
        """Write the task to a new `folder`, whole or not at all; FileExistsError where it exists.

        `trained=False` says in it that its training has yet to begin.
        """
        with new_folder(folder, overwrite) as work:
            config = {
                "task": self.name,
                "keras_tfm": __version__,
                "config": dataclasses.asdict(self.config),
                "model": self.describe_model(),
            }
            if quantization := quantization_of(self.model):
                config["quantization"] = quantization
            (work / "config.json").write_text(
                json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8"
            )
            save_weights(self.model, work / "model.safetensors", trained)
            self.save_parts(work)

    @classmethod
    def load(cls, folder, quantization=None):
        """The task that `save` wrote; with `quantization` "int8", its weights are in 8 bits from here on.

        TaskError or CheckpointError say what is wrong with the folder.
        """
        content = read_config(folder)
        if content["task"] != cls.name:
            raise TaskError(f"{folder}: its task is {content['task']!r}, expected {cls.name!r}")
        try:
            task = cls.load_parts(
                pathlib.Path(folder), cls.config_class(**content["config"]), content["model"]
            )
        except (KeyError, TypeError) as error:
            raise TaskError(f"{folder}/config.json: not a configuration of {cls.name!r} ({error})") from None
        kept = content.get("quantization")
        if kept is not None:
            try:
                quantize(task.model, kept)
            except ValueError as error:
                raise TaskError(f"{folder}/config.json: {error}") from None
        task.is_trained = load_weights(task.model, pathlib.Path(folder) / "model.safetensors")
        if quantization not in (None, kept):
            quantize(task.model, quantization)
        return task

    def export(self, folder, overwrite=False, **options):
        """Write one SavedModel to a new `folder`: its files directly in it.

        `options` are fixed there; for tasks that write text they are those of `generate`.
        """
        from keras_tfm.export.saved_model import write_saved_model

        endpoints = self.export_endpoints(**options)
        with new_folder(folder, overwrite) as work:
            write_saved_model(self.model, endpoints, self.export_resources(), work)
            mark_saved_model(work)

    def export_resources(self):
        """Trackable objects that the endpoints use beside the model, tokenizers for example."""
        return []


def read_config(folder):
    """The content of a task folder's config.json; TaskError where there is none, or not a task's."""
    path = pathlib.Path(folder) / "config.json"
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise TaskError(f"{folder}: no task folder, it has no config.json") from None
    except (ValueError, OSError) as error:
        raise TaskError(f"{path}: not a JSON file ({error})") from None
    if not isinstance(content, dict) or not {"task", "config", "model"} <= content.keys():
        raise TaskError(f'{path}: expected the fields "task", "config" and "model"')
    return content


def describe_backbone(model):
    """A configured model as JSON values: its class's name and its configuration."""
    return {"class": type(model).__name__, "config": dataclasses.asdict(model.config)}


def make_backbone(description):
    """The model, with fresh weights, of `describe_backbone`'s values; TaskError for unknown classes."""
    known = {
        name: value
        for name, value in vars(keras_tfm.models).items()
        if isinstance(value, type) and hasattr(value, "config_class")
    }
    name = description["class"]
    if name not in known:
        raise TaskError(f"config.json: unknown model class {name!r}; known are {', '.join(known)}")
    model_class = known[name]
    return model_class(model_class.config_class(**description["config"]))


def describe_language_model(model):
    """A `LanguageModel` as JSON values: its backbone's, and its head's arguments."""
    return {**describe_backbone(model.backbone), "head": {"tied": model.tied, "use_bias": model.use_bias}}


def make_language_model(description):
    """The `LanguageModel`, with fresh weights, of `describe_language_model`'s values."""
    return LanguageModel(make_backbone(description), **description.get("head", {}))
