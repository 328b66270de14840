"""`keras-tfm info`: the size of a trained task's model, of a published one, or of a checkpoint."""

import argparse
import collections
import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Annotated, Any

from keras_tfm.cli import sizes
from keras_tfm.cli.console import quiet_tensorflow, say
from keras_tfm.cli.generated import add_options, flag_of, given
from keras_tfm.cli.models import described_run, family_and_size, model_of
from keras_tfm.configs import Config, Length, Option, rules_of

GIGA = 10**9


@dataclasses.dataclass(frozen=True)
class Counted(Config):
    """The inputs for which multiply-adds and memory are counted."""

    length: Annotated[Length | None, Option("tokens per example", default="128")] = None
    batch: Annotated[Length, Option("examples per batch")] = 1


def add(group: Any, add_verb: Any) -> None:
    """keras-tfm info."""
    info = add_verb(
        group,
        "info",
        run_info,
        "print a model's parameters, multiply-adds and memory; of an export, "
        "whether its files are as they were written",
    )
    info.add_argument(
        "model",
        metavar="RUN|SIZE|FOLDER",
        help="a family and one of its sizes, such as bert:base or ViT:B/16; or a folder that train, export "
        "or another library wrote; for the multiply-adds and memory of a RUN give --length or --batch",
    )
    add_options(info, Counted)
    info.add_argument(
        "--measure",
        action="store_true",
        help="also measure the memory of one step of inference and one of training, each in its own process",
    )
    info.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")


def run_info(arguments: argparse.Namespace) -> None:
    """info: a table of the parts."""
    from keras_tfm import serving
    from keras_tfm.tasks.task_folder import is_task_folder

    if serving.is_export(arguments.model):
        return _print_export(arguments)
    if os.path.isdir(arguments.model):
        is_run = is_task_folder(arguments.model)
        if not is_run and os.path.exists(os.path.join(arguments.model, "config.json")):
            return _print_checkpoint(arguments)
        described_run(arguments.model)  # refuses what is no RUN
        if not (given(arguments, Counted) or arguments.measure):
            return _print_parameters(arguments)
    _print_size(arguments)


def _print_size(arguments: argparse.Namespace) -> None:
    """Parameters, multiply-adds and memory."""
    counted = Counted(**given(arguments, Counted))
    size = _size(arguments.model, counted.length)
    if size.length is None and counted.length is not None:
        raise ValueError(f"--length: {arguments.model} reads no tokens")
    memory = {
        "inference_bytes": size.inference_bytes(counted.batch),
        "training_bytes": size.training_bytes(counted.batch),
    }
    measured = {}
    if arguments.measure:
        from keras_tfm.cli.measure import measured_bytes

        steps = ("inference", "training")
        measured = {
            f"{step}_bytes": measured_bytes(arguments.model, step, counted.batch, size.length)
            for step in steps
        }
    if arguments.json:
        more = {"measured": measured} if measured else {}
        print(json.dumps({"length": size.length, "parts": size.table(), **memory, **more}))
        return
    print(f"{'part':<16}{'parameters':>18}{'multiply-adds':>22}")
    for row in size.table():
        print(f"{row['part']:<16}{row['parameters']:>18,}{_number(row['multiply_adds']):>22}")
    tokens = "" if size.length is None else f" of {size.length} tokens"
    print(f"\nmultiply-adds for one example{tokens}; estimated memory for a batch of {counted.batch}:")
    for name, count in memory.items():
        estimate = "unknown, because of a loop" if count is None else f"{count / GIGA:.3g} GB"
        measure = f"; measured {measured[name] / GIGA:.3g} GB" if measured else ""
        print(f"{name.removesuffix('_bytes')}: {estimate}{measure}")
    say("In float32; training with AdamW. In bfloat16 inference takes half of it.")
    if measured:
        say("Measured: a process's peak above TensorFlow alone, once the step is compiled.")


def _size(name: str, length: int | None) -> Any:
    """The `Size` of a model; of a published one from the table, where its `length` is the table's. Another
    is made for it.
    """
    if not os.path.isdir(name):
        family, size = family_and_size(name)
        entry = sizes.table().get(family, {}).get(size)
        if entry is not None:
            _check_length(length, entry["max_length"])
            if length in (None, entry["length"]) or entry["length"] is None:
                return sizes.size_in(entry)
    quiet_tensorflow()
    from keras_tfm.private.keras import shapes_alone
    from keras_tfm.visualize.size import size_of

    with shapes_alone():
        model = model_of(name)
    _check_length(length, getattr(getattr(model, "backbone", model).config, "max_length", None))
    return size_of(model, length)


