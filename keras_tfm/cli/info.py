"""`keras-tfm info`: the size of a trained task's model, or of a published one."""

import argparse
import dataclasses
import json
from typing import Annotated, Any

from keras_tfm.cli.console import say
from keras_tfm.cli.generated import add_options, flag_of, given
from keras_tfm.cli.models import model_of
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
        "print a model's parameters, multiply-adds and memory, without computing anything; of an export, "
        "whether its files are as they were written",
    )
    info.add_argument(
        "model",
        metavar="RUN|SIZE|EXPORT",
        help="a folder that train wrote; a family and one of its sizes, such as bert:base or ViT:B/16; or a "
        "folder that export wrote",
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
    from keras_tfm.private.keras import shapes_alone
    from keras_tfm.visualize.size import size_of

    if serving.is_export(arguments.model):
        return _print_export(arguments)
    counted = Counted(**given(arguments, Counted))
    with shapes_alone():
        model = model_of(arguments.model)
    most = getattr(getattr(model, "backbone", model).config, "max_length", None)
    if most is not None and counted.length is not None and counted.length > most:
        raise ValueError(f"--length: the model takes {most} tokens at most, got {counted.length}")
    size = size_of(model, counted.length)
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


def _print_export(arguments: argparse.Namespace) -> None:
    """What an export says of itself; ValueError if one of its files has changed."""
    from keras_tfm import serving

    for name, _ in rules_of(Counted, Option):
        if name in given(arguments, Counted):
            raise ValueError(f"{flag_of(Counted, name)}: {arguments.model} is an export, nothing is counted")
    if arguments.measure:
        raise ValueError(f"--measure: {arguments.model} is an export, nothing is measured")
    content = serving.describe(arguments.model)
    said = {name: content.get(name) for name in ("task", "format", "quantization")}
    if isinstance(needed := content.get("plugins"), dict):
        said["plugins"] = ", ".join(f"{name} {version}" for name, version in needed.items())
    said["files"] = len(content.get("files", {}))
    if arguments.json:
        print(json.dumps(said))
        return
    for name, value in said.items():
        if value is not None:
            print(f"{name:<16}{value:>18}")
    if said["files"]:
        say("The files are as they were exported: their digests agree.")
    else:
        say("The export has no digests to compare its files with: earlier versions wrote none.")


def _number(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"
