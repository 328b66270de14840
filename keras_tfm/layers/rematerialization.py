"""Rematerialisation: layers keep only their inputs while training, and the backward pass recomputes the
rest.

It saves memory for about a third more time (Chen et al. 2016, "Training Deep Nets with Sublinear Memory
Cost").
"""

import keras
from keras import ops

from keras_tfm.layers.masks import key_mask_of
from keras_tfm.private.keras import (
    layers_in,
    rematerialization_of,
    seed_generators_of,
    set_keras_mask,
    set_rematerialization,
)
from keras_tfm.private.tensorflow import keep_gradient_with
from keras_tfm.replaced import added_losses, replaced


def rematerialize(layer: keras.layers.Layer) -> keras.layers.Layer:
    """Let every block in `layer`, a model or a stack, keep only its inputs while training; returns `layer`.

    Recomputing draws the same dropout again, so no result changes, and the setting is not saved with the
    configuration. Call it before the first training step.

    Raises:
        ValueError: if there is no block.

    >>> stack = keras_tfm.layers.TransformerEncoder(num_layers=2, num_heads=2, intermediate_dim=16)
    >>> keras_tfm.layers.rematerialize(stack) is stack
    True
    """
    blocks = [part for part in layers_in(layer) if getattr(part, "is_block", False)]
    if not blocks:
        raise ValueError(f"{layer.name!r} has no block to rematerialise, such as a TransformerBlock.")
    with keras.RematScope("full"):
        mode = rematerialization_of(keras.layers.Layer())
    for block in blocks:
        set_rematerialization(block, mode)
    return layer


def recomputed(layer, of_keras, layer_call, *args, **kwargs):
    """`layer_call` of `layer`, recomputed for the gradient, by Keras's own `rematerialized_call`,
    `of_keras`.

    TensorFlow's `recompute_grad`, which Keras uses, has limits that this function works around. It takes
    only floating-point tensors, by position and without their Keras masks. The recomputation must draw the
    same dropout, must not move moving statistics a second time or read statistics that moved, and must not
    contain a layer that recomputes as well. A loss that a layer adds would have no gradient, so added losses
    are returned next to the output.
    """
    if rematerialization_of(layer).mode == "activations":
        return layer_call  # Keras's mode "activations" is for the layers inside this one
    for part in layers_in(layer, include_self=False):
        set_rematerialization(part, None)
    leaves = keras.tree.flatten((args, kwargs))
    places = [i for i, x in enumerate(leaves) if ops.is_tensor(x) and keras.backend.is_float_dtype(x.dtype)]
    parts = layers_in(layer)
    generators = [drawn for part in parts for drawn in (*seed_generators_of(part), *readings_of(part))]
    draws: list = []
    calls: list = []

    def call(*tensors):
        inputs = list(leaves)
        for i, x in zip(places, tensors, strict=True):
            set_keras_mask(x, key_mask_of(leaves[i]))
            inputs[i] = x
        positional, named = keras.tree.pack_sequence_as((args, kwargs), inputs)
        state = layer.non_trainable_variables if calls else ()
        kept = replaced(state, "assign", lambda _: lambda value: value)
        with _drawn_once(generators, draws), kept, added_losses(layer) as losses:
            y = layer_call(*positional, **named)
        calls.append(True)
        return y, losses

    again = of_keras(call, *args, **kwargs)

    def call_and_add_losses(*args, **kwargs):
        y, losses = again(*(leaves[i] for i in places))
        keep_gradient_with(keras.tree.flatten(y)[0])
        for loss in losses:
            layer.add_loss(loss)
        return y

    return call_and_add_losses


class Reading:
    """What a layer computes with from a `variable` that it moves: a recomputation repeats the first value.

    The layer holds it in its attribute `reading`, and calls `next`.
    """

    def __init__(self, variable):
        self.variable = variable

    def next(self):
        """The variable's value, a copy that does not move with it."""
        return ops.copy(self.variable)


def readings_of(layer):
    """The `Reading` of a layer, if it has one."""
    reading = getattr(layer, "reading", None)
    return [reading] if isinstance(reading, Reading) else []


def _drawn_once(generators, draws):
    """A context in which the seed generators' draws are stored in `draws` the first time and repeated
    later.
    """
    again = iter(draws) if draws else None

    def drawing(draw):
        def draw_once(*args, **kwargs):
            if again is not None:
                return next(again)
            draws.append(draw(*args, **kwargs))
            return draws[-1]

        return draw_once

    return replaced(generators, "next", drawing)
