"""The memory that a step of a model takes, measured: the high-water mark of a process that runs it alone.

The process notes what it holds once TensorFlow has computed something; then it makes the model, with fresh
weights, and takes two steps on made-up examples. How far its mark then stands above that note is the answer:
weights, gradients and moments, what a step keeps, and what tracing and compiling it took. Where there is a
GPU the mark is that of its allocator, whose note is 0.

Of 8 images by ViT-S/16, on a CPU without XLA: 0.26 GB for inference (0.12 are estimated), 1.56 for training
(1.11).
"""

import json
import pathlib
import signal
import subprocess
import sys
from typing import Any

STATUS = pathlib.Path("/proc/self/status")
NEEDS = "--measure: expected Linux, whose /proc tells a process's highest memory"
CHILD = "import sys; from keras_tfm.cli.measure import report; report(*sys.argv[1:])"


def measured_bytes(name: str, step: str, batch_size: int, length: int | None) -> int:
    """Memory of the `step`, "inference" or "training", of `info`'s model `name`, in a fresh process.

    ValueError where there is no /proc, or where the process failed: for want of memory, for example.
    """
    if not STATUS.exists():
        raise ValueError(NEEDS)
    command = [sys.executable, "-c", CHILD, name, step, str(batch_size), str(length or 0)]
    end = subprocess.run(command, capture_output=True, text=True, check=False)
    if end.returncode:
        last = (end.stderr.strip().splitlines() or [""])[-1]
        if end.returncode < 0:
            last = f"it was ended by {signal.Signals(-end.returncode).name}, as where memory is short"
        raise ValueError(f"--measure: the {step} step failed: {last}")
    return int(json.loads(end.stdout.splitlines()[-1]))


def report(name: str, step: str, batch_size: str, length: str) -> None:
    """Print what the step takes, in bytes: to be called in a process that does nothing else."""
    import tensorflow as tf

    from keras_tfm.cli.info import model_of

    tf.function(lambda x: tf.matmul(x, x))(tf.ones((256, 256)))  # threads and libraries are there
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
    """Bytes that this process holds, VmRSS, or has held at most, VmHWM."""
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


def _examples(model: Any, batch_size: int, length: int) -> Any:
    """A batch that the model can read: ones, of `length` where an input has no length of its own."""
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
    """A step of AdamW towards outputs of 0: of all of them, so that everything learns."""
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
