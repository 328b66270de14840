"""`keras-tfm launch`."""

import argparse

from keras_tfm.cli.numbers import whole
from keras_tfm.cli.options import add_verb


def add(verbs):
    """keras-tfm launch."""
    launch = add_verb(verbs, "launch", run, "train by several processes on this machine")
    launch.add_argument(
        "--workers",
        type=whole(1, 1_000),
        required=True,
        metavar="N",
        help="how many; GPUs are divided among them",
    )
    launch.add_argument(
        "--grace",
        type=whole(1, 86_400),
        default=120,
        metavar="S",
        help="seconds to save and end in, when asked to stop (default: %(default)s)",
    )
    launch.add_argument("command", nargs=argparse.REMAINDER, help="-- train and its arguments")


def run(options):
    """launch: `train` in each of N processes, which save one RUN."""
    import sys

    from keras_tfm.cli import parser
    from keras_tfm.launch import launch

    command = options.command[options.command[:1] == ["--"] :]
    if command[:1] != ["train"]:
        raise ValueError(f"launch: expected -- train …; got {' '.join(command[:1]) or 'no command'}.")
    wanted = parser().parse_args(command)  # what is wrong with it is said once, before it starts
    if wanted.check:
        wanted.check(wanted)
    strategy = wanted.strategy
    if strategy == "none":
        command += ["--strategy", "multi-worker"]
    elif strategy != "multi-worker":
        raise ValueError(f"launch: its workers train with --strategy multi-worker; it was given {strategy}.")
    raise SystemExit(launch([sys.executable, "-m", "keras_tfm", *command], options.workers, options.grace))
