"""The settings of `keras-tfm train`: from the command line, from --options FILE, and from a RUN that is
resumed.

RUN/training.json stores them: "options" are the fields of the task's `training`, "command" the fields of
`Command`.
"""

import argparse
import dataclasses
import os
import re
from typing import Annotated, Any

from keras_tfm.cli.columns import TableOptions, check_columns
from keras_tfm.cli.generated import defaults_of, flag_of, given, in_flags, paths_in
from keras_tfm.configs import Config, Option, Refusal, checked, kinds_of, rules_of
from keras_tfm.convert.folder import refuse_missing
from keras_tfm.data.sources.lines import PREPARED
from keras_tfm.tasks.task_folder import read_config
from keras_tfm.training.checkpoint import refuse_changes
from keras_tfm.training.options import Kept, Learning
from keras_tfm.training.record import NAME, read_record
from keras_tfm.training.safetensors import read_json


@dataclasses.dataclass(frozen=True)
class Command(Config):
    """What a training consists of, besides the options of `fit`: only what was given, without defaults."""

    data: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    columns: str | None = None
    layout: dict = dataclasses.field(default_factory=dict)  # fields of `TableOptions`
    start: str | None = None  # --from
    changes: dict = dataclasses.field(default_factory=dict)  # the content of --config FILE
    model: dict = dataclasses.field(default_factory=dict)  # fields of the task's `model_options`
    fields: dict = dataclasses.field(default_factory=dict)  # fields of the task's configuration
    run: dict = dataclasses.field(default_factory=dict)  # fields of the task's `kept`
    strategy: Annotated[
        str,
        Option(
            "devices to train on: none (the first one), mirrored (all GPUs), mirrored:N, multi-worker (see "
            "TF_CONFIG), tpu[:ADDRESS]"
        ),
    ] = "none"
    deterministic: Annotated[bool, Option("give the same numbers in every run on GPUs too; slower there")] = (
        False
    )

    def __post_init__(self):
        super().__post_init__()
        if not re.fullmatch(r"none|mirrored(:[1-9]\d{0,3})?|multi-worker|tpu(:.+)?", self.strategy):
            raise Refusal(
                "strategy",
                "none, mirrored, mirrored:N, multi-worker or tpu[:ADDRESS]",
                f"{self.strategy[:80]}",
            )


@dataclasses.dataclass(frozen=True)
class Plan:
    """A command whose options have been checked, as far as that is possible without its files."""

    command: Command
    training: Learning
    run: Kept
    model_options: Any


def plan_of(task_class: Any, arguments: argparse.Namespace) -> Plan:
    """What the parsed `arguments` ask of a task; ValueError for impossible settings."""
    typed = given(arguments, task_class.kept)
    with in_flags(task_class.kept):
        is_resumed = task_class.kept(arguments.out, **typed).resume
    record, source = _record_of(task_class, arguments, is_resumed)
    before = _named(source, Command.from_json, record.get("command", {}))
    if is_resumed:
        command = _resumed(task_class, arguments, before, bool(record.get("command")))
    else:
        command = _begun(task_class, arguments, before)
    if not command.data:
        raise ValueError(f"--data: expected {task_class.files}; got none")
    check_columns(task_class, command.columns)
    for name, value in command.fields.items():
        _named(source, _check_field, task_class, name, value)
    _named(source, TableOptions.from_json, command.layout)
    options = _named(source, task_class.model_options.from_json, command.model)
    if not is_resumed:
        _check_model(task_class, options, command, given(arguments, Command).get("changes", source))
    is_given = command.start is not None
    training = _named(source, task_class.training_of, is_given, record.get("options", {}))
    with in_flags(type(training)):
        training = dataclasses.replace(training, **_given(arguments, type(training)))
    once = {name: typed.pop(name, False) for name in ("resume", "overwrite")}
    command = dataclasses.replace(
        command,
        data=tuple(map(_absolute, command.data)),
        valid=tuple(map(_absolute, command.valid)),
        run=command.run | typed,
    )
    record = {**command.run, **once, "folder": arguments.out, "record": dataclasses.asdict(command)}
    run = _named(source, task_class.kept.from_json, record)
    return Plan(command, training, run, options)


def _record_of(task_class: Any, arguments: argparse.Namespace, is_resumed: bool) -> tuple[dict, str]:
    """The content of a training.json, of RUN or of --options FILE, and its name."""
    path = getattr(arguments, "options", None)
    if is_resumed:
        if path is not None:
            raise ValueError("--options: --resume takes the options of RUN itself; leave out one of the two")
        read_config(arguments.out)  # raises if it is not a RUN
        record, path = read_record(arguments.out), os.path.join(arguments.out, NAME)
    elif path is None:
        return {}, "--options"
    else:
        record = read_json(path)
        if not record.keys() & {"options", "command"}:
            raise ValueError(
                f'{path}: expected a training.json, with "options" or "command" in it; got neither'
            )
    task = record.get("task", task_class.name)
    if task != task_class.name:
        raise ValueError(f"{path}: expected a training of {task_class.name!r}, got one of {task!r}")
    for name in ("options", "command"):
        if not isinstance(record.get(name, {}), dict):
            raise ValueError(f"{path}: expected an object as {name!r}")
    return record, path


