"""What tasks that learn have in common: one `fit`, one `evaluate`, and what the command line asks of them."""

import abc
import dataclasses
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import keras
import numpy as np

from keras_tfm.configs import Config, kinds_of
from keras_tfm.data.batches.epochs import hold_out
from keras_tfm.data.sources.files import fingerprint
from keras_tfm.data.sources.text_stream import TextStream
from keras_tfm.tasks.signatures import ColumnNames
from keras_tfm.tasks.task import Task, is_task_folder, load_any, refuse_columns
from keras_tfm.training.card import write_card
from keras_tfm.training.folder import Path
from keras_tfm.training.options import Kept, Learning
from keras_tfm.training.record import read_record, results, versions, write_record

LOG = logging.getLogger(__name__)
TABLES = ".tsv, .csv, .jsonl (plain, .gz, .xz) or .parquet files, or tfds:NAME[/CONFIG][:VERSION]#SPLIT"
ROWS = ".jsonl (.gz, .xz) or .parquet files, or tfds:NAME[/CONFIG][:VERSION]#SPLIT"


@dataclasses.dataclass(frozen=True)
class ModelOptions(Config):
    """What a model with fresh weights is made by, beside what its --config changes."""

    # {field of the model's configuration: the option that sets it}
    set_here: ClassVar[Mapping[str, str]] = {}

    def base(self) -> Config | None:
        """The configuration that changes apply to, of the size that was asked for; ValueError for no size."""
        return None


