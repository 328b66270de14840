"""`keras-tfm launch`: train with several processes on one machine."""

import argparse
import dataclasses
import subprocess
import sys
from typing import Annotated, Any

from keras_tfm.cli.generated import add_options, given
from keras_tfm.configs import Between, Config, Option

# Runs in a separate process: tasks import TensorFlow, whose threads make forking unsafe.
CHECK = """
import sys
from keras_tfm.cli import check
parsed = check(sys.argv[1:])
task = parsed.check.args[0]
print("strategy", vars(parsed).get("Command.strategy", "none") if task.has_devices else "alone")
"""


@dataclasses.dataclass(frozen=True)
class Workers(Config):
    """The number of training processes, and how they are stopped."""

    workers: Annotated[
        Annotated[int, Between(1, 1_000)], Option("number of processes; GPUs are divided among them")
    ]
    grace: Annotated[
        Annotated[int, Between(1, 86_400)],
        Option("seconds that processes have to save and exit when stopped"),
    ] = 120


def add(verbs: Any, add_verb: Any) -> None:
    """keras-tfm launch."""
    launch = add_verb(verbs, "launch", run, "train with several processes on this machine")
    add_options(launch, Workers)
    launch.add_argument("command", nargs=argparse.REMAINDER, help="-- train, followed by its arguments")


def run(arguments: argparse.Namespace) -> None:
    """launch: run `train` in N processes, which train one model and write one RUN."""
    from keras_tfm.launch import launch

    command = arguments.command[arguments.command[:1] == ["--"] :]
    if command[:1] != ["train"]:
        raise ValueError(f"launch: expected -- train …; got {' '.join(command[:1]) or 'no command'}.")
    workers = Workers(**given(arguments, Workers))
    strategy = _checked_strategy(command)
    if strategy == "alone":
        raise ValueError(f"launch: the task {command[1]!r} trains in one process; leave `launch` out.")
    if strategy == "none":
        command += ["--strategy", "multi-worker"]
    elif strategy != "multi-worker":
        raise ValueError(f"launch: the workers train with --strategy multi-worker; got {strategy}.")
    command += ["--quiet"] * arguments.quiet
    command = [sys.executable, "-m", "keras_tfm", *command]
    raise SystemExit(launch(command, workers.workers, workers.grace))


def _checked_strategy(command: list[str]) -> str:
    """The --strategy of `train`, "alone" for a task that has none; mistakes in its arguments are reported
    once, before the workers start.
    """
    end = subprocess.run([sys.executable, "-c", CHECK, *command], capture_output=True, text=True, check=False)
    word, _, strategy = end.stdout.strip().partition(" ")
    if end.returncode or word != "strategy":  # an error, or --help
        print(end.stdout, end="")
        print(end.stderr, end="", file=sys.stderr)
        raise SystemExit(end.returncode)
    return strategy
