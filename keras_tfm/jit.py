"""Whether XLA compiles training steps and decoding: yes, unless the environment sets KERAS_TFM_JIT=0.

Compiled functions run faster, but each new shape takes seconds to compile. So 0 suits tiny runs and
debugging, like JAX_DISABLE_JIT for JAX.
"""

import contextlib
import contextvars
import os

import keras

from keras_tfm.private.keras import layers_in

_is_brief = contextvars.ContextVar("is_brief", default=False)


def jit_compile(model=None):
    """The value for `jit_compile=` of `Model.compile` and `tf.function`, read again at each call.

    If the environment says nothing, XLA compiles neither a `model` that it would slow down nor anything in
    the context `brief`.
    """
    value = os.environ.get("KERAS_TFM_JIT")
    if value not in (None, "0", "1"):
        raise ValueError(f"The environment variable KERAS_TFM_JIT must be 0 or 1; it is {value!r}.")
    if value is None:
        return not (_is_brief.get() or (model is not None and is_slowed(model)))
    return value == "1"


@contextlib.contextmanager
def brief():
    """A context for computations that take less time than their compilation would."""
    token = _is_brief.set(True)
    try:
        yield
    finally:
        _is_brief.reset(token)


def is_slowed(model):
    """Whether `model` has depthwise convolutions and there is only a CPU.

    On a CPU XLA takes 10 to 20 times as long for them and their gradients as TensorFlow does; a training
    step of a small CvT takes 5 times as long.
    """
    has_depthwise = any(isinstance(x, keras.layers.DepthwiseConv2D) for x in layers_in(model))
    return has_depthwise and is_cpu_alone()


def is_cpu_alone():
    """Whether there is neither a GPU nor a TPU."""
    return all(device.startswith("cpu") for device in keras.distribution.list_devices())
