"""`keras-tfm train TASK`, with options generated from what the tasks declare.

Tasks import TensorFlow, which takes seconds: this module is only imported when `train TASK` is parsed.
"""

import argparse
import contextlib
import dataclasses
import functools
import os
import pathlib
import shlex
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_tfm.cli.columns import add_table_options, layout_of
from keras_tfm.cli.command import Command, Plan, plan_of
from keras_tfm.cli.console import say, tell_untrained, warn
from keras_tfm.cli.generated import add_options, defaults_of, in_flags, paths_in
from keras_tfm.cli.outputs import refuse_folder, refuse_inside
from keras_tfm.launch import COUNT
from keras_tfm.tasks import LearningTask, TrainableTask
from keras_tfm.tasks.class_weights import refuse_unknown_classes
from keras_tfm.tasks.task import task_called
from keras_tfm.training import strategy
from keras_tfm.training.folder import is_run, refuse_running
from keras_tfm.training.strategy import num_workers, sum_over_workers, worker_index


def fill(name: str, verb: Any) -> None:
    """Let a parser train the task of this name."""
    task_class = task_called(name)
    if not issubclass(task_class, LearningTask):
        raise ValueError(f"The task {name!r} does not learn.")
    verb.description = f"{task_class.help[0].upper()}{task_class.help[1:]}."
    verb.set_defaults(run=functools.partial(run, task_class), check=functools.partial(plan_of, task_class))
    add_task_options(verb, task_class)


def add_task_options(verb: Any, task_class: Any) -> None:
    """Add the options of a task that learns to a parser, or to what takes groups of options as one does."""

    def add(group: Any, flag: str, name: str, metavar: str, help: str, **how: Any) -> None:
        how |= {"dest": name, "metavar": metavar, "help": help.replace("%", "%%")}
        group.add_argument(flag, default=argparse.SUPPRESS, **how)

    validation = f"{task_class.unit} for validation after each epoch (default: {task_class.held_out})"
    counts = " or ".join(map(str, task_class.columns))
    data = verb.add_argument_group("data")
    add(data, "--data", "Command.data", "FILE", task_class.files, nargs="+")
    add(data, "--valid", "Command.valid", "FILE", validation, nargs="+")
    if counts:
        are_one = task_class.columns == (1,)
        which = "the column" if are_one else f"the {counts} columns"
        text = f"{which} of a table to read, by names or numbers from 0"
        add(data, "--columns", "Command.columns", "A,B", text)
        add_table_options(data)

    text = "the folder to write; it always holds the best model so far"
    kept = verb.add_argument_group("run")
    add(kept, "--out", "out", "RUN", text, required=True)
    add_options(kept, task_class.kept)
    text = "training.json of another RUN: use its files and options, unless others are given"
    add(kept, "--options", "options", "FILE", text)

    model = verb.add_argument_group("model")
    if task_class.start is not None:
        add(model, "--from", "Command.start", "MODEL", f"start from {task_class.start}")
    if task_class.model_options().base() is not None:
        text = 'JSON file with changes to the model configuration, for example {"dropout": 0.3}'
        add(model, "--config", "Command.changes", "FILE", text)
    add_options(model, task_class.model_options)
    usual = defaults_of(task_class.config_class)
    with_from = {name: usual[name] for name in task_class.fresh_fields}
    add_options(model, task_class.config_class, usual | task_class.fresh_fields, with_from)

    training = task_class.training
    group = verb.add_argument_group("training", type(training).__doc__)
    names = [field.name for field in dataclasses.fields(training)]
    defaults = {name: getattr(training, name) for name in names}
    if "clip_norm" in defaults and issubclass(task_class, TrainableTask):
        defaults["clip_norm"] = task_class.usual_clip_norm()
    add_options(group, type(training), defaults, task_class.given_weights)
    if task_class.has_devices:
        add_options(verb.add_argument_group("devices"), Command)


def run(task_class: Any, arguments: argparse.Namespace) -> None:
    """train: a RUN folder from files."""
    plan = plan_of(task_class, arguments)
    files = [getattr(arguments, name, None) for name in ("options", "Command.changes")]  # of --config
    old = None if plan.run.resume else _mark_of(plan.run.folder)
    devices = _prepare(plan, files)
    is_chief = worker_index(devices) == 0
    report = say if is_chief else (lambda text: None)
    begin = _resume if plan.run.resume else _begin
    with in_flags(task_class.config_class, task_class.model_options):
        task, examples, validation = begin(task_class, plan, devices, report)
    tokens = f", {task.tokenizer.vocabulary_size:,} tokens" if task.tokenizer is not None else ""
    report(f"{task.model.count_params():,} weights{tokens}")
    is_written = num_workers(devices) > 1 and not plan.run.resume  # see `_begin`
    kept = dataclasses.replace(plan.run, overwrite=True) if is_written else plan.run
    kinds = type(plan.training), task_class.config_class, task_class.model_options
    saying = _saying_how_to_resume(task_class, plan.run.folder, old) if is_chief else contextlib.nullcontext()
    with in_flags(*kinds), saying:  # of bounds of the model and the data
        task.fit(examples, validation, run=kept, **dataclasses.asdict(plan.training))
    name, mode = task.judged_by
    results = task.record["results"]
    best = f"{'last' if mode == 'last' else 'best'} {name} {results[name]:.4f}; " if name in results else ""
    report(f"{best}the model is in {plan.run.folder}")