class LearningTask(Task):
    """A task that learns from examples, by whatever means: `fit`, `evaluate` and `keras-tfm train NAME` come
    from here. One whose model is Keras's derives from `TrainableTask`.

    A subclass says what examples are (`examples_class`, `read_files`), how it learns from them (`learn`), how
    good answers are (`measure`), and how a task that has learnt nothing is made (`make`, by `model_options`).
    Its attributes are the defaults of learning, the measure and its mode that judge the epochs, and what
    `validation` gets of the examples where there is no other.
    """

    training: ClassVar[Learning] = Learning()
    kept: ClassVar[type[Kept]] = Kept  # how a run is kept
    model_options: ClassVar[type[ModelOptions]] = ModelOptions
    help: ClassVar[str]  # what it does, in a line: "train a model that …"
    files: ClassVar[str]  # what its files are, in a line
    start: ClassVar[str | None] = None  # what --from goes on from; None where it begins anew
    has_devices: ClassVar[bool] = False  # whether a strategy chooses what it learns on
    made_of_examples: ClassVar[bool] = True  # whether `make` and `start_from` look at the examples
    columns: ClassVar[tuple[int, ...]] = ()  # how many columns of a table --columns may name
    examples_class: ClassVar[Any] = None  # a named tuple of columns of equal length; None: a list of texts
    unit: ClassVar[str] = "examples"
    digits: ClassVar[int] = 4  # of what `evaluate` returns
    held_out: ClassVar[tuple[float, int | None]] = (0.02, 1_000)  # for validation: the share, at most so many
    judged_by: Any = ("val_loss", "min")  # the measure of the best epoch, and which end of it is best

    # What a subclass says ------------------------------------------------------------------------------
    # `training` is Any here, and there of the class that its own `training` has; so is `options`.

    @abc.abstractmethod
    def learn(
        self, examples: Any, validation: Any, training: Any, callbacks: Iterable[Any], **keeping: Any
    ) -> dict[str, list[float]]:
        """Learn from checked examples, and keep the best epoch by `validation`: {measure: [its values]}.

        `keeping` are the `run`, a `Kept` or None, a function `save(folder, overwrite, trained)` that makes
        its folder, and the `settings` that must stay where it is resumed.
        """

    @abc.abstractmethod
    def measure(self, *examples: Any, **options: Any) -> dict[str, Any]:
        """How good the answers to examples are: what `evaluate` rounds and counts."""

    @classmethod
    @abc.abstractmethod
    def read_files(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> Any:
        """Examples from files, as the fields of a configuration say."""

    @classmethod
    @abc.abstractmethod
    def make(cls, examples: Any, options: Any, changes: Mapping[str, Any], **fields: Any) -> Self:
        """A task with fresh weights; `fields` are of its configuration, `changes` of the model's."""

    @classmethod
    def read_training(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> Any:
        """As `read_files`, or a stream of text that is too much for the memory."""
        return cls.read_files(paths, columns, **fields)

    def check_examples(self, examples: Any, /) -> Any:
        """The examples as the other methods take them; ValueError for columns that differ in length."""
        if self.examples_class is None:
            return examples if isinstance(examples, TextStream) else list(examples)
        columns: Any = self.examples_class(*examples)
        if len(set(map(len, columns))) != 1:
            counts = ", ".join(f"{len(x)} {name}" for name, x in zip(columns._fields, columns, strict=True))
            raise ValueError(f"examples: expected columns of one length, got {counts}")
        return columns

    @classmethod
    def training_of(cls, start: Path | None) -> Any:
        """The defaults of learning on the command line, which may be others where a model is gone on with."""
        return cls.training

    @classmethod
    def reading(cls, options: Any, changes: Mapping[str, Any], start: Path | None = None) -> dict[str, Any]:
        """What `read_files` takes beside the fields of a configuration: what the model says of its input,
        where the task is made after reading.
        """
        return {}

    def hold_out(self, examples: Any, share: float | None, seed: int, /) -> tuple[Any, Any]:
        """Examples to train on, and a share of them, by default `held_out`, for validation."""
        share, most = self.held_out if share is None else (share, None)
        parts = hold_out(len(columns_of(examples)[0]), seed, share, most)
        return tuple(rows_of(examples, rows) for rows in parts)

    @classmethod
    def describe(cls, examples: Any) -> str:
        """How many examples there are, in words."""
        if isinstance(examples, TextStream):
            return f"{examples.num_bytes:,} bytes of text"
        count = f"{len(columns_of(examples)[0]):,} {cls.unit}"
        return f"{count} of {sum(map(len, examples)):,} characters" if isinstance(examples, list) else count

    # What comes of it ----------------------------------------------------------------------------------

    def fit(
        self,
        examples: Any,
        validation: Any = None,
        *,
        run: Path | Kept | None = None,
        callbacks: Iterable[keras.callbacks.Callback] = (),
        **options: Any,
    ) -> dict[str, list[float]]:
        """Train on `examples` and keep the best epoch: {measure: [its value at each epoch]}.

        `validation`, examples or the share to hold out, judges the epochs. `options` are the fields of
        `type(self).training`, whose values are the defaults, and of `kept`: with `run`, a folder, the best
        task so far stands there, with checkpoints, metrics.csv and training.json. TypeError for an unknown
        option, ValueError for one that cannot be.
        """
        training, run = self._told(run, options)
        self.refuse_learning()
        examples, validation = self._parts(examples, validation, training.seed)
        data = {} if run is None else {"fingerprint": fingerprint_of(examples)}
        data |= {"train": self.describe(examples), "validation": self.describe(validation)}
        record = self._record(training, run, data)
        if self.is_chief:
            LOG.info("%s to train on, %s for validation", data["train"], data["validation"])

        def save(folder: Path, overwrite: bool, trained: bool) -> None:
            self.save(folder, overwrite, trained)
            write_record(folder, record)

        self.record = record
        began = time.perf_counter()
        settings = {**training.lasting(), "data": data.get("fingerprint")}
        history = self.learn(examples, validation, training, callbacks, run=run, save=save, settings=settings)
        seconds = {"seconds": round(time.perf_counter() - began, 1)}
        self.record = record | {"results": results(history, self.judged_by) | seconds}
        if run is not None and self.is_chief:
            write_record(run.folder, self.record)
            write_card(run.folder, self.card())
        return history

    def refuse_learning(self) -> None:
        """Raise ValueError where this task, as it is now, cannot learn."""

    @property
    def is_chief(self) -> bool:
        """Whether this process, of several that learn together, is the one that writes."""
        return True

    def _told(self, run: Path | Kept | None, options: dict[str, Any]) -> tuple[Learning, Kept | None]:
        """The options of a `fit`, as what they are checked by."""
        of_training = kinds_of(type(self.training))
        of_run = [name for name in kinds_of(self.kept) if name != "folder"]
        if unknown := options.keys() - of_training.keys() - set(of_run):
            raise TypeError(
                f"fit of {self.name!r} has no option {', '.join(sorted(unknown))}; "
                f"it has {', '.join([*of_training, 'run', *of_run])}."
            )
        training = dataclasses.replace(
            self.training, **{name: value for name, value in options.items() if name in of_training}
        )
        kept = {name: value for name, value in options.items() if name in of_run}
        if run is None:
            if kept:
                raise ValueError(f"`{'`, `'.join(kept)}` need a `run`, the folder to keep the training in.")
            return training, None
        if isinstance(run, Kept):
            return training, dataclasses.replace(run, **kept)
        return training, self.kept(os.fspath(run), **kept)

    def _parts(self, examples: Any, validation: Any, seed: int) -> tuple[Any, Any]:
        """The checked examples to train on, and those for validation."""
        examples = self.check_examples(examples)
        if validation is not None and not isinstance(validation, float):
            return examples, self.check_examples(validation)
        if isinstance(examples, TextStream):
            if validation is None:
                return examples.hold_out(seed=seed)
            return examples.hold_out(validation, examples.num_bytes, seed)
        return self.hold_out(examples, validation, seed)

    def _record(self, training: Learning, run: Kept | None, data: dict[str, str]) -> dict[str, Any]:
        """What RUN/training.json says; a resumed training says again by which command it was begun."""
        before = read_record(run.folder).get("command", {}) if run is not None and run.resume else {}
        return {
            "task": self.name,
            "versions": versions(),
            "options": dataclasses.asdict(training),
            "data": data,
            "command": (run.record if run is not None else {}) or before,
        }

    def evaluate(self, examples: Any, **options: Any) -> dict[str, Any]:
        """How good the answers to `examples` are, as `measure` says, and how many examples there were."""
        examples = self.check_examples(examples)
        if isinstance(examples, TextStream):
            raise ValueError("A stream is for training alone: measure by texts, such as its `sample`.")
        measures = self.measure(examples, **options)
        rounded = {
            name: value if isinstance(value, int | str) else round(float(value), self.digits)
            for name, value in measures.items()
        }
        return {**rounded, self.unit: len(columns_of(examples)[0])}

    def read_examples(self, paths: Sequence[Path], columns: ColumnNames = None) -> Any:
        """What `evaluate` takes, from files."""
        if not self.columns:
            refuse_columns(columns, f"{self.name!r} reads no tables: {self.files}")
        return self.read_files(paths, columns, **self.file_fields)

    @property
    def file_fields(self) -> dict[str, Any]:
        """What `read_files` takes for this task."""
        return vars(self.config)

    @classmethod
    def start_from(cls, start: Path, examples: Any, **fields: Any) -> Self:
        """A task that goes on from the task folder `start`, or from a folder or hub id of Hugging Face's."""
        if cls.start is None:
            raise ValueError(f"--from: {cls.name!r} always begins anew")
        if is_task_folder(start):
            return cls.adopt(load_any(start), examples, **fields)
        read: Any = getattr(cls, "from_huggingface", None)
        if read is None:
            raise ValueError(f"--from: expected a RUN; {cls.name!r} reads no folders of Hugging Face's")
        return read(start, **fields)

    @classmethod
    def adopt(cls, task: Task, examples: Any, **fields: Any) -> Self:
        """Another `task`'s weights for this one; ValueError where they are of no use here."""
        if not isinstance(task, cls):
            raise ValueError(f"--from: expected a {cls.name!r} task, got a {task.name!r} one")
        return task


def columns_of(examples: Any) -> Sequence:
    """The columns of examples, of which a list has one."""
    return examples if isinstance(examples, tuple) else (examples,)


def rows_of(examples: Any, rows: np.ndarray) -> Any:
    """Those `rows` of all columns, as the examples are: a tuple of columns, or a list."""
    columns = [
        column[rows] if hasattr(column, "dtype") else [column[row] for row in rows]
        for column in columns_of(examples)
    ]
    if not isinstance(examples, tuple):
        return columns[0]
    return type(examples)(*columns) if hasattr(examples, "_fields") else tuple(columns)


def fingerprint_of(examples: Any) -> str:
    """What a resumed training knows its examples by."""
    if isinstance(examples, TextStream):
        return examples.fingerprint()
    return fingerprint(*map(plain, columns_of(examples)))


def plain(column: Any) -> Any:
    """A column as `fingerprint` takes it: an array, or strings."""
    if hasattr(column, "identity"):  # images that lie on the disk
        return list(column.identity())
    if hasattr(column, "dtype") or all(isinstance(item, str) for item in column):
        return column
    return [repr(item) for item in column]
