"""What the command says: answers go to standard output, everything else by the log to standard error."""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from keras_tfm.log import Console

LOG = logging.getLogger("keras_tfm.cli")


def say(text: str) -> None:
    """Tell the caller, unless --quiet was given."""
    LOG.info("%s", text)


def warn(text: str) -> None:
    """Tell the caller what --quiet does not silence."""
    LOG.warning("%s", text)


def tell_untrained(task: Any, folder: Any) -> None:
    """Say so where the training in `folder` has not ended an epoch yet."""
    if not task.is_trained:
        warn(f"{folder}: no epoch of its training has ended yet; its weights are those that it began with")


class Words(logging.Formatter):
    """Errors begin with the command's name; what else is said stands as it is."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return f"keras-tfm: error: {text}" if record.levelno >= logging.ERROR else text


@contextlib.contextmanager
def speaking() -> Iterator[None]:
    """The log as the command line has it, `hush` included, within this scope."""
    logger = logging.getLogger("keras_tfm")
    ours = [handler for handler in logger.handlers if isinstance(handler, Console)]
    before = logger.level, [handler.formatter for handler in ours]
    for handler in ours:
        handler.setFormatter(Words())
    try:
        yield
    finally:
        logger.setLevel(before[0])
        for handler, formatter in zip(ours, before[1], strict=True):
            handler.setFormatter(formatter)


def hush() -> None:
    """Let only warnings and errors through, and no progress bars, until `speaking` ends."""
    logging.getLogger("keras_tfm").setLevel(logging.WARNING)


@contextlib.contextmanager
def ending_when_unread() -> Iterator[None]:
    """End silently, with SIGPIPE's exit code, where the reader of standard output is gone (`| head -1`)."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # What is still to be written is dropped: at its end Python would try once more, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(128 + signal.SIGPIPE) from None


def quiet_tensorflow() -> Any:
    """TensorFlow, and Keras with it, imported without what its libraries log while they start.

    Where scikit-learn and matplotlib are installed, Keras imports them for wrappers and pictures of its own,
    which took a third of the start: here it does without.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        with without("matplotlib", "sklearn"):
            import tensorflow
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    return tensorflow


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Within this scope imports do not find these packages, unless they are imported already."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None is what Python has for "not found"
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
