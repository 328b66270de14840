"""How far gradients reach back in time: products of Jacobians, and their norms.

Bengio, Simard and Frasconi 1994, "Learning Long-Term Dependencies with Gradient Descent Is Difficult";
Pascanu, Mikolov and Bengio 2013, "On the Difficulty of Training Recurrent Neural Networks", section 2.

    jacobians = state_jacobians(keras.layers.LSTMCell(32), x)  # x (T, D)
    norms(products_to_end(jacobians))  # |d s_T / d s_k| for k = 0 .. T: vanishing or exploding gradients
    norms(input_jacobians(model, x))  # |d y_T / d x_k| of any model, for example one with attention

`visualize.plots.plot_reach` draws them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def state_jacobians(
    cell: keras.layers.Layer, x: np.ndarray, state: Sequence[np.ndarray] | None = None
) -> np.ndarray:
    """d s_t / d s_(t-1) of a recurrent `cell` along the inputs `x` (T, D): an array (T, P, P).

    The state s of P numbers is everything that the cell passes on; for an LSTM, h and c concatenated. It
    starts with `state`, by default zeros.

    >>> jacobians = keras_tfm.training.state_jacobians(keras.layers.LSTMCell(3), np.ones((5, 2)))
    >>> jacobians.shape, keras_tfm.training.products_to_end(jacobians).shape
    ((5, 6, 6), (6, 6, 6))
    """
    inputs = tf.cast(tf.convert_to_tensor(x), cell.compute_dtype)[:, None]  # (T, 1, D)
    states: Any = cell.get_initial_state(batch_size=1) if state is None else state
    states = [tf.reshape(tf.cast(part, cell.compute_dtype), (1, -1)) for part in tf.nest.flatten(states)]
    sizes = [part.shape[1] for part in states]
    joined, jacobians = tf.concat(states, axis=1), []
    each = tf.eye(sum(sizes), dtype=joined.dtype)
    for token in inputs:
        copies = tf.repeat(joined, len(each), axis=0)  # (P, P): one copy for each row of the Jacobian
        with tf.GradientTape() as tape:
            tape.watch(copies)
            states = cell(tf.repeat(token, len(each), axis=0), tf.split(copies, sizes, axis=1))[1]
            after = tf.concat(states, axis=1)
        jacobians.append(tape.gradient(after, copies, each).numpy())
        joined = after[:1]
    return np.stack(jacobians)


def products_to_end(jacobians: np.ndarray) -> np.ndarray:
    """d s_T / d s_k, the products of d s_j / d s_(j-1) for j = k+1 .. T, for k = 0 .. T: (T + 1, P, P).

    >>> jacobians = np.array([[[0.5]], [[0.5]], [[4.0]]])  # of three steps, for a state of one number
    >>> keras_tfm.training.products_to_end(jacobians).ravel().tolist()
    [1.0, 2.0, 4.0, 1.0]
    """
    products = [np.eye(jacobians.shape[-1], dtype=jacobians.dtype)]
    for jacobian in jacobians[::-1]:
        products.append(products[-1] @ jacobian)
    return np.stack(products[::-1])


def input_jacobians(model: Callable, x: np.ndarray) -> np.ndarray:
    """d y_T / d x_k at the last position of a `model` from (1, T, D) to (1, T, P): an array (T, P, D).

    >>> layer = keras.layers.SimpleRNN(3, return_sequences=True)
    >>> keras_tfm.training.input_jacobians(layer, np.ones((5, 2), "float32")).shape
    (5, 3, 2)
    """
    inputs = tf.convert_to_tensor(x)[None]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        last = tf.cast(model(inputs)[0, -1], inputs.dtype)
    return np.moveaxis(tape.jacobian(last, inputs, experimental_use_pfor=False)[:, 0].numpy(), 1, 0)


def norms(jacobians: np.ndarray) -> np.ndarray:
    """The largest singular value of each matrix (..., P, D): the most that it can enlarge a small change.

    >>> keras_tfm.training.norms(np.diag([3.0, -4.0])).round(6).item()
    4.0
    """
    return np.linalg.norm(jacobians, 2, axis=(-2, -1))