def _check_length(length: int | None, most: int | None) -> None:
    if most is not None and length is not None and length > most:
        raise ValueError(f"--length: the model takes {most} tokens at most, got {length}")


def _print_parameters(arguments: argparse.Namespace) -> None:
    """The parameters of a RUN by parts, from the header of its file of weights."""
    from keras_tfm.training.safetensors import read_shapes
    from keras_tfm.visualize.parts import PARTS, part_of

    shapes = read_shapes(pathlib.Path(arguments.model, "model.safetensors"))
    counts: collections.Counter[str] = collections.Counter()
    for name, (kind, shape) in shapes.items():
        is_scale = shapes.get(name.removesuffix("_scale"), ("",))[0] == "I8"  # of weights in 8 bits
        if kind == "I8" or (kind.startswith(("F", "BF")) and not is_scale):
            counts[part_of(name)] += math.prod(shape)
    rows = [{"part": name, "parameters": counts[name]} for name in (*PARTS, "other") if name in counts]
    rows.append({"part": "all", "parameters": counts.total()})
    if arguments.json:
        print(json.dumps({"parts": rows}))
        return
    print(f"{'part':<16}{'parameters':>18}")
    for row in rows:
        print(f"{row['part']:<16}{row['parameters']:>18,}")
    say("With --length or --batch also multiply-adds and memory, for which the model is made.")


def _print_checkpoint(arguments: argparse.Namespace) -> None:
    """What a folder of transformers or timm holds, from its config.json and the headers of its weights."""
    from keras_tfm.convert.folder import read_config, weight_files
    from keras_tfm.training.safetensors import read_shapes

    _refuse_counting(arguments, "a checkpoint of another library")
    folder = pathlib.Path(arguments.model)
    entries, (_, files) = read_config(folder), weight_files(folder)
    tensors = [tensor for path in files.values() for tensor in read_shapes(path).values()]
    kinds: collections.Counter[str] = collections.Counter()
    for kind, shape in tensors:
        kinds[kind] += math.prod(shape)
    named = entries.get("architectures") or [entries.get("architecture")]
    said = {
        "model": entries.get("model_type"),
        "architecture": named[0] if isinstance(named, list) else None,
        "tensors": len(tensors),
        "numbers": kinds.total(),
        **{kind: count for kind, count in kinds.items() if len(kinds) > 1},
        "kind": next(iter(kinds)) if len(kinds) == 1 else None,
        "files": len(files),
    }
    _print_said(arguments, said)
    if not arguments.json:
        say("keras-tfm convert makes a RUN of it, whose parts are counted.")


def _print_export(arguments: argparse.Namespace) -> None:
    """What an export says of itself; ValueError if one of its files has changed."""
    from keras_tfm import serving

    _refuse_counting(arguments, "an export")
    content = serving.describe(arguments.model)
    said = {name: content.get(name) for name in ("task", "format", "quantization")}
    if isinstance(needed := content.get("plugins"), dict):
        said["plugins"] = ", ".join(f"{name} {version}" for name, version in needed.items())
    said["files"] = len(content.get("files", {}))
    _print_said(arguments, said)
    if arguments.json:
        return
    if said["files"]:
        say("The files are as they were exported: their digests agree.")
    else:
        say("The export has no digests to compare its files with: earlier versions wrote none.")


def _refuse_counting(arguments: argparse.Namespace, kind: str) -> None:
    """Raise ValueError for options of what is counted or measured; the model is of another `kind`."""
    for name, _ in rules_of(Counted, Option):
        if name in given(arguments, Counted):
            raise ValueError(f"{flag_of(Counted, name)}: {arguments.model} is {kind}, nothing is counted")
    if arguments.measure:
        raise ValueError(f"--measure: {arguments.model} is {kind}, nothing is measured")


def _print_said(arguments: argparse.Namespace, said: Mapping[str, Any]) -> None:
    """Print names and values, as one line of JSON or a line each."""
    if arguments.json:
        print(json.dumps(said))
        return
    for name, value in said.items():
        if value is not None:
            print(f"{name:<16}{format(value, ',') if isinstance(value, int) else value:>18}")


def _number(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"