@contextlib.contextmanager
def _saying_how_to_resume(task_class: Any, run: str, old: tuple | None) -> Iterator[None]:
    """A scope in which an interrupt, or SIGTERM, says how the training goes on, once there is its RUN, not
    the `old` one that it replaces.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as end:
        if not is_run(pathlib.Path(run)) or _mark_of(run) == old:
            raise
        launch = f"launch --workers {os.environ[COUNT]} -- " if COUNT in os.environ else ""
        advice = f"to go on: keras-tfm {launch}train {task_class.name} --out {shlex.quote(run)} --resume"
        if isinstance(end, KeyboardInterrupt):
            raise KeyboardInterrupt(advice) from None
        warn(advice)
        raise


def _mark_of(folder: str) -> tuple[int, int] | None:
    """What the disk knows a folder's config.json by, which a folder that replaces it has anew; or None."""
    file = os.path.join(folder, "config.json")
    if not os.path.isfile(file):
        return None
    state = os.stat(file)
    return state.st_ino, state.st_mtime_ns


def _prepare(plan: Plan, files: list) -> Any:
    """The devices of --strategy. Also sets the seed and --deterministic, and checks that RUN may be
    written: it does not replace the `files` that were read, paths or None.
    """
    devices = strategy(plan.command.strategy)  # before anything else makes TensorFlow choose its devices
    if worker_index(devices) == 0:
        if not plan.run.resume:
            _refuse_out(plan, files)
        refuse_running(plan.run.folder)
    if plan.command.deterministic:
        tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(plan.training.seed)
    return devices


def _refuse_out(plan: Plan, files: list) -> None:
    """Raise OSError or ValueError if RUN would replace what it must not, the `files` among it, or lie among
    the data.
    """
    command, out = plan.command, plan.run.folder
    given = [paths_in(type(part), vars(part)).values() for part in (plan.training, plan.model_options)]
    read = [*files, *command.data, *command.valid, command.start, *given[0], *given[1]]
    refuse_folder(out, read, plan.run.overwrite, "pass --resume or --overwrite", as_run=True)
    refuse_inside(out, "--data", command.data)
    refuse_inside(out, "--valid", command.valid)


def _resume(task_class: Any, plan: Plan, devices: Any, report: Any) -> tuple:
    """The task of RUN, its training examples, and its examples for validation."""
    with devices.scope():
        task = task_class.load(plan.run.folder)
    return task, *_read(task_class, plan, report, task.file_fields)


def _begin(task_class: Any, plan: Plan, devices: Any, report: Any) -> tuple:
    """A task to train, with fresh weights or the weights of --from, and its examples.

    A task that can be made without examples is made before they are read, so that an impossible model is
    refused at once. With several workers the chief writes the task, and all read what it has written.
    """
    command, is_alone = plan.command, num_workers(devices) == 1
    task: Any = None

    def make(examples: Any) -> Any:
        with devices.scope() if is_alone else contextlib.nullcontext():
            if command.start is None:
                return task_class.make(examples, plan.model_options, command.changes, **command.fields)
            task = task_class.start_from(command.start, examples, **command.fields)
        tell_untrained(task, command.start)
        return task

    if task_class.made_of_examples:
        reading = task_class.reading(plan.model_options, command.changes, command.start)
        examples, validation = _read(task_class, plan, report, reading | command.fields)
        if command.start is None and (names := task_class.labels_in(examples)):
            with in_flags(type(plan.training)):
                refuse_unknown_classes(plan.training, names)
        if worker_index(devices) == 0:
            task = make(examples)
    else:
        task = make(None)
        examples, validation = _read(task_class, plan, report, task.file_fields)
    if is_alone:
        return task, examples, validation
    if worker_index(devices) == 0:
        task.record = task.record_of(plan.training, plan.run, {})  # by which --resume knows the command
        task.save(plan.run.folder, plan.run.overwrite, trained=False)
    sum_over_workers(devices, 0)  # all workers wait for the chief
    keras.utils.set_random_seed(plan.training.seed)
    with devices.scope():
        task = task_class.load(plan.run.folder)
    sum_over_workers(devices, 0)  # the chief waits until all have read it
    return task, examples, validation


def _read(task_class: Any, plan: Plan, report: Any, fields: dict[str, Any]) -> tuple:
    """Examples to train on, and examples for validation or None."""
    command = plan.command
    columns = layout_of(command.columns, command.layout)
    examples = task_class.read_training(command.data, columns, **fields)
    report(f"{task_class.describe(examples)} read")
    return examples, task_class.read_validation(command.valid, columns, **fields) if command.valid else None
