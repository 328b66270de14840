"""The base class of all tasks, and how a task is saved to a folder and loaded from it."""

import abc
import contextlib
import dataclasses
import functools
import inspect
import json
import math
import pathlib
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import keras
import tensorflow as tf

from keras_tfm import on_demand
from keras_tfm.asking import ASKED, TASKS, TEXTS, Asking
from keras_tfm.configs import Config, Refusal, brief, checked, meant, refuse_sizes
from keras_tfm.data.sources.lines import DataError, Inputs, read_input_lines
from keras_tfm.data.sources.rows import Layout
from keras_tfm.data.tokenizers.kinds import load_tokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.models.families import family_called
from keras_tfm.private.keras import checking_variables, initialize
from keras_tfm.serving import plugins
from keras_tfm.serving.examples import check_batch_size, listed, reasons, refuse_rows
from keras_tfm.serving.files import digest_of
from keras_tfm.tasks.signatures import ColumnNames, Endpoints, Inspection, Signature
from keras_tfm.tasks.task_folder import TaskError, check_files, read_config
from keras_tfm.training.card import card, write_card
from keras_tfm.training.folder import Path, new_folder
from keras_tfm.training.quantization import quantization_of, quantize
from keras_tfm.training.record import read_record, write_record
from keras_tfm.training.safetensors import CheckpointError, read_tensors
from keras_tfm.training.weights import load_weights, save_weights
from keras_tfm.version import __version__

HERE = __name__.rpartition(".")[0]
WEIGHTS = "model.safetensors"
OF_TRAINING = ("is_trained", "record", "has_given_weights")  # attributes of a task that its training set
GIVING = ("from_huggingface", "start_from")  # class methods that make a task of weights from elsewhere
SMALL = 1_000  # values: smaller variables, such as dropout's seeds, need not be in the file of weights


