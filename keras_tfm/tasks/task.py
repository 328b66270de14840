"""A task: what a user trains, asks, keeps and exports."""

import abc
import dataclasses
import hashlib
import json
import pathlib
import re
from typing import Any

import tensorflow as tf

import keras_tfm.models
from keras_tfm.configs import Config, brief, refuse_sizes
from keras_tfm.data.inputs import read_input_lines
from keras_tfm.data.sources import DataError
from keras_tfm.heads.language_model import LanguageModel
from keras_tfm.training.folder import mark_saved_model, new_folder
from keras_tfm.training.quantization import quantization_of, quantize
from keras_tfm.training.safetensors import CheckpointError, read_json, read_tensors
from keras_tfm.training.weights import load_weights, save_weights
from keras_tfm.version import __version__

WEIGHTS = "model.safetensors"
SMALL = 1_000  # numbers: seeds of dropout, for example, are in no file of weights


class TaskError(ValueError):
    """A task's folder that cannot be used: names the file, what was expected and what came."""


class Task(abc.ABC):
    """A plain object that holds `.model`, `.tokenizer` where there is one, and `.config`.

    `task(batch)` takes token dicts or image arrays and gives logits. A folder keeps a task:
    config.json with its "task", model.safetensors, and what `save_parts` adds; weights in 8 bits stay so.
    `is_trained` is False of a task whose folder says that no epoch of its training has ended.
    """

    name: str  # in config.json and on the command line
    config_class: Any  # a class derived from Config
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

    def read_inputs(self, path, columns=None):
        """What `predict` takes, as `data.Inputs`, from a text file or from one as for training, whose labels
        are passed over.
        """
        refuse_columns(columns, "lines of text have none")
        return read_input_lines(path)

    def refusals(self, examples, **options):
        """{row: why} of those of the `examples` that `predict`, given its `options`, cannot answer; it raises
        ValueError, before it answers any, where there is one.
        """
        return {}

    def as_line(self, answer):
        """One of `predict`'s answers as a line of text."""
        return str(answer).replace("\n", " ")

    def save(self, folder, overwrite=False, trained=True):
        """Write the task to a new `folder`, whole or not at all; FileExistsError where it exists.

        `trained=False` says in it that its training has yet to begin.
        """
        with new_folder(folder, overwrite) as work:
            self.save_parts(work)
            config = {
                "task": self.name,
                "keras_tfm": __version__,
                "config": dataclasses.asdict(self.config),
                "model": self.describe_model(),
                "files": {file.name: _digest(file) for file in sorted(work.iterdir())},
            }
            if quantization := quantization_of(self.model):
                config["quantization"] = quantization
            (work / "config.json").write_text(
                json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8"
            )
            save_weights(self.model, work / WEIGHTS, trained)

    @classmethod
    def load(cls, folder, quantization=None):
        """The task that `save` wrote; with `quantization` "int8", its weights are in 8 bits from here on.

        TaskError, DataError or CheckpointError say what is wrong with the folder. Nothing is made of a size
        that the file of weights does not bear out.
        """
        folder = pathlib.Path(folder)
        content = read_config(folder)
        if content["task"] != cls.name:
            raise TaskError(f"{folder}: its task is {content['task']!r}, expected {cls.name!r}")
        check_files(folder, content.get("files", {}))
        kept = content.get("quantization")
        try:
            config = cls.config_class.from_json(content["config"])
            _, sizes = backbone_of(content["model"])
            tensors = read_tensors(folder / WEIGHTS)[0].values()
            refuse_sizes(sizes, [tensor.shape for tensor in tensors])
            with no_variable_larger_than(max((tensor.size for tensor in tensors), default=0)):
                task = cls.load_parts(folder, config, content["model"])
        except (TaskError, DataError, CheckpointError):
            raise
        except (ValueError, TypeError, KeyError, AttributeError, tf.errors.OpError) as error:
            problem = " ".join(str(error).split())[:300]
            message = f"{folder}/config.json: not a configuration of {cls.name!r}: {problem}"
            raise TaskError(message) from error
        if kept is not None:
            try:
                quantize(task.model, kept)
            except ValueError as error:
                raise TaskError(f"{folder}/config.json: {error}") from None
        task.is_trained = load_weights(task.model, folder / WEIGHTS)
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


