"""What the invariants stand on: outputs compared, padding, gradients, training steps."""

import inspect
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops, tree

from keras_tfm.layers.base import Pattern

EPSILON = 1e-5


def run(function, inputs, **arguments):
    """The outputs as a list of arrays, each asserted finite; half precisions come as float32."""
    outputs = [
        np.asarray(ops.cast(y, "float32") if keras.backend.is_float_dtype(y.dtype) else y)
        for y in tree.flatten(function(inputs, **arguments))
    ]
    for y in outputs:
        assert np.isfinite(y).all()
    return outputs


def num_parameters(weights):
    """How many numbers the `weights` hold; they need no values, as with the fixture `no_allocation`."""
    return sum(math.prod(weight.shape) for weight in weights)


def assert_close(actual, expected, tolerance=EPSILON):
    """Absolute and relative at once: within `tolerance` of |expected| and of the array's root mean square, or
    of 1 where that is less. A number near zero among large ones is a difference of large, rounded ones.
    """
    for a, e in zip(actual, expected, strict=True):
        square = np.mean(np.square(np.asarray(e, "float64"))) if np.size(e) else 0
        np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance * max(1, np.sqrt(square)))


def assert_equal(actual, expected):
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, e)


def assert_attends(weights, masks, causal_length, name):
    """Rows of `weights` (B, H, T, S) sum to 1, or to 0 where all is hidden; hidden keys weigh exactly 0.

    `masks` (B, length) say what is padding; at most one of them is the keys'; self-attention over
    `causal_length` positions sees nothing that comes later.
    """
    sums = np.moveaxis(weights.sum(-1), 1, 2)  # (B, T, H)
    np.testing.assert_allclose(sums[sums > 0], 1, rtol=1e-6, err_msg=name)
    assert masks or (sums > 0).all(), name
    for mask in masks:
        if mask.shape == (len(weights), weights.shape[-1]):
            assert (np.moveaxis(weights, -1, 1)[~mask] == 0).all(), name
            sees = mask if weights.shape[2] == weights.shape[3] else mask.any(-1)  # itself, or anything
            assert (sums[sees] > 0).all(), name
    if weights.shape[2:] == (causal_length, causal_length):
        assert (np.triu(weights, 1) == 0).all(), name


def broadcast_products(graph):
    """Products of batches of unlike sizes: TensorFlow 2.21 with oneDNN writes outside its arrays in those, by
    its issue 117700.
    """
    products = [operation for operation in graph.get_operations() if operation.type.startswith("BatchMatMul")]
    batches = [[x.shape[:-2].as_list() for x in operation.inputs] for operation in products]
    return [p.name for p, (x, y) in zip(products, batches, strict=True) if x != y and len(x) > 1]


def corner(arrays, like):
    """The leading part of each array, of the shape of its counterpart in `like`."""
    return [a[tuple(slice(n) for n in b.shape)] for a, b in zip(arrays, like, strict=True)]


def arguments_of(layer):
    """{name: value} of what a layer was made with; {} of a model, and of a layer whose parts are copies of
    its arguments.
    """
    parameters = inspect.signature(type(layer).__init__).parameters.values()
    names = [p.name for p in parameters if p.name != "self" and p.kind is not p.VAR_KEYWORD]
    if isinstance(layer, keras.Model) or any(isinstance(getattr(layer, name), Pattern) for name in names):
        return {}
    return {name: getattr(layer, name) for name in names}


def layers_among(values):
    """The layers in nested lists and dicts."""
    return [x for x in keras.tree.flatten(list(values)) if isinstance(x, keras.layers.Layer)]


def needs(capability, reason):
    """Skip unless the case has the capability."""
    if not capability:
        pytest.skip(reason)


def masks_of(case):
    """{axis: name} of the padding masks of axes that vary, but of a model that mixes padding in."""
    if case.mixes_padding:
        return {}
    axes = {spec.shape[-1]: name for name, spec in case.inputs.items() if spec.dtype == "bool"}
    return {axis: name for axis, name in axes.items() if isinstance(axis, str)}


def padded_by(amount, axis, inputs, case, after):
    """`inputs` with `amount` more positions on `axis`, their content large and masked out."""
    (name, position), *_ = case.axes(axis).items()
    wide = case.draw(seed=9, **{axis: inputs[name].shape[position] + amount})
    padded = dict(inputs)
    for name in case.axes(axis):
        x, more = inputs[name], wide[name] * (10 if case.inputs[name].dtype == "float32" else 1)
        more = np.zeros_like(more) if case.inputs[name].dtype == "bool" else more
        more[tuple(slice(n) if after else slice(-n, None) for n in x.shape)] = x
        padded[name] = more
    return padded


def decoded_outputs(outputs):
    """The decoder's output, where a model has several."""
    if not isinstance(outputs, dict):
        return outputs
    return outputs.get("decoder_sequence_output", outputs.get("sequence_output"))


def gradients_of(model, inputs, training=False, traced=True):
    """The gradients of a random weighting of all outputs."""
    inputs = tree.map_structure(tf.convert_to_tensor, inputs)
    variables = [weight.value for weight in model.trainable_weights]

    def gradients():
        rng = np.random.default_rng(8)
        with tf.GradientTape() as tape:
            outputs = tree.flatten(model(inputs, training=training))
            loss = tf.add_n([tf.reduce_sum(y * rng.normal(size=y.shape).astype("float32")) for y in outputs])
        return [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]

    compute = tf.function(gradients, autograph=False) if traced else gradients
    return [gradient.numpy() for gradient in compute()]


def step_towards(targets, model, inputs, optimizer=None, training=False):
    """A function that takes a training step of `model` towards `targets` and returns the loss before it.

    Without an `optimizer` it is a plain step down the gradient.
    """
    inputs, targets = tree.map_structure(tf.convert_to_tensor, inputs), tree.flatten(targets)
    variables = [variable.value for variable in model.trainable_variables]
    if optimizer is not None:
        optimizer.build(model.trainable_variables)

    def step():
        with tf.GradientTape() as tape:
            outputs = tree.flatten(model(inputs, training=training))
            loss = tf.add_n([tf.reduce_mean((y - t) ** 2) for y, t in zip(outputs, targets, strict=True)])
        gradients = tape.gradient(loss, variables)
        if optimizer is not None:
            optimizer.apply(gradients)
        else:
            for variable, gradient in zip(variables, gradients, strict=True):
                variable.assign_sub(0.1 * tf.convert_to_tensor(gradient))
        return loss

    return step
