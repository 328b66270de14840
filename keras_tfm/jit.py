"""Whether XLA compiles training steps and decoding: yes, unless the environment sets KERAS_TFM_JIT=0.

Compiled functions run faster, but each new shape takes seconds to compile. So 0 suits tiny runs and
debugging, like JAX_DISABLE_JIT for JAX.
"""

import contextlib
import contextvars
import os
import pathlib

import keras

from keras_tfm.private.keras import layers_in

_is_brief = contextvars.ContextVar("is_brief", default=False)
_is_fusing = contextvars.ContextVar("is_fusing", default=False)


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


def fuses(model):
    """Whether XLA is to compile the functions between the products of `model`, one by one, in training and
    evaluation: where it would slow down the whole, and the environment says nothing.
    """
    return "KERAS_TFM_JIT" not in os.environ and is_slowed(model)


@contextlib.contextmanager
def fusing(on=True):
    """A context for building graphs in which XLA compiles the `fused` functions of `layers.compiler`."""
    token = _is_fusing.set(on)
    try:
        yield
    finally:
        _is_fusing.reset(token)


def is_fusing():
    """Whether a graph is built under `fusing`."""
    return _is_fusing.get()


def is_slowed(model):
    """Whether there is only a CPU, and `model` computes in bfloat16 or has overlapping convolutions.

    On a CPU XLA takes 10 to 20 times as long as TensorFlow for depthwise convolutions and their gradients,
    and twice as long for others: a training step of a small CvT takes 5 times as long, a step of a small
    ResNet 2.2 times. Patches, whose windows do not overlap, are plain products and are not slowed. Products
    in bfloat16 take XLA 2 to 7 times as long there as TensorFlow, where oneDNN computes them.
    """
    return is_cpu_alone() and (computes_in(model, "bfloat16") or any(map(_is_slow, layers_in(model))))


def computes_in(model, dtype):
    """Whether any layer of `model` computes in numbers of type `dtype`."""
    return any(layer.compute_dtype == dtype for layer in layers_in(model))


def slow_bfloat16(jit):
    """A sentence on why bfloat16 is slower here than float32, or None where it is not.

    `jit` says whether XLA compiles. oneDNN's products of many rows in bfloat16 take a third of float32's time
    on processors with AMX, and 0.57 of it on an AMD EPYC with AVX-512 BF16; they took twice as long on one
    with neither.
    """
    if not is_cpu_alone():
        return None
    if jit:
        return "XLA multiplies bfloat16 on a CPU more slowly than float32: leave out --jit"
    if not multiplies_bfloat16():
        return "this processor cannot multiply bfloat16 (AMX or AVX-512 BF16): float32 is about twice as fast"
    return None


def multiplies_bfloat16():
    """Whether Linux says that the processor multiplies bfloat16 by itself, by AMX or AVX-512 BF16."""
    return not processor_features().isdisjoint({"amx_bf16", "avx512_bf16"})


def processor_features():
    """The names of instruction sets that Linux lists for the processor, among other words; elsewhere none."""
    try:
        return {*pathlib.Path("/proc/cpuinfo").read_text("utf-8").split()}
    except OSError:
        return set()


def _is_slow(layer):
    if isinstance(layer, keras.layers.DepthwiseConv2D):
        return True
    is_plane = isinstance(layer, keras.layers.Conv2D)
    return is_plane and any(size > step for size, step in zip(layer.kernel_size, layer.strides, strict=True))


def is_cpu_alone():
    """Whether there is neither a GPU nor a TPU."""
    return all(device.startswith("cpu") for device in keras.distribution.list_devices())
