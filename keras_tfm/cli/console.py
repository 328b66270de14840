"""What the command says: answers go to standard output, everything else to standard error."""

import contextlib
import os
import signal
import sys


def say(text):
    """Tell the caller on standard error."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def ending_when_unread():
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


def quiet_tensorflow():
    """TensorFlow, imported without what its libraries log while they start."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        import tensorflow
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    return tensorflow
