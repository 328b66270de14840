"""The base class of tasks that learn: `fit` and `evaluate`, and what `keras-tfm train` needs to know of a
task.
"""

import abc
import dataclasses
import logging
import os
import time
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import keras
import numpy as np

from keras_tfm.configs import Config, Count, Option, kinds_of, meant
from keras_tfm.data.batches.epochs import HeldOut, hold_out
from keras_tfm.data.sources.text_stream import TextStream
from keras_tfm.models.families import family_called
from keras_tfm.serving import plugins
from keras_tfm.serving.examples import as_columns, check_column, listed, not_text, reasons, refuse_rows
from keras_tfm.tasks.baselines import Baselines
from keras_tfm.tasks.columns import columns_of, fingerprint_of, rows_of
from keras_tfm.tasks.judgements import Judgements
from keras_tfm.tasks.signatures import ColumnNames
from keras_tfm.tasks.task import Task, load_any, refuse_columns
from keras_tfm.tasks.task_folder import is_task_folder, read_config
from keras_tfm.training.card import write_card
from keras_tfm.training.diagnosis import (
    NO_BETTER,
    Reached,
    Remark,
    flat_loss,
    jump,
    one_class,
    stopped_early,
)
from keras_tfm.training.folder import Path
from keras_tfm.training.options import Kept, Learning
from keras_tfm.training.record import read_record, refuse_other_data, results, versions, write_record

LOG = logging.getLogger(__name__)
TABLES = ".tsv, .csv, .jsonl (plain, .gz, .xz) or .parquet files, or tfds:NAME[/CONFIG][:VERSION]#SPLIT"
MOST_TOKENS = "most tokens of the vocabulary; small files give fewer"
Vocabulary = Annotated[Count, Option(MOST_TOKENS, flag="--vocabulary")]
PLANNED = "planned_epochs"  # the entry of training.json for the epochs with which a resumed training began
VOCABULARY = 8_000  # tokens of a vocabulary that is learnt, at most
ROWS = ".jsonl (.gz, .xz) or .parquet files, or tfds:NAME[/CONFIG][:VERSION]#SPLIT"


@dataclasses.dataclass(frozen=True)
class ModelOptions(Config):
    """The options for a model with fresh weights; `--config FILE` may change further fields of the model.

    >>> class Options(keras_tfm.tasks.ModelOptions):
    ...     def base(self):
    ...         return keras_tfm.models.GPT2.config_of_size("tiny")
    >>> Options().base().num_layers
    4
    """

    # {field of the model's configuration: the command line's option for it}
    set_here: ClassVar[Mapping[str, str]] = {}

    def base(self) -> Config | None:
        """The configuration of the chosen size, before changes; ValueError if there is no such size."""
        return None


