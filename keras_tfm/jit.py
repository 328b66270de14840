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
    """Whether `model` has convolutions whose windows overlap and there is only a CPU.

    On a CPU XLA takes 10 to 20 times as long as TensorFlow for depthwise convolutions and their gradients,
    and twice as long for others: a training step of a small CvT takes 5 times as long, that of a small ResNet
    2.2 times. Patches, whose windows do not overlap, are plain products and are not slowed.
    """
    return is_cpu_alone() and any(map(_is_slow, layers_in(model)))


def _is_slow(layer):
    if isinstance(layer, keras.layers.DepthwiseConv2D):
        return True
    is_plane = isinstance(layer, keras.layers.Conv2D)
    return is_plane and any(size > step for size, step in zip(layer.kernel_size, layer.strides, strict=True))


def is_cpu_alone():
    """Whether there is neither a GPU nor a TPU."""
    return all(device.startswith("cpu") for device in keras.distribution.list_devices())
