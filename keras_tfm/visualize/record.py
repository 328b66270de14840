"""Attention weights of any model, unchanged, while it is called eagerly."""

import contextlib

import numpy as np

from keras_tfm.layers.attention.tap import recording
from keras_tfm.private.keras import layers_in


def record_attention(model):
    """{layer path: weights} of every attention layer in `model` that is called within.

        with record_attention(model) as weights:
            model(batch)
        weights["block_0/attention/branch"]  # (B, H, T, S), 0 where a key is masked, rows sum to 1

    They are those that average the values, but for dropout. A layer that runs several times has a list of
    them, in the order of its calls. RuntimeError where the model is compiled, as `predict` does: no value is
    there to be seen.
    """
    return _recorded(model, "weights", lambda weights: weights)


def record_products(model):
    """{layer path: (queries, keys, scale)} of every attention layer in `model` that is called within and has
    products as scores: queries (B, H, T, K) and keys (B, H, S, K), rotated where positions rotate them, and
    what multiplies the products. Lists and errors are those of `record_attention`.
    """
    return _recorded(model, "products", lambda products: products[0])


@contextlib.contextmanager
def _recorded(model, stage, array_of):
    """What the attention layers of `model` hand on at this `stage`, by their paths."""
    own = {id(layer) for layer in layers_in(model)}
    recorded: dict = {}

    def record(layer, value):
        if id(layer) not in own:
            return
        if not hasattr(array_of(value), "numpy"):
            raise RuntimeError(
                f"The attention of {layer.path!r} is being compiled, and has no values to record: call "
                "`model(batch)` itself instead of `predict`, `evaluate` or a `tf.function`."
            )
        before = recorded.get(layer.path)
        if before is None:
            recorded[layer.path] = value
        elif isinstance(before, list):
            before.append(value)
        else:
            recorded[layer.path] = [before, value]

    with recording(record, stage):
        yield recorded


def by_layer(scores):
    """[(layer, weights (B, H, T, S))], float64, of what `record_attention` gives, or of one array.

    A layer that ran several times is several; (H, T, S) is a batch of one. ValueError for other shapes, and
    where there is nothing.
    """
    if not hasattr(scores, "items"):
        scores = {"attention": scores}
    found = []
    for path, calls in scores.items():
        several = isinstance(calls, list)
        for number, weights in enumerate(calls if several else [calls], start=1):
            array = np.asarray(weights, "float64")
            if array.ndim not in (3, 4):
                raise ValueError(f"{path}: expected weights (B, H, T, S), got the shape {array.shape}.")
            name = f"{path} ({number} of {len(calls)})" if several else path
            found.append((name, array if array.ndim == 4 else array[None]))
    if not found:
        raise ValueError("`scores` must hold the weights of a layer or more; they are empty.")
    return found


def in_rows(rows):
    """Arrays (H,) of layers as one (L, H), NaN where a layer has fewer heads."""
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table
