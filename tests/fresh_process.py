"""Python code in a process of its own, in which chosen packages cannot be imported."""

import subprocess
import sys


def run_fresh(code, *args, blocked=("keras_tfm",), timeout=300):
    """Run `code` (its `sys.argv[1:]` are `args`) where importing any module of `blocked` raises ImportError.

    Returns the CompletedProcess with `stdout` and `stderr` as text and leaves `returncode` to the caller.
    Importing TensorFlow costs seconds: let one call answer for several exports.
    """
    block = "".join(f"sys.modules[{name!r}] = None\n" for name in blocked)
    command = [sys.executable, "-c", f"import sys\n{block}{code}", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
