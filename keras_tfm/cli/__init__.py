"""The command `keras-tfm`: one module per kind of verb. `train` is generated from what the tasks declare.
It uses argparse, which takes `--data FILE FILE2`.

A mistake of the user's ends with one line and exit code 2; KERAS_TFM_TRACEBACK=1 shows where it was raised.
"""

import argparse
import contextlib
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from keras_tfm.asking import ASKED, TASKS
from keras_tfm.cli import attention, info, launch, match, plot, predict, screens, vectors, verbs
from keras_tfm.cli.console import LOG, OutputError, answering, hush, quiet_tensorflow, speaking, use_onednn
from keras_tfm.configs import meant
from keras_tfm.serving import plugins
from keras_tfm.version import __version__

# What options are called elsewhere, or were in earlier versions: mistakes that are explained, no options.
RENAMED = {
    "--train": "--data",
    "--input": "--data",
    "--images": "--data",
    "--kind": "--family",
    "--cased": "--no-lowercase",
    "--lr": "--learning-rate",
    "--output": "--out",
    "--output-dir": "--out",
    "--model": "--from",
}
# What transformers calls our tasks.
ELSEWHERE = {
    "text-classification": "classify",
    "token-classification": "tag",
    "ner": "tag",
    "question-answering": "answer",
    "multiple-choice": "choose",
    "translation": "translate",
    "summarization": "summarize",
    "text-generation": "generate",
    "fill-mask": "masked-lm",
    "image-classification": "classify-images",
    "video-classification": "classify-videos",
    "object-detection": "detect",
    "image-segmentation": "segment",
    "image-to-text": "caption",
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line.

    `fill(parser)` adds arguments that take seconds to determine; it is only called when the parser is used.
    `show(parser)` adds what a help shows of them, at once; it is called instead when a help is asked for.
    """

    fill: Callable[[Any], None] | None = None
    show: Callable[[Any], None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.show is not None and {"-h", "--help"} & set(args or ()):
            self.show(self)
        else:
            if self.show is not None and self.fill is not None:
                self._refuse_at_once(self.show, args)
            self.complete()
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flag = unknown[0].partition("=")[0]
            flags = re.findall(r"--[\w-]+", self.format_help())
            near = meant(RENAMED.get(flag, flag), flags) if flag.startswith("--") else ""
            is_value = not flag.startswith("-") and "--data" in flags
            is_text = flag == "--text" or (is_value and not os.path.exists(flag))
            if is_value:
                near = f" (did you mean --data {flag}?)"
            if is_text and self.prog.endswith(" predict"):
                near = f' (texts are read from standard input: echo "a text" | {self.prog} RUN)'
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            choices = list(action.choices or ())
            if action.dest == "task" and os.path.exists(value):
                error.message = f"expected a task before {value!r}: {', '.join(choices)}"
            near = meant(ELSEWHERE.get(value, value), choices)
            error.message = error.message.replace(" (choose from", f"{near} (choose from")
            raise

    def _refuse_at_once(self, show: Callable[[Any], None], args: Any) -> None:
        """Refuse options that are unknown or missing among those that `show` adds, which imports little."""
        quick: Any = Parser(self.prog, add_help=False)
        quick.add_argument("--quiet", action="store_true")
        show(quick)
        quick.parse_args(args)

    def complete(self) -> None:
        """Call `fill`, if that has not been done yet."""
        fill, self.fill = self.fill, None
        if fill is not None:
            fill(self)

    def error(self, message: str) -> Any:
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())} (see {self.prog} --help)\n")


def parser() -> Parser:
    """The parser of all verbs; each of them sets `run`, the function that executes it.

    Tasks, and TensorFlow with them, are only imported when `train TASK` is parsed.
    """
    root = Parser("keras-tfm", description="Train, run, evaluate and export Transformers.")
    root.add_argument("--version", action="version", version=f"keras-tfm {__version__}")
    group = root.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    verbs.add_demo(group, add_verb)
    tasks = group.add_parser(
        "train", help="train a task on your data", description="Train a task on your data."
    )
    tasks.fill = add_tasks
    verbs.add_evaluate(group, add_verb)
    predict.add(group, add_verb)
    attention.add(group, add_verb)
    verbs.add_others(group, add_verb)
    info.add(group, add_verb)
    plot.add(group, add_verb)
    vectors.add(group, add_verb)
    match.add(group, add_verb)
    launch.add(group, add_verb)
    return root


def add_tasks(train: Parser) -> None:
    """Add all tasks that learn to the parser of `train`: this package's, plugins, and imported ones. None is
    imported before it is chosen.
    """
    group = train.add_subparsers(title="tasks", dest="task", required=True, metavar="TASK")
    added = plugins.installed("task", ASKED).items()
    helps = {name: f"a task of {' '.join(plugin.distribution)}" for name, plugin in added}
    helps |= {name: getattr(task, "help", "") for name, task in TASKS.items()}
    helps |= {name: asked.help for name, asked in ASKED.items()}
    for name, help in sorted(helps.items()):
        if help:
            verb = add_verb(group, name, None, help)
            verb.fill = functools.partial(fill_task, name)
            if name in ASKED:
                verb.show = functools.partial(screens.show, name)


def fill_task(name: str, verb: Parser) -> None:
    """Let a parser train the task of this name, with its options; this imports TensorFlow."""
    use_onednn()
    quiet_tensorflow()
    from keras_tfm.cli.train import fill

    fill(name, verb)


def add_verb(group: Any, name: str, run: Callable[[argparse.Namespace], None] | None, help: str) -> Parser:
    """The parser of the verb `name`, which `run(arguments)` executes; `help` is also its description."""
    verb = group.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
    verb.add_argument(
        "--quiet", action="store_true", help="print only warnings and errors besides the answers"
    )
    verb.set_defaults(run=run)
    return verb


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command.

    It exits with code 0, 2 for a mistake of the user's, 130 after an interrupt, 143 after SIGTERM, 141 if
    nobody reads the answers any more, and 1 if something else stops a training.
    """
    with speaking(), answering(), _ending_in_a_line():
        parsed = parser().parse_args(arguments)
        if parsed.quiet:
            hush()
        parsed.run(parsed)


def check(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments of `train`; exits like `main` if they are wrong, as far as that is known without
    the files.
    """
    with speaking(), _ending_in_a_line():
        parsed = parser().parse_args(arguments)
        parsed.check(parsed)
    return parsed


@contextlib.contextmanager
def _ending_in_a_line() -> Iterator[None]:
    """A scope in which errors end the process with one line and an exit code."""
    try:
        yield
    except (BrokenPipeError, OutputError):
        raise
    except (ValueError, OSError, ImportError) as error:  # a package that an option needs
        _end(error, 2)
    except FloatingPointError as error:
        _end(error, 1)
    except KeyboardInterrupt as interrupt:
        LOG.warning("keras-tfm: interrupted%s", f"; {interrupt}" if str(interrupt) else "")
        raise SystemExit(130) from None
    except Exception as error:
        tensorflow = sys.modules.get("tensorflow")
        if isinstance(error, MemoryError) or (
            tensorflow is not None and isinstance(error, tensorflow.errors.ResourceExhaustedError)
        ):
            _end(f"not enough memory, a smaller model or batch takes less: {str(error)[:200]}", 1)
        if tensorflow is None or not isinstance(error, tensorflow.errors.UnavailableError):
            raise
        _end("another worker has stopped; start all of them again with --resume", 1)


def _end(error: Any, code: int) -> None:
    """Print one line and exit with `code`; to be called while an exception is handled."""
    if os.environ.get("KERAS_TFM_TRACEBACK"):
        raise
    LOG.error("%s", " ".join(str(error).split()))
    raise SystemExit(code) from None
