"""What the command says: answers go to standard output, everything else to standard error."""

import os
import sys


def say(text):
    """Tell the caller on standard error."""
    print(text, file=sys.stderr, flush=True)


def quiet_tensorflow():
    """Import TensorFlow without what its libraries log while they start."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        import tensorflow  # noqa: F401
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