def with_side(changes: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` of a model's configuration, with the `image_size` of a task's `fields` if they have one."""
    side = fields.get("image_size")
    return dict(changes) if side is None else {**changes, "image_size": side}


def family_among(families: Mapping[str, Any], name: str, fields: Iterable[str], decodes: bool = False) -> Any:
    """The class that `families` has by its `name` on the command line, or a plugin's, whose
    configuration must have these `fields`, and which decodes step by step or does not; ValueError for others.
    """
    added = {} if name in families else {plugin.lower(): plugin for plugin in plugins.installed("family")}
    known = [*families, *added]
    if name not in known:
        raise ValueError(f"There is no family {name!r}{meant(name, known)}; there are {', '.join(known)}.")
    if name in families:
        return families[name]
    family = family_called(added[name])
    if lacking := set(fields) - kinds_of(family.config_class).keys():
        raise ValueError(f"The family {name!r} does not fit: it has no {', '.join(sorted(lacking))}.")
    if hasattr(family, "step") != decodes:
        kinds = ("an encoder", "a model that decodes, with `step`")
        expected, got = reversed(kinds) if decodes else kinds
        raise ValueError(f"The family {name!r} does not fit: expected {expected}, got {got}.")
    return family


class LearningTask(Task):
    """A task that learns from examples, by whatever means. A task with a Keras model derives from
    `TrainableTask`.

    A subclass defines what examples are (`examples_class`, `read_files`), how it learns from them (`learn`),
    how good its answers are (`measure`), and how an untrained task is made (`make`, with the options
    `model_options`). The class attributes hold its defaults and the texts of its help; `keras-tfm train NAME`
    is generated from them.

    >>> ratings = ["Ann", "Ann", "Bob", "Bob"], ["x", "y", "x", "z"], [5.0, 1.0, 4.0, 2.0]
    >>> task = keras_tfm.tasks.Recommender.from_ratings(ratings, dim=2)
    >>> isinstance(task, keras_tfm.tasks.LearningTask)
    True
    >>> [task.describe(part) for part in task.hold_out(task.check_examples(ratings), 0.25, 0)]
    ['3 ratings', '1 ratings']
    """

    training: ClassVar[Learning] = Learning()
    kept: ClassVar[type[Kept]] = Kept  # the options for the folder of a run
    model_options: ClassVar[type[ModelOptions]] = ModelOptions
    files: ClassVar[str]  # which files it reads, in one line
    start: ClassVar[str | None] = None  # what --from takes; None if training always starts with fresh weights
    has_devices: ClassVar[bool] = False  # whether it can train under a tf.distribute strategy
    made_of_examples: ClassVar[bool] = True  # whether `make` and `start_from` need the examples
    gives_new_heads: ClassVar[bool] = False  # whether `from_huggingface` fits a head to examples
    # {option: default} where a training starts from given weights; for fresh ones `training` has defaults
    given_weights: ClassVar[Mapping[str, Any]] = types.MappingProxyType({})
    # {field of the configuration: default} for fresh weights; for given ones `config_class` has defaults
    fresh_fields: ClassVar[Mapping[str, Any]] = types.MappingProxyType({})
    columns: ClassVar[tuple[int, ...]] = ()  # how many columns --columns may name
    examples_class: ClassVar[Any] = None  # a named tuple of columns of equal length, or None: a list of texts
    # {column: a function that gives the reason why a value does not belong there, or None}
    column_kinds: ClassVar[Mapping[str, Callable[[Any], str | None]]] = {}
    unit: ClassVar[str] = "examples"
    digits: ClassVar[int] = 4  # `evaluate` rounds its metrics to these
    held_out: ClassVar[HeldOut] = HeldOut(0.1, 1_000, least=100)  # how many examples are for validation
    reached: Reached | None = None  # how far the last training went; None if nobody has counted steps
    judged_by: Any = ("val_loss", "min")  # which metric chooses the best epoch, and its better end

    # What a subclass defines -----------------------------------------------------------------------------
    # `training` and `options` are Any here; in a subclass they have the classes of its own defaults.

    @abc.abstractmethod
    def learn(
        self, examples: Any, validation: Any, training: Any, callbacks: Iterable[Any], **keeping: Any
    ) -> dict[str, list[float]]:
        """Learn from checked examples and keep the best epoch on `validation`: returns {metric: value per
        epoch}.

        `keeping` holds `run` (a `Kept` or None), `save(folder, overwrite, trained)`, which creates the run's
        folder, `settings`, the values that may not change when the run is resumed, and `keep_record(folder)`,
        which writes the options of a resumed run once it is known to go on.
        """

    @abc.abstractmethod
    def measure(self, *examples: Any, **options: Any) -> dict[str, Any]:
        """How good the answers to `examples` are: the metrics that `evaluate` rounds and returns."""

    @classmethod
    @abc.abstractmethod
    def read_files(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> Any:
        """Read examples from files; `fields` are fields of the task's configuration."""

    @classmethod
    @abc.abstractmethod
    def make(cls, examples: Any, options: Any, changes: Mapping[str, Any], **fields: Any) -> Self:
        """A task with fresh weights. `fields` belong to its configuration, `changes` to the model's."""

    @classmethod
    def read_training(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> Any:
        """Like `read_files`, but may return a stream for text that does not fit into memory."""
        return cls.read_files(paths, columns, **fields)

    @classmethod
    def read_validation(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> Any:
        """Like `read_files`, without examples by which no epoch can be judged."""
        return cls.read_files(paths, columns, **fields)

    def check_examples(self, examples: Any, /) -> Any:
        """The examples in the form that the other methods take; ValueError as from `as_examples`."""
        return self.as_examples(examples)

    @classmethod
    def as_examples(cls, examples: Any) -> Any:
        """The examples as `examples_class`, or a list of texts. ValueError for a string in the place of a
        list, a value of another kind than its column's, and columns that are missing or differ in length.
        """
        if isinstance(examples, TextStream):
            return examples
        if cls.examples_class is None:
            texts = listed(examples)
            refuse_rows(reasons(texts, not_text))
            return texts
        names = cls.examples_class._fields
        parts = as_columns(examples, *names)
        for place, name in enumerate(names):
            if not hasattr(parts[place], "__len__"):
                parts[place] = listed(parts[place], f"`{name}`")
            check_column(parts[place], name, cls.column_kinds.get(name, lambda value: None))
        if len(set(map(len, parts))) != 1:
            counts = ", ".join(f"{len(x)} {name}" for name, x in zip(names, parts, strict=True))
            raise ValueError(f"examples: expected columns of one length, got {counts}")
        return cls.examples_class(*parts)

    @classmethod
    def training_of(cls, is_given: bool, options: Mapping[str, Any] = types.MappingProxyType({})) -> Any:
        """The default options of a training that starts from fresh weights, or from given ones, with these
        `options` in their place; ValueError if they are not the task's.
        """
        given = cls.given_weights if is_given else {}
        return type(cls.training).from_json({**dataclasses.asdict(cls.training), **given, **options})

    @classmethod
    def reading(cls, options: Any, changes: Mapping[str, Any], start: Path | None = None) -> dict[str, Any]:
        """Further arguments of `read_files` for a task that is made after its examples were read: the shape
        of the model's images, for example; with `start` what the RUN there, or its model, has.
        """
        if start is None or not is_task_folder(start):
            return {}
        kept = read_config(start)
        return vars(cls.config_class.from_json(kept["config"])) if kept["task"] == cls.name else {}

    @classmethod
    def labels_in(cls, examples: Any) -> set[str]:
        """The labels of examples that were read from files, or checked, of a task that has some."""
        return set()

    def hold_out(self, examples: Any, share: float | None, seed: int, /) -> tuple[Any, Any]:
        """Split examples into some to train on and a share for validation, by default `held_out`."""
        held = self.held_out if share is None else HeldOut(share)
        parts = hold_out(len(columns_of(examples)[0]), seed, held, self.classes_in(examples))
        return tuple(rows_of(examples, rows) for rows in parts)

    def classes_in(self, examples: Any) -> np.ndarray | None:
        """The class of each of the checked `examples`, a number (N,), or None if they are not of one class
        each. Validation holds its share of every class.
        """
        return None

    def settled(self, training: Any, examples: Any) -> Any:
        """The options of a training on the checked `examples`, with values for those that follow from these
        or from the model, where nobody gave them.
        """
        is_stream = isinstance(examples, TextStream)
        return training if is_stream else training.settled(len(columns_of(examples)[0]))

    def baselines(self, examples: Any, validation: Any, seed: int) -> Baselines | None:
        """What simple rules, learnt from the checked `examples`, score on `validation`, in seconds; None if
        the task has none.
        """
        return None

    def some_answers(self, validation: Any) -> list | None:
        """The classes that the task answers to some of the checked examples `validation`; None if it does not
        answer by classes.
        """
        return None

    @classmethod
    def describe(cls, examples: Any) -> str:
        """How many examples there are, in words."""
        if isinstance(examples, TextStream):
            return f"{examples.num_bytes:,} bytes of text"
        count = f"{len(columns_of(examples)[0]):,} {cls.unit}"
        return f"{count} of {sum(map(len, examples)):,} characters" if isinstance(examples, list) else count

    # What the base class does with it --------------------------------------------------------------------

    def fit(
        self,
        examples: Any,
        validation: Any = None,
        *,
        run: Path | Kept | None = None,
        callbacks: Iterable[keras.callbacks.Callback] = (),
        **options: Any,
    ) -> dict[str, list[float]]:
        """Train on `examples`, keep the best epoch, and return {metric: its value at each epoch}.

        Args:
            examples: what the table in `keras_tfm.tasks` says for this task.
            validation: examples that judge the epochs, or the share of `examples` to hold out for that.
            run: a folder that receives the best task so far, checkpoints, metrics.csv and training.json.
            callbacks: further Keras callbacks.
            options: fields of `type(self).training`, which holds the defaults for fresh weights, and of
                `type(self).kept`. `type(self).given_weights` holds other defaults for given weights; a
                resumed training has the options of its `run`.

        Raises:
            TypeError: for an unknown option.
            ValueError: for an option or an example that is not allowed.
        """
        training, run = self._told(run, options)
        self.refuse_learning()
        examples, validation = self._parts(examples, validation, training.seed)
        training = self.settled(training, examples)
        parts = {"data": examples, "validation": validation}
        fingerprints = {} if run is None else {name: fingerprint_of(part) for name, part in parts.items()}
        data = {} if run is None else {"fingerprint": fingerprints["data"]}
        data |= {"train": self.describe(examples), "validation": self.describe(validation)}
        record = self.record_of(training, run, data)
        baselines = self.baselines(examples, validation, training.seed) if self.is_chief else None
        if self.is_chief:
            LOG.info("%s to train on, %s for validation", data["train"], data["validation"])
        if baselines is not None:
            LOG.info("%s", baselines)
            record["baselines"] = baselines.entries()

        self.record = record
        began = time.perf_counter()
        settings = training.lasting() | fingerprints
        keeping: dict[str, Any] = {"run": run, "save": self.save, "settings": settings}
        keeping["keep_record"] = lambda folder: write_record(folder, dict(self.record))
        history = self.learn(examples, validation, training, callbacks, **keeping)
        before = self.record.get("results", {})
        seconds = before.get("seconds", 0) + time.perf_counter() - began
        best = results(history, self.judged_by, before) | {"seconds": round(seconds, 1)}
        record, self.is_trained = {**self.record, "results": best}, True
        if self.is_chief and (remark := self._remark(history, baselines, validation)):
            LOG.warning("%s", remark)
            record["remark"] = remark._asdict()
        self.record = record
        if run is not None and self.is_chief:
            write_record(run.folder, self.record)
            write_card(run.folder, self.card())
        return history

    def _remark(
        self, history: Mapping[str, Sequence[float]], baselines: Baselines | None, validation: Any
    ) -> Remark | None:
        """What to say of a training that did not learn; None if it did."""
        if remark := stopped_early(self.reached):
            return remark
        # Losses of two networks that play rise and fall: steps choose the best epoch there.
        if self.judged_by[0] != "steps" and (remark := jump(history)):
            return remark
        if baselines is None:
            return flat_loss(history)
        remark = baselines.remark(history)
        if remark is not None and remark.key == NO_BETTER:
            return one_class(self.some_answers(validation)) or flat_loss(history) or remark
        return remark

    def refuse_learning(self) -> None:
        """Raise ValueError if this task cannot learn in its present state."""

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the results, when several processes train together."""
        return True

    def _told(self, run: Path | Kept | None, options: dict[str, Any]) -> tuple[Learning, Kept | None]:
        """The options of `fit` as checked objects: of the training, and of the run."""
        of_training = kinds_of(type(self.training))
        of_run = [name for name in kinds_of(self.kept) if name != "folder"]
        if unknown := options.keys() - of_training.keys() - set(of_run):
            names, known = sorted(unknown), [*of_training, "run", *of_run]
            raise TypeError(
                f"fit of {self.name!r} has no option {', '.join(names)}{meant(names[0], known)}; "
                f"it has {', '.join(known)}."
            )
        kept = {name: value for name, value in options.items() if name in of_run}
        if run is not None:
            run = dataclasses.replace(run if isinstance(run, Kept) else self.kept(os.fspath(run)), **kept)
        elif kept:
            raise ValueError(f"`{'`, `'.join(kept)}` need a `run`, the folder to keep the training in.")
        before = read_record(run.folder) if run is not None and run.resume else {}
        chosen = {name: value for name, value in options.items() if name in of_training}
        return self.training_of(self.has_given_weights, {**before.get("options", {}), **chosen}), run

    def _parts(self, examples: Any, validation: Any, seed: int) -> tuple[Any, Any]:
        """The checked examples to train on, and the examples for validation."""
        examples = self.check_examples(examples)
        if validation is not None and not isinstance(validation, float):
            return examples, self.check_examples(validation)
        if isinstance(examples, TextStream):
            if validation is None:
                return examples.hold_out(seed=seed)
            return examples.hold_out(validation, examples.num_bytes, seed)
        return self.hold_out(examples, validation, seed)

    def record_of(self, training: Learning, run: Kept | None, data: dict[str, str]) -> dict[str, Any]:
        """The content of RUN/training.json; a resumed training keeps the command that began it, its results
        so far, whether XLA compiles, and where it has other epochs, with how many it began.
        """
        before = read_record(run.folder) if run is not None and run.resume else {}
        if before.get("options", {}).get("seed") == training.seed:  # which chooses what is held out
            refuse_other_data(before, data)
        planned = before.get(PLANNED) or before.get("options", {}).get("epochs") or training.epochs
        return {
            **{name: before[name] for name in before.keys() & {"jit", "results"}},
            **({} if planned == training.epochs else {PLANNED: planned}),
            "task": self.name,
            "versions": versions(),
            "options": dataclasses.asdict(training),
            "data": data,
            "command": (run.record if run is not None else {}) or before.get("command", {}),
        }

    def evaluate(self, examples: Any, **options: Any) -> dict[str, Any]:
        """The metrics of the answers to `examples`, rounded, and the number of examples."""
        return self.judged(examples, **options)[0]

    def judged(self, examples: Any, **options: Any) -> tuple[dict[str, Any], Judgements | None]:
        """What `evaluate` returns, and the answers beside the truth, of tasks that `judge` them."""
        examples = self.check_examples(examples)
        if isinstance(examples, TextStream):
            raise ValueError("A stream is for training alone: measure by texts, such as its `sample`.")
        judgements = self.judge(examples)
        measures = self.measure(examples, **options) if judgements is None else judgements.measures
        rounded = {
            name: value if isinstance(value, int | str) else round(float(value), self.digits)
            for name, value in measures.items()
        }
        return {**rounded, self.unit: len(columns_of(examples)[0])}, judgements

    def judge(self, examples: Any) -> Judgements | None:
        """The measures of the answers to checked `examples`, by class and by row; None for a task that gives
        `measure` alone.
        """
        return None

    def read_examples(self, paths: Sequence[Path], columns: ColumnNames = None, **options: Any) -> Any:
        """Read what `evaluate` takes from files; `options` are further arguments of `read_files`."""
        if not self.columns:
            refuse_columns(columns, f"{self.name!r} reads no tables: {self.files}")
        return self.read_files(paths, columns, **self.file_fields, **options)

    @property
    def file_fields(self) -> dict[str, Any]:
        """The fields that `read_files` takes for this task."""
        return vars(self.config)

    @classmethod
    def start_from(cls, start: Path, examples: Any, **fields: Any) -> Self:
        """A task that starts from the task folder `start`, or from a folder or hub id of Hugging Face."""
        if cls.start is None:
            raise ValueError(f"--from: {cls.name!r} always begins anew")
        if is_task_folder(start):
            return cls.adopt(load_any(start), examples, **fields)
        read = cls.published()
        return read(start, examples, **fields) if cls.gives_new_heads else read(start, **fields)

    @classmethod
    def published(cls) -> Any:
        """What makes a task of a folder of Hugging Face; ValueError if nothing does."""
        read = getattr(cls, "from_huggingface", None)
        if read is None:
            raise ValueError(f"--from: expected a RUN; {cls.name!r} reads no folders of Hugging Face's")
        return read

    @classmethod
    def checked(cls, task: Any) -> Self:
        """The task, unchanged; ValueError for one of another class."""
        if not isinstance(task, cls):
            raise ValueError(f"--from: expected a {cls.name!r} task, got a {task.name!r} one")
        return task

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        """A task of this class with the weights of another `task`, and its configuration, in which `fields`
        are replaced; ValueError if they do not fit.
        """
        task = cls.checked(task)
        if fields:
            task.config = dataclasses.replace(task.config, **fields)
        return task
