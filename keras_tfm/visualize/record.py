"""Attention weights of any model, unchanged: while it is called, compiled, or in the course of a training."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import tree

from keras_tfm.layers.attention.tap import recording
from keras_tfm.private.keras import layers_in
from keras_tfm.training.model import Model


@contextlib.contextmanager
def record_attention(model: keras.layers.Layer) -> Iterator[dict[str, Any]]:
    """{layer path: weights (B, H, T, S)} of every attention layer in `model` that is called within.

    They are the weights that average the values, without dropout: 0 where a key is masked, rows sum to 1. A
    layer that runs several times has a list of them, in the order of its calls. RuntimeError where the model
    is compiled, as `predict` does: no value is there to be seen; `with_attention` makes a model whose
    compiled calls give them.

    >>> model = keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100)
    >>> with keras_tfm.visualize.record_attention(model) as weights:
    ...     output = model({"token_ids": np.array([[1, 2, 3]])})
    >>> list(weights), weights["block_0/attention/branch"].shape
    (['block_0/attention/branch', 'block_1/attention/branch'], TensorShape([1, 2, 3, 3]))
    """
    recorded: dict = {}
    with recording(_recorder(model, recorded, _check_eager)):
        yield recorded


@contextlib.contextmanager
def record_products(model):
    """{layer path: (queries, keys, scale)} of every attention layer in `model` that is called within and has
    products as scores: queries (B, H, T, K) and keys (B, H, S, K), rotated where positions rotate them, and
    what multiplies the products. Lists and errors are as in `record_attention`.
    """
    recorded: dict = {}

    def check(layer, products):
        _check_eager(layer, products[0])

    with recording(_recorder(model, recorded, check), "products"):
        yield recorded


def _check_eager(layer, array):
    """Raise RuntimeError for an array of a graph, which has no values."""
    if not hasattr(array, "numpy"):
        raise RuntimeError(
            f"The attention of {layer.path!r} is being compiled, and has no values to record: call "
            "`model(batch)` itself instead of `predict`, `evaluate` or a `tf.function`, or compile "
            "`with_attention(model)`."
        )


def attention_of(model: Any, batch: Any) -> dict[str, Any]:
    """{layer path: weights (B, H, T, S)}, NumPy arrays, of every attention layer while `model` reads `batch`.

    `model` is a model or a task, `batch` what it is called on, in inference. A layer that runs several times
    has a list of arrays.

    >>> model = keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100)
    >>> weights = keras_tfm.visualize.attention_of(model, {"token_ids": np.array([[1, 2, 3]])})
    >>> {path: array.shape for path, array in weights.items()}
    {'block_0/attention/branch': (1, 2, 3, 3), 'block_1/attention/branch': (1, 2, 3, 3)}
    """
    model = getattr(model, "model", model)
    with record_attention(model) as recorded:
        model(batch, training=False)
    return {
        path: [np.asarray(some) for some in calls] if isinstance(calls, list) else np.asarray(calls)
        for path, calls in recorded.items()
    }


def with_attention(model: keras.Model) -> keras.Model:
    """A model of the same layers that gives {"output": `model`'s, "attention": {layer path: weights}}.

    Its calls may be compiled, so that `with_attention(model).predict(data)` gives the weights of all of
    `data`, (N, H, T, S); `model` itself stays as it is. RuntimeError where a layer attends within a loop, as
    recurrent decoders do: what is computed there does not leave the graph.

    >>> inputs = keras.Input((5, 8))
    >>> model = keras_tfm.Model(inputs, keras_tfm.layers.MultiHeadAttention(2, name="attention")(inputs))
    >>> outputs = keras_tfm.visualize.with_attention(model).predict(np.ones((4, 5, 8)), verbose=0)
    >>> outputs["output"].shape, outputs["attention"]["attention"].shape
    ((4, 5, 8), (4, 2, 5, 5))
    """
    return ModelWithAttention(model)


class ModelWithAttention(Model):
    """See `with_attention`."""

    def __init__(self, model, **kwargs):
        super().__init__(**kwargs)
        self.model = model

    def call(self, x, training=None):
        """{"output", "attention"} for a batch."""
        recorded: dict = {}

        def check(layer, weights):
            outside = getattr(next(iter(tree.flatten(x))), "graph", None)
            if getattr(weights, "graph", None) is not outside:
                raise RuntimeError(
                    f"{layer.path!r} attends within a loop of a compiled model, which its weights do not "
                    "leave: call the model itself within `record_attention`."
                )

        with recording(_recorder(self.model, recorded, check)):
            output = self.model(x, training=training)
        return {"output": output, "attention": recorded}


class AttentionHistory(keras.callbacks.Callback):
    """The weights on one `batch` before a training and after each epoch, or `every` so many of them.

    `epochs` are [(epochs so far, what `attention_of` gives)]; with `keep` what that function makes of it,
    `attention_patterns` for example, whose memory is less. What `fit` compiles stays as it is.

    >>> inputs = keras.Input((5, 8))
    >>> model = keras_tfm.Model(inputs, keras_tfm.layers.MultiHeadAttention(2, name="attention")(inputs))
    >>> model.compile("adam", "mse")
    >>> history = keras_tfm.visualize.AttentionHistory(batch=np.ones((1, 5, 8)))
    >>> logs = model.fit(np.ones((4, 5, 8)), np.ones((4, 5, 8)), epochs=2, verbose=0, callbacks=[history])
    >>> [(epochs, weights["attention"].shape) for epochs, weights in history.epochs]
    [(0, (1, 2, 5, 5)), (1, (1, 2, 5, 5)), (2, (1, 2, 5, 5))]
    """

    def __init__(self, batch: Any, every: int = 1, keep: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        if every < 1:
            raise ValueError(f"`every` must be at least 1; it is {every}.")
        self.batch = batch
        self.every = every
        self.keep = keep
        self.epochs: list = []

    def on_train_begin(self, logs=None):
        self._record(0)

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.every == 0:
            self._record(epoch + 1)

    def _record(self, epoch):
        weights = attention_of(self.model, self.batch)
        self.epochs.append((epoch, weights if self.keep is None else self.keep(weights)))


def _recorder(model, recorded, check):
    """What puts what the layers in `model` hand on into the dict `recorded`, `check`ed before."""
    own = {id(layer) for layer in layers_in(model)}

    def record(layer, value):
        if id(layer) not in own:
            return
        check(layer, value)
        before = recorded.get(layer.path)
        if before is None:
            recorded[layer.path] = value
        elif isinstance(before, list):
            before.append(value)
        else:
            recorded[layer.path] = [before, value]

    return record


def named_calls(path, calls):
    """[(name, value)] of a layer that was called once, or of each of its `calls`, a list."""
    calls = calls if isinstance(calls, list) else [calls]
    if len(calls) == 1:
        return [(path, calls[0])]
    return [(f"{path} ({number} of {len(calls)})", one) for number, one in enumerate(calls, start=1)]


def by_layer(scores):
    """[(layer, weights (B, H, T, S))], float64, of what `record_attention` gives, or of one array.

    A layer that ran several times is several; (H, T, S) is a batch of one. ValueError for other shapes, and
    where there is nothing.
    """
    if not hasattr(scores, "items"):
        scores = {"attention": scores}
    arrays = []
    for path, calls in scores.items():
        for name, weights in named_calls(path, calls):
            array = np.asarray(weights, "float64")
            if array.ndim not in (3, 4):
                raise ValueError(f"{path}: expected weights (B, H, T, S), got the shape {array.shape}.")
            arrays.append((name, array if array.ndim == 4 else array[None]))
    if not arrays:
        raise ValueError("`scores` must hold the weights of a layer or more; they are empty.")
    return arrays


def in_rows(rows):
    """Arrays (H,) of layers as one (L, H), NaN where a layer has fewer heads."""
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table
