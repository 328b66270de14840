"""The package's logger, "keras_tfm", which writes to standard error, and its progress bar.

Applications configure `logging.getLogger("keras_tfm")` as usual: its level, its handlers, `propagate`.
"""

import contextlib
import logging
import os
import sys
import time

from tqdm import tqdm

LOG = logging.getLogger(__name__)


class Lossy:
    """What standard error is at that moment. What cannot be written there is lost: it is closed, its disk is
    full, or its reader has gone, which is no reason to end a training.
    """

    def __getattr__(self, name):
        return getattr(sys.stderr, name)

    def write(self, text):
        try:
            return sys.stderr.write(text)
        except (OSError, ValueError, AttributeError):
            self.drop()

    def flush(self):
        try:
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            self.drop()

    def isatty(self):
        return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()

    def drop(self):
        """Let the rest go nowhere: Python would try to write it at exit, and end with another code."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


STREAM = Lossy()


class Console(logging.Handler):
    """Writes records to what standard error is at that moment, above a progress bar."""

    def emit(self, record):
        tqdm.write(self.format(record), file=STREAM)


class Bar(tqdm):
    """tqdm's progress bar on standard error, shown after a second if INFO is logged.

    If standard error is not a terminal, but a file for example, a line per minute is written instead.
    """

    SECONDS_HIDDEN = 1
    SECONDS_A_LINE = 60

    def __init__(self, *arguments, **options):
        self.is_terminal, self.said = STREAM.isatty(), time.monotonic()
        is_hidden = not LOG.isEnabledFor(logging.INFO)
        ours = {"file": STREAM, "disable": is_hidden, "leave": False, "dynamic_ncols": True}
        super().__init__(*arguments, delay=self.SECONDS_HIDDEN, mininterval=0.5, **ours, **options)

    def refresh(self, nolock=False, lock_args=None):
        """Draw the bar, or write a line if a minute has passed."""
        if self.is_terminal:
            super().refresh(nolock, lock_args)
        elif not self.disable and (now := time.monotonic()) - self.said >= self.SECONDS_A_LINE:
            self.said = now  # set first: tqdm redraws all bars after what is logged
            LOG.info("%s", self.line())

    def display(self, msg=None, pos=None):
        """Draw the bar on a terminal; elsewhere do nothing."""
        return self.is_terminal and super().display(msg, pos)

    def clear(self, nolock=False):
        """Remove the bar while something else is written."""
        if self.is_terminal:
            super().clear(nolock)

    def line(self):
        """The state of the bar in words."""
        number = self.format_sizeof if self.unit_scale else "{:,}".format
        total = f" of {number(self.total)}" if self.total else ""
        after = f", {self.postfix}" if self.postfix else ""
        return f"{self.desc.removesuffix(': ')}  {self.unit.strip()} {number(self.n)}{total}{after}"


def begin():
    """Configure the logger, so that messages (INFO) and warnings are shown."""
    logger = logging.getLogger("keras_tfm")
    if not logger.handlers:
        logger.addHandler(Console())
        logger.setLevel(logging.INFO)
        logger.propagate = False  # other libraries may configure the root logger
