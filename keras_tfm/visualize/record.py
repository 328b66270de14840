"""Attention weights of any model, unchanged, while it is called eagerly."""

import contextlib

from keras_tfm.layers.attention.tap import recording
from keras_tfm.private.keras import layers_in


@contextlib.contextmanager
def record_attention(model):
    """{layer path: weights} of every attention layer in `model` that is called within.

        with record_attention(model) as weights:
            model(batch)
        weights["block_0/attention/branch"]  # (B, H, T, S), 0 where a key is masked, rows sum to 1

    They are those that average the values, but for dropout. A layer that runs several times has a list of
    them, in the order of its calls. RuntimeError where the model is compiled, as `predict` does: no value is
    there to be seen.
    """
    own = {id(layer) for layer in layers_in(model)}
    recorded: dict = {}

    def record(layer, weights):
        if id(layer) not in own:
            return
        if not hasattr(weights, "numpy"):
            raise RuntimeError(
                f"The attention of {layer.path!r} is being compiled, and has no values to record: call "
                "`model(batch)` itself instead of `predict`, `evaluate` or a `tf.function`."
            )
        before = recorded.get(layer.path)
        if before is None:
            recorded[layer.path] = weights
        elif isinstance(before, list):
            before.append(weights)
        else:
            recorded[layer.path] = [before, weights]

    with recording(record):
        yield recorded
