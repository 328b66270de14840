"""The measured memory of a step of a model: the peak of a process that only runs this step.

The process measures its memory after TensorFlow's first computation; then it makes the model with fresh
weights, and runs two steps on examples of ones. The result is the peak minus that first value: weights,
gradients and moments, activations, and what tracing and compilation took. On a GPU it is the allocator's
peak.

For 8 images with ViT-S/16 on a CPU with XLA: 0.31 GB for inference (estimate 0.12), 1.71 for training (1.11);
without XLA 0.26 and 1.56.
"""

import json
import pathlib
import signal
import subprocess
import sys
from typing import Any

STATUS = pathlib.Path("/proc/self/status")
NEEDS = "--measure: expected Linux, where /proc shows the peak memory of a process"
CHILD = "import sys; from keras_tfm.cli.measure import report; report(*sys.argv[1:])"


def measured_bytes(name: str, step: str, batch_size: int, length: int | None) -> int:
    """The memory of `step`, "inference" or "training", of the model `name` of `keras-tfm info`, in a fresh
    process.

    ValueError if there is no /proc, or if the process failed, for example for lack of memory.
    """
    if not STATUS.exists():
        raise ValueError(NEEDS)
    command = [sys.executable, "-c", CHILD, name, step, str(batch_size), str(length or 0)]
    end = subprocess.run(command, capture_output=True, text=True, check=False)
    if end.returncode:
        last = (end.stderr.strip().splitlines() or [""])[-1]
        if end.returncode < 0:
            last = f"it was ended by {signal.Signals(-end.returncode).name}, perhaps for lack of memory"
        raise ValueError(f"--measure: the {step} step failed: {last}")
    return int(json.loads(end.stdout.splitlines()[-1]))


def report(name: str, step: str, batch_size: str, length: str) -> None:
    """Print the memory of the step in bytes; to be called in a process that does nothing else."""
    import tensorflow as tf

    from keras_tfm.cli.models import model_of

    tf.function(lambda x: tf.matmul(x, x))(tf.ones((256, 256)))  # starts threads and libraries
    before = _held("VmRSS")
    model = model_of(name)
    inputs = _examples(model, int(batch_size), int(length))
    take = {"inference": _inference, "training": _training}[step](model)
    for _ in range(2):
        take(inputs)
    if tf.config.list_physical_devices("GPU"):
        print(tf.config.experimental.get_memory_info("GPU:0")["peak"])
    else:
        print(_held("VmHWM") - before)


def _held(name: str) -> int:
    """The bytes that this process holds now (VmRSS), or has held at most (VmHWM)."""
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


def _examples(model: Any, batch_size: int, length: int) -> Any:
    """A batch of ones that the model can read, of `length` where an input has no fixed length."""
    import keras
    import tensorflow as tf

    def ones(x: Any) -> Any:
        return tf.ones([batch_size, *(length if n is None else n for n in x.shape[1:])], x.dtype)

    return keras.tree.map_structure(ones, model.input)


def _inference(model: Any) -> Any:
    import tensorflow as tf

    from keras_tfm.jit import jit_compile

    return tf.function(lambda inputs: model(inputs, training=False), jit_compile=jit_compile())


def _training(model: Any) -> Any:
    """A step of AdamW that moves all outputs towards 0, so that all weights learn."""
    import keras
    import tensorflow as tf

    from keras_tfm.jit import jit_compile
    from keras_tfm.training.optimizers import AdamW

    optimizer, variables = AdamW(1e-3, 0.01), model.trainable_variables
    optimizer.build(variables)

    @tf.function(jit_compile=jit_compile())
    def take(inputs: Any) -> None:
        with tf.GradientTape() as tape:
            outputs = keras.tree.flatten(model(inputs, training=True))
            loss = tf.add_n([tf.reduce_mean(tf.square(tf.cast(x, tf.float32))) for x in outputs])
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        learnt = [pair for pair in zip(gradients, variables, strict=True) if pair[0] is not None]
        optimizer.apply(*zip(*learnt, strict=True))

    return take
