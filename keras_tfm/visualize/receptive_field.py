"""From which positions each layer's output is made: gradients through the stacks of a model.

One layer of self-attention reaches from every position to every other; causal masks, windows, convolutions
and recurrences reach less far, but further the more of them are stacked.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.tasks.reading import read
from keras_tfm.training.model import Model
from keras_tfm.visualize.attribution import following


def receptive_field(
    task: Any, example: Any, target: str | None = None, seed: int = 0, **options: Any
) -> dict[str, list[np.ndarray]]:
    """{stack: for each block how strongly its output at T positions depends on the S positions of what goes
    into the first block: (T, S)}.

    `example`, `target` and `options` are as in `look`. A number is the length of the gradient of the output
    at one position, projected on a random direction that `seed` draws, by the vector at the other: 0 where
    nothing reaches from there to here. The positions of a map are its cells, row by row. T times the work of
    one backward pass for each block. ValueError for a task that reads neither texts nor images.

    >>> sizes = {"max_length": 32, "dim": 8, "num_layers": 2, "num_heads": 1, "intermediate_dim": 8}
    >>> texts = ["To be, or not to be: that is the question."]
    >>> task = keras_tfm.tasks.TextGenerator.from_texts(texts, tokenizer="characters", **sizes)
    >>> fields = keras_tfm.visualize.receptive_field(task, "To", target=" be")["decoder"]
    >>> fields[-1].shape, bool(np.triu(fields[-1], 1).any())  # nothing comes from later positions
    ((5, 5), False)
    """
    reading = read(task, example, target, **options)
    model = getattr(task.model, "backbone", task.model)
    rng = np.random.default_rng(seed)
    fields: dict[str, list[np.ndarray]] = {}
    for stack, states in model.hidden_states.items():
        fields[stack] = []
        for state in states[1:]:
            inner = Model(model.input, {"first": states[0], "state": state})
            fields[stack].append(_reach(inner, reading.inputs, rng))
    return fields


def _reach(model: Any, inputs: Any, rng: np.random.Generator) -> np.ndarray:
    """(T, S) of one block, whose `state` depends on the `first`."""
    with following(model, persistent=True) as tape:
        outputs = model(inputs, training=False)
        state = tf.reshape(outputs["state"], (-1, outputs["state"].shape[-1]))  # (T, D)
        direction = rng.normal(size=state.shape[-1]) / np.sqrt(state.shape[-1])
        numbers = tf.linalg.matvec(state, tf.cast(direction, state.dtype))  # (T,)
    zero = tf.UnconnectedGradients.ZERO
    jacobian = tape.jacobian(numbers, outputs["first"], zero, experimental_use_pfor=False)
    gradients = tf.reshape(jacobian, (numbers.shape[0], -1, outputs["first"].shape[-1]))  # (T, S, D)
    return np.linalg.norm(gradients, axis=-1)
