"""A task: what a user trains, asks, keeps and exports."""

import abc
import contextlib
import dataclasses
import hashlib
import json
import math
import pathlib
import re
import types
from collections.abc import Callable, Mapping
from typing import Any, Self

import keras
import tensorflow as tf

import keras_tfm.models
from keras_tfm.configs import Config, brief, refuse_sizes
from keras_tfm.data.sources.files import DataError
from keras_tfm.data.sources.inputs import Inputs, read_input_lines
from keras_tfm.data.tokenizers.kinds import load_tokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.heads.language_model import LanguageModel
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.training.card import card, write_card
from keras_tfm.training.folder import Path, mark_saved_model, new_folder
from keras_tfm.training.quantization import quantization_of, quantize
from keras_tfm.training.record import read_record
from keras_tfm.training.safetensors import CheckpointError, read_json, read_tensors
from keras_tfm.training.weights import load_weights, save_weights
from keras_tfm.version import __version__

TASKS: dict[str, Any] = {}  # every task that has a name, by it
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
    tokenizer: Any = None
    is_trained: bool = True
    record: Mapping[str, Any] = types.MappingProxyType({})  # what training.json says, of a training here
    reads_lines: bool = True  # whether a line of text is an example that `predict` takes
    answer_names: Any = None  # of the probabilities that `predict` gives, where they are not numbered from 0

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in vars(cls):
            known = TASKS.setdefault(cls.name, cls)
            if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ValueError(f"Two tasks have the name {cls.name!r}: {known} and {cls}.")
            TASKS[cls.name] = cls

    def __call__(self, batch: Any, training: bool = False) -> Any:
        return self.model(batch, training=training)

    def save_parts(self, folder: pathlib.Path) -> None:
        """Write what belongs to the task beside its model: the tokenizer's file."""
        if self.tokenizer is not None:
            self.tokenizer.save(folder)

    def describe_model(self) -> dict[str, Any]:
        """The model as JSON values, from which `load_parts` makes it again."""
        return describe_backbone(self.model.backbone)

    @classmethod
    def load_parts(cls, folder: pathlib.Path, config: Any, model: dict[str, Any]) -> Self:
        """A task with fresh weights from its folder, its config, and `describe_model`'s values."""
        make: Any = cls
        return make(make_backbone(model), load_tokenizer(folder), config)

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        """Whether a published `model` has what this task asks of one, its head above all."""
        return False

    @abc.abstractmethod
    def export_endpoints(self) -> Endpoints:
        """{signature: (function, input signature)} of the SavedModel, `serving_default` among them."""

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        """What `predict` takes, as `data.Inputs`, from a text file or from one as for training, whose labels
        are passed over.
        """
        refuse_columns(columns, "lines of text have none")
        return read_input_lines(path)

    def refusals(self, examples: Any, **options: Any) -> dict[int, str]:
        """{row: why} of those of the `examples` that `predict`, given its `options`, cannot answer; it raises
        ValueError, before it answers any, where there is one.
        """
        return {}

    def count_truncated(self, examples: Any) -> int:
        """How many of what `predict` takes exceed the model's length, and are cut."""
        return 0

    def as_line(self, answer: Any) -> str:
        """One of `predict`'s answers as a line of text."""
        return str(answer).replace("\n", " ")

    def save(self, folder: Path, overwrite: bool = False, trained: bool = True) -> None:
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
            if quantization := self.quantization():
                config["quantization"] = quantization
            (work / "config.json").write_text(
                json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8"
            )
            self.save_weights(work / WEIGHTS, trained)
            if self.record:
                write_card(work, self.card())

    def card(self, library: str = "keras") -> str:
        """README.md, a model card for a folder of this `library`, as far as `record` tells."""
        what = f"{type(self.model).__name__} of {self.model.count_params():,} weights"
        backbone = getattr(self.model, "backbone", None)
        what += f" around {type(backbone).__name__}" if backbone is not None else ""
        return card(self.name, what, self.record, library)

    @classmethod
    def load(cls, folder: Path, quantization: str | None = None) -> Self:
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
            task = cls.load_sound_parts(folder, config, content["model"])
        except (TaskError, DataError, CheckpointError):
            raise
        except (ValueError, TypeError, KeyError, AttributeError, tf.errors.OpError) as error:
            problem = " ".join(str(error).split())[:300]
            message = f"{folder}/config.json: not a configuration of {cls.name!r}: {problem}"
            raise TaskError(message) from error
        if kept is not None:
            try:
                task.quantize(kept)
            except ValueError as error:
                raise TaskError(f"{folder}/config.json: {error}") from None
        task.is_trained = task.load_weights(folder / WEIGHTS)
        with contextlib.suppress(CheckpointError):  # a damaged record does not keep a task from answering
            task.record = read_record(folder)
        if quantization is not None and quantization != kept:
            task.quantize(quantization)
        return task

    # What follows is of tasks whose `model` is Keras's; one that holds another says its own.

    @classmethod
    def load_sound_parts(cls, folder: pathlib.Path, config: Any, model: dict[str, Any]) -> Self:
        """`load_parts`; ValueError, before it, for sizes that the file of weights does not bear out."""
        _, sizes = backbone_of(model)
        tensors = read_tensors(folder / WEIGHTS)[0].values()
        refuse_sizes(sizes, [tensor.shape for tensor in tensors])
        with no_variable_larger_than(max((tensor.size for tensor in tensors), default=0)):
            return cls.load_parts(folder, config, model)

    def save_weights(self, path: Path, trained: bool = True) -> None:
        """Write what the model has learnt to the safetensors file `path`, whole; see `save`."""
        save_weights(self.model, path, trained)

    def load_weights(self, path: Path) -> bool:
        """Read what `save_weights` wrote; whether it is of a training of which an epoch has ended."""
        return load_weights(self.model, path)

    def quantization(self) -> str | None:
        """In how few bits the weights are kept, "int8", where they are."""
        return quantization_of(self.model)

    def quantize(self, mode: str) -> None:
        """Keep the weights in fewer bits from here on; ValueError for a `mode` that there is not."""
        quantize(self.model, mode)

    def export(self, folder: Path, overwrite: bool = False, **options: Any) -> None:
        """Write one SavedModel to a new `folder`: its files directly in it.

        `options` are fixed there; for tasks that write text they are those of `generate`.
        """
        from keras_tfm.export.saved_model import write_saved_model

        endpoints = self.export_endpoints(**options)
        with new_folder(folder, overwrite) as work:
            write_saved_model(self.exported(), endpoints, self.export_resources(), work)
            mark_saved_model(work)

    def exported(self) -> Any:
        """What the endpoints compute with, trackable: the model."""
        return self.model

    def export_resources(self) -> list:
        """Trackable objects that the endpoints use beside the model: the tokenizer."""
        return [] if self.tokenizer is None else [self.tokenizer]


