"""SavedModels asked where neither this package nor Keras can be imported."""

import atexit
import functools
import subprocess
import sys
from pathlib import Path

import numpy as np

SERVER = """import sys
sys.modules["keras_tfm"] = sys.modules["keras"] = None
import numpy as np
import tensorflow as tf
for folder in map(str.strip, sys.stdin):
    inputs = {name: tf.constant(x) for name, x in np.load(folder + "/inputs.npz").items()}
    loaded = tf.saved_model.load(folder)
    outputs = loaded.serve(inputs)
    np.savez(folder + "/outputs.npz", *tf.nest.flatten(outputs))
    print("answered", flush=True)
"""


@functools.cache
def fresh_process():
    """One process for all exports of a session: importing TensorFlow costs seconds."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)
    return process


def answers_of_a_fresh_process(folder, inputs):
    """What the SavedModel in `folder` answers where this package cannot be imported."""
    np.savez(Path(folder, "inputs.npz"), **inputs)
    process = fresh_process()
    print(folder, file=process.stdin, flush=True)
    assert process.stdout.readline() == "answered\n"
    with np.load(Path(folder, "outputs.npz")) as outputs:
        return [outputs[name] for name in outputs.files]
