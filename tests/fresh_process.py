"""Processes in which chosen packages cannot be imported: one for a piece of code, one for all SavedModels."""

import atexit
import functools
import os
import pathlib
import pickle
import subprocess
import sys

SERVER = """
import os, pickle, sys
answers, sys.stdout = sys.stdout.buffer, sys.stderr
import numpy as np
import tensorflow as tf
if sys.argv[1:]:
    import tensorflow_text
decode = np.vectorize(lambda x: x.decode("utf-8", "surrogateescape"), otypes="O")  # bytes stay what they are
known = None
while True:
    try:
        folder, changed, name, inputs = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
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
    pickle.dump(answer, answers)
    answers.flush()
"""


def run_fresh(code, *args, blocked=("keras_tfm",), timeout=300):
    """Run `code` (its `sys.argv[1:]` are `args`) where importing any module of `blocked` raises ImportError.

    Returns the CompletedProcess with `stdout` and `stderr` as text and leaves `returncode` to the caller.
    """
    command = [sys.executable, "-c", without(blocked) + code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def without(blocked):
    """Code after which no module of `blocked` can be imported."""
    return "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in blocked)


@functools.cache
def server(of_text):
    """One process for all SavedModels that are asked: importing TensorFlow costs seconds."""
    # tensorflow-text asks for Keras.
    blocked = ["keras_tfm", "keras_hub"] if of_text else ["keras_tfm", "keras"]
    command = [sys.executable, "-c", without(blocked) + SERVER, *(["text"] if of_text else [])]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(process.communicate)
    return process


def ask(folder, name="serving_default", of_text=True, **inputs):
    """What the SavedModel in `folder` answers where this package cannot be imported, nor Keras unless it is
    `of_text`, which tensorflow-text reads: arrays, in the structure of the outputs of the signature, or else
    the function, called `name`. RuntimeError where it refuses.
    """
    changed = os.stat(pathlib.Path(folder, "saved_model.pb")).st_mtime_ns
    process = server(of_text)
    pickle.dump((str(folder), changed, name, inputs), process.stdin)
    process.stdin.flush()
    answer = pickle.load(process.stdout)
    if isinstance(answer, RuntimeError):
        raise answer
    return answer
