"""How XLA compiles a training step.

- As a whole, where all batches have one shape.
- The gradients for each shape of a batch and the update once, where the shapes differ: an optimizer's update,
  which is the same for all shapes, takes XLA as long as the gradients of a small model.
- Only what stands between the products, `in_parts`, where XLA would slow down the whole
  (`keras_tfm.jit.is_slowed`).
- Not at all, with `jit_compile=False` or `run_eagerly=True`.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_tfm.jit import fusing


def compiled_for(model: keras.Model, function: Callable) -> Callable:
    """`function`, compiled by XLA if the steps of `model` are."""
    if model.jit_compile and not model.run_eagerly:
        return tf.function(function, jit_compile=True, autograph=False)
    return function


def has_one_shape(data: Any) -> bool:
    """Whether all batches like `data`, for which a step is traced, have the same shape."""
    return all(x.shape.is_fully_defined() for x in tf.nest.flatten(data) if x is not None)


def in_parts(step: Callable) -> Callable:
    """`step`, in whose graph XLA compiles what stands between the products."""

    @functools.wraps(step)
    def step_in_parts(*args: Any) -> Any:
        with fusing():
            return step(*args)

    return step_in_parts
