"""Which tokens an answer hangs on: gradients times inputs, gradients times attention, attention by layers.

Attention weights alone say where information is read, not whether the answer depends on it (Jain and Wallace
2019, "Attention is not Explanation"); gradients show the second, to first order.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.layers.attention.tap import recording
from keras_tfm.private.keras import layers_in
from keras_tfm.tasks.reading import Reading, read
from keras_tfm.training.model import Model
from keras_tfm.visualize.grids import grid_of, maps_of
from keras_tfm.visualize.record import by_layer, named_calls


@dataclasses.dataclass(frozen=True)
class Attribution:
    """How much each of the `tokens` (T) adds to a logit: `values` (T), to first order, of `score`, the logit.

    For images the tokens are the places of the first hidden states: "[class]" for the first, "row,column" for
    a patch or a cell.

    >>> examples = ["a good film", "a bad film"], ["+", "-"]
    >>> task = keras_tfm.tasks.TextClassifier.from_examples(examples, size="tiny", vocabulary_size=300)
    >>> attribution = keras_tfm.visualize.input_attribution(task, "film")["encoder"]
    >>> attribution.tokens, attribution.values.shape
    (['[CLS]', 'film', '[SEP]'], (3,))
    """

    tokens: Sequence[str]
    values: np.ndarray
    score: float


def input_attribution(
    task: Any,
    example: Any,
    target: str | None = None,
    score: Callable[[Any], Any] | None = None,
    **options: Any,
) -> dict[str, Attribution]:
    """{stack: gradient x input} of what each stack of `task`'s model reads, "encoder" and "decoder".

    `example`, `target` and `options` are as in `look`. `score` makes a number of the model's output; by
    default it is the highest logit, for a sequence the highest at its last place. Each vector that goes into
    the first block is multiplied by the score's gradient there (Shrikumar et al. 2016, "Not Just a Black
    Box"). ValueError for a model whose head does not stand on the stacks themselves.

    >>> examples = ["a good film", "a bad film"], ["+", "-"]
    >>> task = keras_tfm.tasks.TextClassifier.from_examples(examples, size="tiny", vocabulary_size=300)
    >>> attribution = keras_tfm.visualize.input_attribution(task, "a film")["encoder"]
    >>> attribution.tokens[attribution.values.argmax()] in ("[CLS]", "a", "film", "[SEP]")  # which adds most
    True
    """
    reading = read(task, example, target, **options)
    model = task.model
    _refuse_nested(task, reading)
    states = {name: values[0] for name, values in _states(model).items()}
    inner = Model(model.input, {"output": model.output, "states": states})
    with following(model) as tape:
        outputs = inner(reading.inputs, training=False)
        value = (score or highest_logit)(outputs["output"])
    gradients = tape.gradient(value, outputs["states"])
    tokens = {"encoder": reading.tokens, "decoder": reading.target_tokens}
    if "decoder_token_ids" not in reading.inputs:
        tokens = {name: [*reading.tokens, *reading.target_tokens] for name in tokens}
    maps = [] if reading.image is None else maps_of(getattr(model, "backbone", model))
    results = {}
    for name, state in outputs["states"].items():
        values = np.asarray(tf.reduce_sum(gradients[name] * state, axis=-1)[0], "float32").reshape(-1)
        results[name] = Attribution(_named(tokens.get(name, ()), len(values), maps), values, float(value))
    return results


def attention_gradients(
    task: Any,
    example: Any,
    target: str | None = None,
    score: Callable[[Any], Any] | None = None,
    **options: Any,
) -> dict[str, np.ndarray]:
    """{layer path: attention x gradient (1, H, T, S)}: how much each weight adds to a logit.

    The arguments are as in `input_attribution`. What is below 0 speaks against the score; Chefer et al. 2021,
    "Generic Attention-model Explainability", keep what is above, and average the heads.

    >>> examples = ["a good film", "a bad film"], ["+", "-"]
    >>> task = keras_tfm.tasks.TextClassifier.from_examples(examples, size="tiny", vocabulary_size=300)
    >>> gradients = keras_tfm.visualize.attention_gradients(task, "a film")
    >>> {name: products.shape for name, products in gradients.items()}
    {'block_0/attention/branch': (1, 2, 4, 4), 'block_1/attention/branch': (1, 2, 4, 4)}
    """
    reading = read(task, example, target, **options)
    model = task.model
    _refuse_nested(task, reading)
    own = {id(layer) for layer in layers_in(model)}
    weights: list = []

    def watch(layer, recorded):
        if id(layer) in own:
            tape.watch(recorded)
            weights.append((layer.path, recorded))

    with following(model) as tape, recording(watch):
        value = (score or highest_logit)(model(reading.inputs, training=False))
    gradients = tape.gradient(value, [recorded for _, recorded in weights], unconnected_gradients="zero")
    products: dict[str, list[np.ndarray]] = {}
    for (path, recorded), gradient in zip(weights, gradients, strict=True):
        products.setdefault(path, []).append(np.asarray(recorded * gradient, "float32"))
    return dict(named for path, calls in products.items() for named in named_calls(path, calls))


def attention_rollout(scores: Any, residual: float = 0.5) -> np.ndarray:
    """How much of each input position reaches each output position: (B, T, T).

    The heads' mean of each layer is mixed with the identity, of which `residual` is the share, and the layers
    are multiplied, the last one on the left (Abnar and Zuidema 2020, "Quantifying Attention Flow in
    Transformers"). Rows sum to 1 where all positions attend to something. `scores` are as for
    `attention_patterns`, the lowest layer first. ValueError where the layers are not of one shape.

    >>> weights = np.array([[[[0.0, 1.0], [0.5, 0.5]]]])  # one layer with one head, of two tokens
    >>> keras_tfm.visualize.attention_rollout(weights).tolist()
    [[[0.5, 0.5], [0.25, 0.75]]]
    """
    if not 0 <= residual <= 1:
        raise ValueError(f"`residual` must lie in [0, 1]; it is {residual}.")
    means = [weights.mean(1) for _, weights in by_layer(scores)]  # (B, T, T) each
    if len({mean.shape for mean in means}) > 1 or means[0].shape[-2] != means[0].shape[-1]:
        shapes = ", ".join(str(mean.shape) for mean in means)
        raise ValueError(f"Expected self-attention of one length in all layers; the shapes are {shapes}.")
    flow = np.eye(means[0].shape[-1])
    for mean in means:
        mean = mean / np.maximum(mean.sum(-1, keepdims=True), 1e-30)
        flow = (residual * np.eye(mean.shape[-1]) + (1 - residual) * mean) @ flow
    return flow


def _named(tokens: Sequence[str], length: int, maps: list[tuple[int, int]]) -> list[str]:
    """The tokens of a text, or of an image the names of its patches, or of a map's cells."""
    grid = None if len(tokens) == length else grid_of(length, maps)
    return list(tokens) if grid is None else grid.names()


def highest_logit(outputs: Any) -> Any:
    """The sum over a model's outputs (1, C), or (1, T, C) at the last place, of their highest numbers."""
    return tf.add_n([tf.reduce_max(x[0, -1] if len(x.shape) > 2 else x[0]) for x in tf.nest.flatten(outputs)])


def _states(model: keras.Model) -> Mapping[str, Sequence[Any]]:
    return getattr(model, "backbone", model).hidden_states


def _refuse_nested(task: Any, reading: Reading) -> None:
    """Raise ValueError where the model's inputs are not its backbone's."""
    outer, inner = task.model.input, getattr(task.model, "backbone", task.model).input
    if any(name not in outer or outer[name] is not inner[name] for name in reading.inputs):
        raise ValueError(f"The model of {task.name!r} reads its inputs in another form than its backbone.")


@contextlib.contextmanager
def following(model: keras.Model, persistent: bool = False) -> Iterator[tf.GradientTape]:
    """A tape that follows all weights, frozen ones too, and so reaches what is made of them."""
    with tf.GradientTape(persistent) as tape:
        for variable in model.variables:
            if variable.dtype.startswith(("float", "bfloat")):
                tape.watch(variable.value)
        yield tape
