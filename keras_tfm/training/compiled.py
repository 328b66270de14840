"""How XLA compiles the steps of a model: functions of a step as a whole, or parts of the step alone."""

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


def in_parts(step: Callable) -> Callable:
    """`step`, in whose graph XLA compiles what stands between the products."""

    @functools.wraps(step)
    def step_in_parts(*args: Any) -> Any:
        with fusing():
            return step(*args)

    return step_in_parts
