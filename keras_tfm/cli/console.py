"""What the command prints: answers to standard output, everything else through the log to standard error."""

import contextlib
import gc
import logging
import os
import platform
import signal
import sys
from collections.abc import Iterator
from typing import Any

from keras_tfm.cli.compiled_code import keep_compiled_code
from keras_tfm.log import Console

LOG = logging.getLogger("keras_tfm.cli")
UNUSED = ("matplotlib", "sklearn")
OF_KERAS = ("keras", "h5py", "scipy")


def say(text: str) -> None:
    """Inform the user, unless --quiet was given."""
    LOG.info("%s", text)


def warn(text: str) -> None:
    """Inform the user, also with --quiet."""
    LOG.warning("%s", text)


def tell_untrained(task: Any, folder: Any) -> None:
    """Warn if the training in `folder` has not finished an epoch yet."""
    if not task.is_trained:
        warn(f"{folder}: no epoch of its training has ended yet; it has its initial weights")


class Words(logging.Formatter):
    """A log formatter: errors begin with the command's name, other messages are unchanged."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return f"keras-tfm: error: {text}" if record.levelno >= logging.ERROR else text


@contextlib.contextmanager
def speaking() -> Iterator[None]:
    """A scope in which the log is formatted for the command line; it also undoes `hush`."""
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
    """Show only warnings and errors, and no progress bars, until `speaking` ends."""
    logging.getLogger("keras_tfm").setLevel(logging.WARNING)


class OutputError(OSError):
    """Answers cannot be written to standard output."""


class Output:
    """Standard output, whose errors say so; `stream` is None where it is closed."""

    def __init__(self, stream: Any):
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        if self.stream is None:
            raise OutputError("standard output is closed: there is no place for the answers")
        with _naming_output():
            try:
                return self.stream.write(text)
            except UnicodeEncodeError:  # of the name of a file, for example, whose bytes are no UTF-8
                encoding = self.stream.encoding
                return self.stream.write(text.encode(encoding, "replace").decode(encoding))

    def flush(self) -> None:
        if self.stream is not None:
            with _naming_output():
                self.stream.flush()


@contextlib.contextmanager
def _naming_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output: {error.strerror or error}") from None


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """A scope in which any of the three standard streams may be closed, and standard output full or unread.

    It exits silently with SIGPIPE's code if the reader of standard output is gone (`| head -1`), and with one
    line if an answer cannot be written; what prints no answers needs no output.
    """
    _open_streams()
    stream = sys.stdout
    sys.stdout = Output(stream)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop(stream)
        raise SystemExit(128 + signal.SIGPIPE) from None
    except OutputError as error:
        _drop(stream)
        LOG.error("%s", error)
        raise SystemExit(2) from None
    finally:
        sys.stdout = stream


def _open_streams() -> None:
    """Open the closed ones among the descriptors 0, 1 and 2: files would get these numbers, and what
    libraries print would go into them.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _drop(stream: Any) -> None:
    """Let the rest of the output go nowhere: Python would try to write it at exit, and complain."""
    with contextlib.suppress(AttributeError, OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def quiet_tensorflow(alone: bool = False) -> Any:
    """Import TensorFlow and Keras without the messages that their libraries print at the start, and let it
    find the code that XLA compiled in earlier runs. TensorFlow `alone` computes graphs that are not compiled.

    Keras imports scikit-learn and matplotlib if they are installed, for wrappers and pictures of its own,
    which took a third of the start-up time; here they are hidden from it. So are, from TensorFlow alone,
    Keras and what TensorFlow's own copy of an older Keras would use: a sixth of the time.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    keeps_code = not alone and "tensorflow" not in sys.modules and keep_compiled_code() is not None
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        with without(*UNUSED, *OF_KERAS * alone), uncollected():
            import tensorflow

            if keeps_code:
                from keras_tfm.private.tensorflow import number_functions_by_name

                number_functions_by_name()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    return tensorflow


def use_onednn() -> None:
    """Let TensorFlow, unless it is imported already or the user's environment says whether to, use oneDNN on
    every x86 processor.

    By itself it does so only where there is AVX-512 VNNI. With AVX2 alone, one core trained the default image
    classifier 1.8 times as fast by oneDNN, a segmenter 1.2 and a U-Net 1.24 times: the gradients of
    convolutions took half of their time. Answers gain little by it.
    """
    if platform.machine() in ("x86_64", "AMD64") and "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """A scope in which Python collects no garbage; what is made in it is never looked through later either.

    Imports make hundreds of thousands of objects that stay. Looking for garbage among them took a sixth of
    the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """A scope in which imports do not find these packages, unless they are already imported."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None means "not found" to Python
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