def _begun(task_class: Any, arguments: argparse.Namespace, before: Command) -> Command:
    """The command of a new training: what was typed, over what was read."""
    typed = _typed(task_class, arguments)
    is_model_typed = typed["model"] or "changes" in typed
    if typed.get("start") is not None:
        before = dataclasses.replace(before, model={}, changes={})
    if is_model_typed and (typed.get("start") or before.start) is not None:
        flags = [flag_of(task_class.model_options, name) for name in typed["model"]]
        flags += ["--config"] * ("changes" in typed)
        raise ValueError(f"{', '.join(flags)}: the model of --from cannot be changed; leave out one of them")
    merged = {name: getattr(before, name) | typed[name] for name in ("model", "fields", "layout")}
    with in_flags(Command):
        return dataclasses.replace(before, **typed | merged)


def _resumed(task_class: Any, arguments: argparse.Namespace, before: Command, is_known: bool) -> Command:
    """The command of a resumed training: files and devices may change, the model may not."""
    typed, then = _typed(task_class, arguments), {}
    config = read_config(arguments.out)["config"]
    defaults = {} if before.start or not is_known else defaults_of(task_class.model_options)
    now: dict[str, Any] = {}
    for name, value in typed.pop("model").items():
        flag = flag_of(task_class.model_options, name)
        now[flag], then[flag] = value, before.model.get(name, defaults.get(name))
    for name, value in typed.pop("fields").items():
        flag = flag_of(task_class.config_class, name)
        now[flag], then[flag] = value, config.get(name)
    for name, flag in (("start", "--from"), ("changes", "--config")):
        if name in typed:
            now[flag], then[flag] = typed.pop(name), getattr(before, name)
    refuse_changes(now, then)
    typed["layout"] = before.layout | typed["layout"]
    with in_flags(Command):
        return dataclasses.replace(before, **typed)


def _typed(task_class: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of `Command` that were typed; "model", "fields" and "layout" are always
    present."""
    typed = given(arguments, Command)
    if "start" in typed:
        typed["start"] = _lasting(typed["start"])
    if "changes" in typed:
        path = typed["changes"]
        if path.lstrip().startswith("{") and not os.path.exists(path):
            raise ValueError("--config: expected the name of a JSON file, got what stands in one")
        typed["changes"] = read_json(path)
        for field, option in task_class.model_options.set_here.items():
            if field in typed["changes"]:
                raise ValueError(f"{path}: the field {field} is set by {option}, use that instead")
    typed["model"] = _given(arguments, task_class.model_options)
    typed["fields"] = given(arguments, task_class.config_class)
    typed["layout"] = given(arguments, TableOptions)
    return typed


def _given(arguments: argparse.Namespace, config_class: type) -> dict[str, Any]:
    """{field: value} of the options that were typed, with paths that are valid in any folder."""
    values = given(arguments, config_class)
    return values | {name: _lasting(path) for name, path in paths_in(config_class, values).items()}


def _lasting(path: str) -> str:
    """A path that is valid in any folder; what does not exist may be a hub id, and stays."""
    return os.path.abspath(path) if os.path.exists(path) else path


def _absolute(path: str) -> str:
    """A path that is valid in any folder; standard input and data sets of TFDS are not paths."""
    return path if path == "-" or path.startswith(PREPARED) else os.path.abspath(path)


def _named(source: str, check: Any, *arguments: Any) -> Any:
    """The result of `check`; a ValueError gets the name of the file from which the arguments were read."""
    try:
        return check(*arguments)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def _check_field(task_class: Any, name: str, value: Any) -> None:
    """Raise ValueError for an unknown or invalid option of the task's configuration."""
    known = [field for field, _ in rules_of(task_class.config_class, Option)]
    if name not in known:
        raise ValueError(f"{task_class.name!r} has no option {name}; it has {', '.join(known)}.")
    checked(value, kinds_of(task_class.config_class)[name], name)


def _check_model(task_class: Any, options: Any, command: Command, source: str) -> None:
    """Raise ValueError for an unknown size, for changes (from the file `source`) that are not possible, and
    for a --from that is not a folder of a model.
    """
    start = command.start
    if start is not None:
        refuse_missing(start)
        if os.path.exists(start) and not os.path.exists(os.path.join(start, "config.json")):
            raise ValueError(
                f"--from: expected a RUN, a folder of Hugging Face's or a hub id; {start} has no config.json"
            )
        return
    with in_flags(task_class.model_options):
        base = options.base()
    if base is not None:
        _named(source, type(base).from_json, dataclasses.asdict(base) | command.changes)
    elif command.changes:
        raise ValueError(f"--config: the model of {task_class.name!r} has no fields to change")
