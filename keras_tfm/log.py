"""One logger, "keras_tfm": it writes to standard error, above progress bars, and passes nothing on.

`logging.getLogger("keras_tfm")` is an application's to configure: its level, its handlers, `propagate`.
"""

import logging
import sys

from tqdm import tqdm


class Console(logging.Handler):
    """Writes records to standard error as it is at that moment, above a progress bar."""

    def emit(self, record):
        tqdm.write(self.format(record), file=sys.stderr)


def begin():
    """Let the package speak: what happens (INFO), and what a user should know (WARNING)."""
    logger = logging.getLogger("keras_tfm")
    if not logger.handlers:
        logger.addHandler(Console())
        logger.setLevel(logging.INFO)
        logger.propagate = False  # libraries configure the root logger behind an application's back