def refuse_rows(refusals):
    """ValueError that names the first row that cannot be answered, and why; see `Task.refusals`."""
    for row, reason in refusals.items():
        others = f" ({len(refusals) - 1:,} more rows cannot be answered)" if len(refusals) > 1 else ""
        raise ValueError(f"row {row}: {reason}{others}")


def refuse_columns(columns, why):
    """ValueError where `columns` were chosen of examples that have none."""
    if columns is not None:
        raise ValueError(f"--columns: {why}")


def read_config(folder):
    """The content of a task folder's config.json; TaskError where there is none, or not a task's."""
    path = pathlib.Path(folder) / "config.json"
    if not path.exists():
        raise TaskError(f"{folder}: no task folder, it has no config.json")
    try:
        content = read_json(path)
    except CheckpointError as error:
        raise TaskError(str(error)) from None
    for name, kind in (("task", str), ("config", dict), ("model", dict)):
        if not isinstance(content.get(name), kind):
            words = {str: "a string", dict: "an object"}[kind]
            raise TaskError(f"{path}: expected {words} as {name!r}, got {brief(content.get(name))}")
    version = content.get("keras_tfm", __version__)
    if not isinstance(version, str) or not re.match(r"\d{1,9}\.\d{1,9}", version):
        raise TaskError(f"{path}: expected the version that wrote it as 'keras_tfm', got {brief(version)}")
    if _release(version) > _release(__version__):
        raise TaskError(f"{path}: written by keras_tfm {version}, newer than this one, {__version__}")
    return content


def _release(version):
    """The two first numbers of a version: a later third one changes no format."""
    return [int(number) for number in re.findall(r"\d+", version)[:2]]


def check_files(folder, digests):
    """Raise TaskError unless `folder` holds the files that were saved beside the weights, unchanged.

    A tokenizer of another model, or of another size, would make the weights answer garbage.
    """
    if not isinstance(digests, dict):
        raise TaskError(f"{folder}/config.json: expected an object as 'files', got {brief(digests)}")
    for name, digest in digests.items():
        path = folder / name
        if pathlib.PurePath(name).name != name or not path.is_file():
            raise TaskError(f"{folder}: expected the file {brief(name)}, as its config.json says, got none")
        if _digest(path) != digest:
            raise TaskError(f"{path}: expected the file that was saved with these weights, got another")


def _digest(path):
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def no_variable_larger_than(size):
    """A scope in which ValueError stops at the first variable of more than `size` numbers."""

    def create(next_creator, **options):
        variable = next_creator(**options)
        if (count := variable.shape.num_elements()) > max(size, SMALL):
            raise ValueError(f"it asks for a weight of {count:,} numbers; the largest kept has {size:,}")
        return variable

    return tf.variable_creator_scope(create)


def describe_backbone(model):
    """A configured model as JSON values: its class's name and its configuration."""
    return {"class": type(model).__name__, "config": dataclasses.asdict(model.config)}


def backbone_of(description):
    """The class and the configuration of `describe_backbone`'s values; ValueError for others."""
    known = {
        name: value
        for name, value in vars(keras_tfm.models).items()
        if isinstance(value, type) and hasattr(value, "config_class")
    }
    name = description.get("class")
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"unknown model class {brief(name)}; known are {', '.join(known)}")
    return known[name], known[name].config_class.from_json(description.get("config"))


def make_backbone(description):
    """The model, with fresh weights, of `describe_backbone`'s values; ValueError for others."""
    model_class, config = backbone_of(description)
    return model_class(config)


@dataclasses.dataclass(frozen=True)
class LanguageModelArguments(Config):
    """What a `LanguageModel` takes beside its backbone."""

    tied: bool | None = None
    use_bias: bool = False


def describe_language_model(model):
    """A `LanguageModel` as JSON values: its backbone's, and its head's arguments."""
    return {**describe_backbone(model.backbone), "head": {"tied": model.tied, "use_bias": model.use_bias}}


def make_language_model(description):
    """The `LanguageModel`, with fresh weights, of `describe_language_model`'s values."""
    head = LanguageModelArguments.from_json(description.get("head", {}))
    return LanguageModel(make_backbone(description), head.tied, head.use_bias)