def load_any(folder: Path, quantization: str | None = None) -> Any:
    """The task, of whatever kind, that `save` wrote to `folder`; see `Task.load`."""
    name = read_config(folder)["task"]
    if name not in TASKS:
        raise TaskError(f"{folder}: unknown task {name!r}; known are {', '.join(TASKS)}")
    return TASKS[name].load(folder, quantization)


def is_task_folder(path: Path) -> bool:
    """Whether a task was saved at `path`, rather than a model of Hugging Face's, or nothing."""
    try:
        return "task" in read_json(pathlib.Path(path, "config.json"))
    except CheckpointError:
        return False


def check_length(max_length: int, model_config: Any) -> None:
    """ValueError where examples may have more tokens, `max_length`, than a model so configured takes."""
    most = getattr(model_config, "max_length", math.inf)  # a recurrent model reads any number of tokens
    if max_length > most:
        raise ValueError(f"`max_length` must be at most the model's, {most}; it is {max_length}.")


def check_vocabulary(model_config: Any, tokenizer: Tokenizer) -> None:
    """ValueError where the tokenizer has more tokens than a model of the configuration."""
    if model_config.vocabulary_size < tokenizer.vocabulary_size:
        raise ValueError(
            f"The vocabulary does not match the embedding: the tokenizer has {tokenizer.vocabulary_size} "
            f"tokens, the model {model_config.vocabulary_size}."
        )


def refuse_rows(refusals: Mapping[int, str]) -> None:
    """ValueError that names the first row that cannot be answered, and why; see `Task.refusals`."""
    for row, reason in refusals.items():
        others = f" ({len(refusals) - 1:,} more rows cannot be answered)" if len(refusals) > 1 else ""
        raise ValueError(f"row {row}: {reason}{others}")


def refuse_columns(columns: ColumnNames, why: str) -> None:
    """ValueError where `columns` were chosen of examples that have none."""
    if columns is not None:
        raise ValueError(f"--columns: {why}")


def read_config(folder: Path) -> dict[str, Any]:
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


def _release(version: str) -> list[int]:
    """The two first numbers of a version: a later third one changes no format."""
    return [int(number) for number in re.findall(r"\d+", version)[:2]]


def check_files(folder: pathlib.Path, digests: Any) -> None:
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


def _digest(path: pathlib.Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def no_variable_larger_than(size: int) -> contextlib.AbstractContextManager:
    """A scope in which ValueError stops at the first variable of more than `size` numbers."""

    def create(next_creator: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
        variable = next_creator(**options)
        if (count := variable.shape.num_elements()) > max(size, SMALL):
            raise ValueError(f"it asks for a weight of {count:,} numbers; the largest kept has {size:,}")
        return variable

    return tf.variable_creator_scope(create)


def describe_backbone(model: keras.Model) -> dict[str, Any]:
    """A configured model as JSON values: its class's name and its configuration."""
    return {"class": type(model).__name__, "config": dataclasses.asdict(model.config)}


def backbone_of(description: Mapping[str, Any]) -> tuple[type, Config]:
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


def make_backbone(description: Mapping[str, Any]) -> keras.Model:
    """The model, with fresh weights, of `describe_backbone`'s values; ValueError for others."""
    model_class, config = backbone_of(description)
    return model_class(config)


@dataclasses.dataclass(frozen=True)
class LanguageModelArguments(Config):
    """What a `LanguageModel` takes beside its backbone."""

    tied: bool | None = None
    use_bias: bool = False


def describe_language_model(model: LanguageModel) -> dict[str, Any]:
    """A `LanguageModel` as JSON values: its backbone's, and its head's arguments."""
    return {**describe_backbone(model.backbone), "head": {"tied": model.tied, "use_bias": model.use_bias}}


def make_language_model(description: Mapping[str, Any]) -> LanguageModel:
    """The `LanguageModel`, with fresh weights, of `describe_language_model`'s values."""
    head = LanguageModelArguments.from_json(description.get("head", {}))
    return LanguageModel(make_backbone(description), head.tied, head.use_bias)
