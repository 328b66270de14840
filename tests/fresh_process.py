"""Processes in which chosen packages cannot be imported: one for a piece of code, one for all SavedModels."""

import atexit
import contextlib
import functools
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection

SERVERS = "KERAS_TFM_TEST_SERVERS"  # the environment's name for the folder of `servers`

# Waits at a socket; TensorFlow is imported at the first question, and each process that asks is answered by a
# fork. It ends with its standard input.
SERVER = """
import os, signal, socket, sys
from multiprocessing.connection import Connection, wait
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print(flush=True)
os.dup2(2, 1)  # no fork keeps the pipe open
while True:
    if sys.stdin in wait([listener, sys.stdin]):
        os._exit(0)
    connection = Connection(listener.accept()[0].detach())
    import numpy as np
    import tensorflow as tf
    if sys.argv[2] == "texts":
        import tensorflow_text
    if os.fork() == 0:
        break
    connection.close()
decode = np.vectorize(lambda x: x.decode("utf-8", "surrogateescape"), otypes="O")  # bytes stay what they are
known = None
while True:
    try:
        folder, changed, name, inputs = connection.recv()
    except EOFError:
        os._exit(0)
    try:
        if known != (folder, changed):
            known, loaded = (folder, changed), tf.saved_model.load(folder)
        inputs = {key: tf.constant(x) for key, x in inputs.items()}
        signature = loaded.signatures.get(name)
        outputs = signature(**inputs) if signature else getattr(loaded, name)(inputs)
        arrays = tf.nest.map_structure(lambda x: x.numpy(), outputs)
        answer = tf.nest.map_structure(lambda x: decode(x) if x.dtype == object else x, arrays)
    except Exception as error:
        answer = RuntimeError(f"{type(error).__name__}: {error}")
    connection.send(answer)
"""
UNUSED = ("matplotlib", "sklearn")  # which Keras imports where it finds them: a third of its time


def run_fresh(code, *args, blocked=("keras_tfm",), timeout=300):
    """Run `code` (its `sys.argv[1:]` are `args`) where importing any module of `blocked` raises ImportError.

    Returns the CompletedProcess with `stdout` and `stderr` as text and leaves `returncode` to the caller.
    """
    command = [sys.executable, "-c", without(blocked) + code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def without(blocked):
    """Code after which no module of `blocked` can be imported."""
    return "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in blocked)


@contextlib.contextmanager
def servers():
    """The folder of the sockets of two processes: for SavedModels that read numbers, and that read texts.

    Importing TensorFlow costs seconds: one pair serves all processes of `tests/run.py`.
    """
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for name, other in (("numbers", "keras"), ("texts", "keras_hub")):  # tensorflow-text asks for Keras
            code = without(["keras_tfm", other, *UNUSED]) + SERVER
            command = [sys.executable, "-c", code, f"{folder}/{name}", name]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            processes.append(subprocess.Popen(command, **pipes))
        try:
            for process in processes:
                process.stdout.readline()  # it listens
            yield folder
        finally:
            for process in processes:
                process.communicate()


@functools.cache
def server(of_text):
    """This process's connection to a server for SavedModels, of `tests/run.py` or of its own."""
    folder = os.environ.get(SERVERS)
    if folder is None:
        own = contextlib.ExitStack()
        atexit.register(own.close)
        folder = own.enter_context(servers())
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"{folder}/{'texts' if of_text else 'numbers'}")
    return Connection(connection.detach())


def ask(folder, name="serving_default", of_text=True, **inputs):
    """What the SavedModel in `folder` answers where this package cannot be imported, nor Keras unless it is
    `of_text`, which tensorflow-text reads: arrays, in the structure of the outputs of the signature, or else
    the function, called `name`. RuntimeError where it refuses.
    """
    changed = os.stat(pathlib.Path(folder, "saved_model.pb")).st_mtime_ns
    connection = server(of_text)
    connection.send((os.path.abspath(folder), changed, name, inputs))
    answer = connection.recv()
    if isinstance(answer, RuntimeError):
        raise answer
    return answer
