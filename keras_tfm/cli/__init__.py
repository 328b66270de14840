"""The command `keras-tfm`, a module for each kind of verb and one for each task that `train` knows.

A mistake of the caller's is one line and exit code 2; KERAS_TFM_TRACEBACK=1 shows where it arose.
"""

import argparse
import os
from typing import Any

from keras_tfm.cli import fine_tune, generate, launch, masked_lm, summarize, translate, verbs
from keras_tfm.cli.console import ending_when_unread, quiet_tensorflow, say
from keras_tfm.version import __version__

TASKS = (translate, summarize, generate, masked_lm, fine_tune)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def parser():
    """The parser of all verbs; each sets `run`, the function that does it."""
    root = Parser("keras-tfm", description="Train, ask, measure and export Transformers.")
    root.add_argument("--version", action="version", version=f"keras-tfm {__version__}")
    group = root.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    verbs.add_demo(group)
    train = group.add_parser(
        "train", help="train a task on your data", description="Train a task on your data."
    )
    tasks = train.add_subparsers(title="tasks", dest="task", required=True, metavar="TASK")
    for task in TASKS:
        task.add(tasks)
    verbs.add_asking(group)
    launch.add(group)
    return root


def main(arguments=None):
    """Run the command: exit code 0, 2 for a mistake of the caller's, 130 when interrupted, 1 for what else
    stops a training, 143 for SIGTERM, 141 where nobody reads the answers any more.
    """
    with ending_when_unread():
        _run(parser().parse_args(arguments))


def _run(options):
    worker_lost: Any = ()
    try:
        if options.check:
            options.check(options)
        if options.run is not launch.run:  # which needs no TensorFlow itself
            worker_lost = quiet_tensorflow().errors.UnavailableError
        options.run(options)
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        _end(error, 2)
    except FloatingPointError as error:
        _end(error, 1)
    except worker_lost:
        _end("another worker is gone; start all of them again with --resume", 1)
    except KeyboardInterrupt:
        say("keras-tfm: interrupted")
        raise SystemExit(130) from None


def _end(error, code):
    """One line and the exit code; to be called while an exception is handled."""
    if os.environ.get("KERAS_TFM_TRACEBACK"):
        raise
    say(f"keras-tfm: error: {' '.join(str(error).split())}")
    raise SystemExit(code) from None