class Task(abc.ABC):
    """An object with a `model`, a `config` and, for texts, a `tokenizer`: what a user trains, asks and
    exports.

    `task(batch)` takes a dict of token tensors, or an array of images, and returns logits; `predict` takes
    raw texts or images. A saved task is a folder with config.json (its "task" names the class),
    model.safetensors and the tokenizer's files. `is_trained` is False if the folder says that no epoch of its
    training has ended.

    >>> class Doubler(keras_tfm.tasks.Task):
    ...     def __init__(self):
    ...         self.model = keras.layers.Rescaling(2.0)
    ...     def export_endpoints(self):
    ...         return {}
    >>> Doubler()(np.array([1.0, 2.0])).numpy().tolist()
    [2.0, 4.0]
    """

    name: str  # in config.json and on the command line
    config_class: Any  # a class derived from Config
    model: Any
    config: Any
    tokenizer: Any = None
    is_trained: bool = True
    has_given_weights: bool = False  # whether it was loaded, read or adopted, and trains on more gently
    record: Mapping[str, Any] = types.MappingProxyType({})  # the content of training.json
    asking: ClassVar[Asking] = Asking()  # the options of `predict` on the command line
    input_files: ClassVar[str] = TEXTS  # what `read_inputs` reads, in one line
    help: ClassVar[str]  # of a task that learns: what it does, in one line, "train a model that …"
    reads_lines: bool = True  # whether `predict` takes a line of text as an example
    portion: Any = None  # how many inputs of a file are read and answered at once; None for all
    writes_texts: bool = False  # whether it answers by decoding: its signature's function is a `Writing`
    measures_texts: bool = False  # whether `measure` decodes too, and takes the options of it
    # {option of `predict` that names a folder: how its files end}, where these are no PNGs
    picture_suffixes: ClassVar[Mapping[str, str]] = types.MappingProxyType({})
    record_fields: Any = ("answer",)  # what `records` gives of each example
    # A function of a backbone and the head's arguments, of a task that keeps these; or, if there are several
    # classes of heads, these, of which a folder names one.
    make_head: ClassVar[Any] = None
    head_classes: ClassVar[tuple[Any, ...]] = ()
    answer_names: Any = None  # the labels of the probabilities from `predict`; None numbers them from 0

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in GIVING:
            if isinstance(method := vars(cls).get(name), classmethod):
                setattr(cls, name, classmethod(_of_given_weights(method.__func__)))
        if "name" in vars(cls):
            asked = ASKED.get(cls.name)
            known = _place(TASKS.get(cls.name, cls)) if asked is None else f"{HERE}.{asked.place}"
            if known != _place(cls):
                raise ValueError(f"Two tasks have the name {cls.name!r}: {known} and {_place(cls)}.")
            if asked is not None:
                _, cls.asking, cls.input_files, cls.help, _ = asked
            TASKS[cls.name] = cls

    def __reduce__(self) -> tuple:
        """A task is pickled and copied as the files that `save` writes: resources of TensorFlow cannot be.
        The state of a training, compiled functions and optimizers are left out.
        """
        with tempfile.TemporaryDirectory() as parent:
            folder = pathlib.Path(parent, "task")
            self.save(folder)
            files = {file.relative_to(folder): file for file in folder.rglob("*") if file.is_file()}
            contents = {str(name): file.read_bytes() for name, file in files.items()}
        state = {name: getattr(self, name) for name in OF_TRAINING} | {"record": dict(self.record)}
        return _of_files, (type(self), contents), state

    def __call__(self, batch: Any, training: bool = False) -> Any:
        return self.model(batch, training=training)

    def save_parts(self, folder: pathlib.Path) -> None:
        """Write what belongs to the task besides its model: the tokenizer's file."""
        if self.tokenizer is not None:
            self.tokenizer.save(folder)

    def describe_model(self) -> dict[str, Any]:
        """The model's class and configuration as JSON values, from which `load_parts` makes it again."""
        described, kind = describe_backbone(getattr(self.model, "backbone", self.model)), type(self.model)
        if not self.make_head and kind not in self.head_classes:
            return described
        head = {"class": kind.__name__} if self.head_classes else {}
        head |= self.model.head_arguments
        head.pop("kernel_initializer", None)  # initial values do not matter
        return described | {"head": head}

    @classmethod
    def make_model(cls, model: dict[str, Any], config: Any) -> keras.Model:
        """The model that `describe_model` describes, with fresh weights: the backbone alone where the folder
        keeps no head.
        """
        backbone, make = make_backbone(model), cls.make_head
        if "head" not in model or not (make or cls.head_classes):
            return backbone
        # Heads of earlier segmenters do not say how many classes they have.
        count = {"num_classes": len(config.class_names)} if hasattr(config, "class_names") else {}
        if not isinstance(model["head"], Mapping):
            raise ValueError(f"`head`: expected an object of fields, got {brief(model['head'])}")
        head = {**count, **model["head"]}
        if cls.head_classes:
            make = {known.__name__: known for known in cls.head_classes}[head.pop("class")]
        parameters = inspect.signature(make).parameters
        for name in head.keys() & parameters.keys():
            with contextlib.suppress(KeyError):  # of an annotation that no configuration has
                head[name] = checked(head[name], parameters[name].annotation, name)
        return make(backbone, **head)

    @classmethod
    def load_parts(cls, folder: pathlib.Path, config: Any, model: dict[str, Any]) -> Self:
        """A task with fresh weights, made from its folder, its config and the values of `describe_model`: of
        the model that `make_model` makes, of the tokenizer if it takes one, and of the config or its fields.
        """
        make: Any = cls
        parameters = inspect.signature(cls).parameters
        parts: list[Any] = [cls.make_model(model, config)]
        if "tokenizer" in parameters:
            parts.append(load_tokenizer(folder))
        if "config" in parameters:
            return make(*parts, config)
        return make(*parts, **dataclasses.asdict(config))

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        """Whether this task can use a published `model`: above all, whether the model has the task's head."""
        return False

    def export_endpoints(self, *rest: Any, **options: Any) -> Endpoints:
        """{endpoint: (function, input signature)} of the SavedModel, of the `signature` with these options;
        one is `serving_default`.
        """
        from keras_tfm.export.endpoints import endpoints_of

        return endpoints_of(self.signature(*rest, **options))

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        """Yield what `predict` takes from a file, each example with its place: lines of text, or a file as
        for training, whose labels are ignored.
        """
        refuse_columns(columns, "lines of text have none")
        return read_input_lines(path)

    def inspect(self, examples: Any, **options: Any) -> Inspection:
        """What comes before `predict` with these `options`: what is refused, what is cut, and the rest."""
        refusals = self.refusals(examples, **options)
        rest = [example for row, example in enumerate(examples) if row not in refusals]
        return Inspection(refusals, self.count_truncated(rest), rest)

    def refusals(self, examples: Any, **options: Any) -> dict[int, str]:
        """{row: reason} for those `examples` that `predict` cannot answer with these `options`. `predict`
        raises a ValueError for the first of them before it answers any.
        """
        return reasons(examples, self.refusal)

    def refusal(self, example: Any) -> str | None:
        """Why `predict` cannot answer this `example`, or None: it is no string, for instance."""
        return None

    def answerable(self, examples: Any, batch_size: int = 1, **options: Any) -> list:
        """The `examples` of `predict` as a list. ValueError for a single one in its place, for the first row
        that cannot be answered, and for a `batch_size` below 1.
        """
        check_batch_size(batch_size)
        examples = listed(examples)
        refuse_rows(self.refusals(examples, **options))
        return examples

    def count_truncated(self, examples: Any) -> int:
        """How many of `examples`, inputs of `predict`, are longer than the model reads, and are cut."""
        return 0

    def records(self, examples: Any, /, *rest: Any, **options: Any) -> list[dict[str, Any]]:
        """The answer of `predict` to each example and what is known of it, {name: value} for each of the
        `record_fields`: "answer", and where the task has it "confidence", from 0 to 1.

        With `probabilities=True`, of tasks that have them, also "probabilities", {label: probability}.
        """
        task: Any = self
        return [{"answer": self.as_value(answer)} for answer in task.predict(examples, *rest, **options)]

    def as_value(self, answer: Any) -> Any:
        """One answer of `predict` as it stands in `records`."""
        return answer

    def as_line(self, answer: Any) -> str:
        """One answer of `predict` as a line of text."""
        return str(answer).replace("\n", " ")

    def save(self, folder: Path, overwrite: bool = False, trained: bool | None = None) -> None:
        """Write the task to the new folder `folder`; it appears complete or not at all.

        Args:
            folder: where to write.
            overwrite: replace the folder if it exists; otherwise that is a FileExistsError.
            trained: False records that no epoch of the training has ended yet; by default `is_trained`.
        """
        with new_folder(folder, overwrite, as_run=True) as work:
            self.save_parts(work)
            model = self.describe_model()
            config = {
                "task": self.name,
                "keras_tfm": __version__,
                **plugins_of(type(self), model),
                "config": dataclasses.asdict(self.config),
                "model": model,
                "files": {file.name: digest_of(file) for file in sorted(work.iterdir())},
            }
            if quantization := self.quantization():
                config["quantization"] = quantization
            text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
            # A name of a folder or file may be no UTF-8: JSON has an escape for what stands for its bytes.
            (work / "config.json").write_text(text, "utf-8", "backslashreplace")
            self.save_weights(work / WEIGHTS, self.is_trained if trained is None else trained)
            if self.record:
                write_record(work, dict(self.record))
                write_card(work, self.card())

    def card(self, library: str = "keras") -> str:
        """The text of README.md, a model card for a folder of this `library`, made from `record`."""
        what = f"{type(self.model).__name__} of {self.model.count_params():,} weights"
        backbone = getattr(self.model, "backbone", None)
        what += f" around {type(backbone).__name__}" if backbone is not None else ""
        return card(self.name, what, self.record, library)

    @classmethod
    def load(cls, folder: Path, quantization: str | None = None) -> Self:
        """The task that `save` wrote to `folder`; `quantization="int8"` converts its weights to 8 bits.

        The sizes in config.json are checked against the shapes in the file of weights before a model is made.

        Raises:
            TaskError, DataError, CheckpointError: if a file of the folder is missing or not as it must be.
        """
        folder = pathlib.Path(folder)
        content = read_config(folder)
        if content["task"] != cls.name:
            raise TaskError(f"{folder}: its task is {content['task']!r}, expected {cls.name!r}")
        check_files(folder, content.get("files", {}))
        kept = content.get("quantization")
        try:
            config = cls.config_class.from_json(content["config"])
            task, made = cls.load_sound_parts(folder, config, content["model"])
        except (TaskError, DataError, CheckpointError):
            raise
        except (ValueError, TypeError, KeyError, AttributeError, tf.errors.OpError) as error:
            problem = " ".join(str(error).split())[:300]
            message = f"{folder}/config.json: not a configuration of {cls.name!r}: {problem}"
            raise TaskError(message) from error
        if kept is not None:
            try:
                initialize(made)
                task.quantize(kept)
            except ValueError as error:
                raise TaskError(f"{folder}/config.json: {error}") from None
        task.is_trained = task.has_given_weights = task.load_weights(folder / WEIGHTS)
        initialize(made)
        with contextlib.suppress(CheckpointError):  # a damaged record does not keep a task from answering
            task.record = read_record(folder)
        if quantization is not None and quantization != kept:
            task.quantize(quantization)
        return task

    # The methods below are for a Keras `model`; a task with another kind of model overrides them.

    @classmethod
    def load_sound_parts(
        cls, folder: pathlib.Path, config: Any, model: dict[str, Any]
    ) -> tuple[Self, Sequence[keras.Variable]]:
        """`load_parts`, after a check of the model's sizes against the shapes in the file of weights
        (ValueError), and the variables of it, which have no values yet.
        """
        _, sizes = backbone_of(model)
        tensors = read_tensors(folder / WEIGHTS)[0].values()
        refuse_sizes(sizes, [tensor.shape for tensor in tensors])
        with no_variable_larger_than(max((tensor.size for tensor in tensors), default=0)) as made:
            return cls.load_parts(folder, config, model), made

    def save_weights(self, path: Path, trained: bool = True) -> None:
        """Write the model's weights to the safetensors file `path`, completely or not at all; see `save`."""
        save_weights(self.model, path, trained)

    def load_weights(self, path: Path) -> bool:
        """Read the weights that `save_weights` wrote, and return whether an epoch of their training has
        ended.
        """
        return load_weights(self.model, path)

    def quantization(self) -> str | None:
        """ "int8" if the weights are stored in 8 bits, else None."""
        return quantization_of(self.model)

    def quantize(self, mode: str) -> None:
        """Store the weights in fewer bits from now on; ValueError for an unknown `mode`."""
        quantize(self.model, mode)
        self.forget_graphs()

    @functools.cached_property
    def graphs(self) -> dict[Any, Any]:
        """What `traced` has made."""
        return {}

    def traced(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make()` gives, made once for a `key`: a function of TensorFlow that is traced of the model as
        it is.
        """
        if key not in self.graphs:
            self.graphs[key] = make()
        return self.graphs[key]

    def forget_graphs(self) -> None:
        """Let functions be traced anew, as the model has other weights, or computes in other numbers."""
        self.graphs.clear()

    def export(
        self,
        folder: Path,
        overwrite: bool = False,
        format: str = "saved_model",
        quantization: str | None = None,
        **options: Any,
    ) -> None:
        """Write the task to the new folder `folder` for servers; `keras_tfm.serving.load` answers from it.

        `format` is "saved_model", or without TensorFlow "litert", "onnx", "openvino" or, for tasks that
        answer texts by texts, "ctranslate2", with weights of 8 bits for `quantization="int8"`. `options`
        become fixed in the export; for tasks that write texts they are options of `generate`.

        Raises:
            ValueError: for a format that does not carry this task or its model's operations, or answers
                otherwise than the task: every export but a SavedModel is run and compared.
            ImportError: if the format's packages are not installed.
        """
        from keras_tfm.export.formats import export

        export(self, folder, overwrite, format, quantization, options)

    def signature(self) -> Signature:
        """What the task reads, computes and answers, if it writes texts with the options of `generate`;
        ValueError if no format but a SavedModel carries it.
        """
        raise self.no_other_format()

    def no_other_format(self) -> ValueError:
        """Why no format but a SavedModel carries the task."""
        return ValueError(
            f"The task {self.name!r} is exported as a SavedModel alone, in no other format yet."
        )

    def exported(self) -> Any:
        """The trackable object that the endpoints compute with: the model."""
        return self.model

    def export_resources(self) -> list:
        """Trackable objects that the endpoints use besides the model: the tokenizer."""
        return [] if self.tokenizer is None else [self.tokenizer]


def _of_files(cls: type[Task], files: Mapping[str, bytes]) -> Task:
    """The task whose folder has these `files`, {path: content}."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return cls.load(folder)


def _of_given_weights(make: Callable) -> Callable:
    """The function `make` of a class, with a note in the task that it returns that its weights are given."""

    @functools.wraps(make)
    def made(cls: Any, *arguments: Any, **options: Any) -> Any:
        task = make(cls, *arguments, **options)
        task.has_given_weights = task.is_trained
        return task

    return made


def load_any(folder: Path, quantization: str | None = None) -> Any:
    """The task of any kind that `save` wrote to `folder`; the arguments are as in `Task.load`.

    >>> names, sizes = ["dark", "light"], {"image_size": 8, "patch_size": 4}
    >>> task = keras_tfm.tasks.ImageClassifier.from_size("tiny", names, **sizes)
    >>> task.save("run")
    >>> keras_tfm.tasks.load("run").class_names.tolist()
    ['dark', 'light']
    """
    name = read_config(folder)["task"]
    try:
        task_class = task_called(name)
    except ValueError as error:
        raise TaskError(f"{folder}: {error}") from None
    return task_class.load(folder, quantization)


def task_called(name: str) -> Any:
    """The class of the task of this name, whose module is imported by now; ValueError if there is none."""
    if name in ASKED:
        on_demand.imported(f"{HERE}.{ASKED[name].place.partition(':')[0]}")
    elif name not in TASKS and (plugin := plugins.find("task", name)) is not None:
        plugin.load()
        if name not in TASKS:
            raise ValueError(f"The plugin {plugin} is not a task of this name.")
    if name not in TASKS:
        known = dict.fromkeys([*ASKED, *TASKS])
        raise ValueError(f"unknown task {name!r}{meant(name, known)}; known are {', '.join(known)}")
    return TASKS[name]


def each_task() -> Iterator[Any]:
    """Yield the classes of all tasks of this package, imported as they come, and of imported modules."""
    yield from (task_called(name) for name in ASKED)
    yield from (task for name, task in list(TASKS.items()) if name not in ASKED)


def _place(definition: Any) -> str:
    """Where a class stands, "module:Class"."""
    return f"{definition.__module__}:{definition.__qualname__}"


def is_ours(definition: Any) -> bool:
    """Whether a class is one of this package."""
    return definition.__module__.partition(".")[0] == "keras_tfm"


def plugins_of(task_class: type[Task], model: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of config.json about the plugins that a task and its `model`, described, are of."""
    named = {("task", task_class.name): task_class}
    if "class" in model:
        named["family", model["class"]] = family_called(model["class"])
    return plugins.distributions(*(plugins.find(*name) for name, kind in named.items() if not is_ours(kind)))


def check_length(max_length: int, model_config: Any) -> None:
    """Raise ValueError if examples of `max_length` tokens are longer than such a model can read."""
    most = getattr(model_config, "max_length", math.inf)  # a recurrent model reads any number of tokens
    if max_length > most:
        raise Refusal("max_length", f"at most the model's, {most}", max_length)


def encodes_texts(model: Any) -> bool:
    """Whether `model` is a text encoder without a head: each of its states sees the whole text."""
    is_bare = isinstance(model.output, dict) and "sequence_output" in model.output
    return is_bare and "token_ids" in model.input and not hasattr(model, "step")


def check_vocabulary(model_config: Any, tokenizer: Tokenizer) -> None:
    """Raise ValueError if the tokenizer has more tokens than the model has embeddings."""
    if model_config.vocabulary_size < tokenizer.vocabulary_size:
        raise ValueError(
            f"The vocabulary does not match the embedding: the tokenizer has {tokenizer.vocabulary_size} "
            f"tokens, the model {model_config.vocabulary_size}."
        )


def refuse_columns(columns: ColumnNames, why: str) -> None:
    """Raise ValueError if `columns` were chosen for examples that have none."""
    if columns is not None:
        raise ValueError(f"{columns.flag if isinstance(columns, Layout) else '--columns'}: {why}")


def no_variable_larger_than(size: int) -> contextlib.AbstractContextManager[Sequence[keras.Variable]]:
    """A scope as `checking_variables`, in which a variable of more than `size` values raises ValueError."""

    def check(variable: keras.Variable) -> None:
        if (count := math.prod(variable.shape)) > max(size, SMALL):
            raise ValueError(f"it asks for a weight of {count:,} numbers; the largest kept has {size:,}")

    return checking_variables(check)


def label_entries(names: Iterable[str]) -> dict[str, dict]:
    """The entries of transformers' config.json about the `names` of classes."""
    numbers = {name: number for number, name in enumerate(names)}
    return {"id2label": {str(number): name for name, number in numbers.items()}, "label2id": numbers}


def describe_backbone(model: keras.Model) -> dict[str, Any]:
    """A configured model as JSON values: the name of its class, and its configuration. ValueError for a class
    that is not found by its name.
    """
    ours, found = type(model), family_called(type(model).__name__)
    if (ours.__module__, ours.__qualname__) != (found.__module__, found.__qualname__):
        where = f"{ours.__module__} and {found.__module__}"
        raise ValueError(f"Two families are called {ours.__name__}, of {where}: give one another name.")
    return {"class": type(model).__name__, "config": dataclasses.asdict(model.config)}


def backbone_of(description: Mapping[str, Any]) -> tuple[type, Config]:
    """The class and the configuration that `describe_backbone` wrote; ValueError for other values."""
    family = family_called(description.get("class"))
    return family, family.config_class.from_json(description.get("config"))


def make_backbone(description: Mapping[str, Any]) -> keras.Model:
    """A model with fresh weights from the values of `describe_backbone`; ValueError for other values."""
    model_class, config = backbone_of(description)
    return model_class(config)
