"""The invariants, in the order of the design; each takes a `Case`. Invariants of tokenizers are in
tests/data."""

import contextlib
import inspect
import itertools
import json
import random
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops, tree

import keras_tfm
from keras_tfm.training import load_weights, save_weights
from keras_tfm.visualize import record_attention
from tests.contract.case import BATCH, LENGTHS
from tests.contract.tools import (
    arguments_of,
    assert_attends,
    assert_close,
    assert_equal,
    broadcast_products,
    corner,
    decoded_outputs,
    gradients_of,
    layers_among,
    masks_of,
    needs,
    padded_by,
    run,
    step_towards,
)
from tests.fresh_process import ask


def config_round_trip(case):
    assert json.loads(json.dumps(case.twin.get_config())) == case.config
    other = case.other(seed=2)
    other.set_weights(case.model.get_weights())
    assert_equal(run(other, case.draw()), case.expected)


def built_parts_are_taken_as_they_are(case):
    """A layer around the built parts of another shares their weights, and computes the same."""
    arguments = arguments_of(case.layer)
    parts = layers_among(arguments.values())
    needs(parts, "no layers among its arguments")
    assert case.model.built
    other = type(case.layer)(**arguments, dtype=case.layer.dtype_policy)
    assert other.name != case.layer.name  # and not the same layer
    other(**case.draw(), **case.call)
    shared = {id(weight) for part in parts for weight in part.weights}
    assert shared <= {id(weight) for weight in other.weights}
    for weight, theirs in zip(other.weights, case.layer.weights, strict=True):
        assert id(weight) not in shared or weight is theirs
        weight.assign(theirs)
    assert_equal(run(lambda inputs: other(**inputs, **case.call), case.draw()), case.expected)


def eager_and_graph_agree(case):
    assert_close(run(case.traced, case.draw()), case.expected)
    assert not broadcast_products(case.traced.get_concrete_function().graph)


def eager_and_xla_agree(case):
    model = case.model  # made here, not in the graph
    compiled = tf.function(lambda x: model(x), autograph=False, jit_compile=True)
    assert_close(run(compiled, case.draw()), case.expected)


def symbolic_shape_and_dtype_are_the_actual(case):
    symbols = {name: keras.KerasTensor(x.shape, str(x.dtype)) for name, x in case.draw().items()}
    if isinstance(case.layer, keras.Model):
        known = case.layer.compute_output_spec(symbols)
    else:
        known = case.layer.compute_output_spec(**symbols, **case.call)

    def compare(y, of_known, of_unknown):
        assert tuple(of_known.shape) == y.shape
        assert len(of_unknown.shape) == len(y.shape)
        assert all(n in (None, size) for n, size in zip(of_unknown.shape, y.shape, strict=True))
        assert of_known.dtype == of_unknown.dtype == keras.backend.standardize_dtype(y.dtype)

    tree.map_structure(compare, case.outputs, known, case.model.output)


def weights_file_is_exact(case):
    with tempfile.TemporaryDirectory() as folder:
        case.model.save_weights(f"{folder}/model.weights.h5")
        other = case.other(seed=2)
        other.load_weights(f"{folder}/model.weights.h5")
    assert_equal(other.get_weights(), case.model.get_weights())


def keras_file_is_exact(case):
    with tempfile.TemporaryDirectory() as folder:
        case.model.save(f"{folder}/model.keras")
        other = keras.saving.load_model(f"{folder}/model.keras")
    assert type(other) is type(case.model)
    assert_equal(other.get_weights(), case.model.get_weights())
    assert_equal(run(other, case.draw()), case.expected)


def saved_model_answers_without_this_package(case):
    inputs = case.draw()
    with tempfile.TemporaryDirectory() as folder:
        case.model.export(folder, verbose=False)
        served = tree.flatten(ask(folder, "serve", of_text=False, **inputs))
        assert_close(served, case.expected)


def checkpoint_round_trip_is_exact(case):
    needs(isinstance(case.layer, keras.Model), "a part: checkpoints are of whole models")
    other = case.other(seed=2)
    with tempfile.TemporaryDirectory() as folder:
        save_weights(case.model, f"{folder}/model.safetensors")
        load_weights(other, f"{folder}/model.safetensors")
    assert_equal(other.get_weights(), case.model.get_weights())


def equals_the_reference(case):
    needs(case.reference, "no reference")
    outputs = case.expected  # which draws the layer's weights
    assert_close(outputs, tree.flatten(case.reference(case.layer, **case.draw(), **case.call)))


def inference_is_deterministic(case):
    assert_equal(run(case.traced, case.draw()), run(case.traced, case.draw()))


def seeded_training_is_deterministic(case):
    needs(case.model.trainable_weights, "nothing to train")
    inputs = case.draw()

    def trained():
        random.seed(7)  # from which Keras draws the seeds of layers
        model = case.around(case.factory())
        start = model.get_weights()
        step = step_towards(case.outputs, model, inputs, training=True)
        step(), step()
        return start, model.get_weights()

    (start, once), (_, again) = trained(), trained()
    assert_equal(once, again)
    assert any((a != b).any() for a, b in zip(start, once, strict=True))


def a_batch_of_one_is_a_row_of_the_batch(case):
    inputs = case.draw()
    outputs = run(case.traced, inputs)
    for row in range(BATCH):
        alone = run(case.traced, {name: x[row : row + 1] for name, x in inputs.items()})
        assert_close(alone, [of_rows(case, y, slice(row, row + 1)) for y in outputs])


def permutes_with_its_batch(case):
    inputs, order = case.draw(), [2, 0, 1]
    permuted = run(case.traced, {name: x[order] for name, x in inputs.items()})
    assert_close(permuted, [of_rows(case, y, order) for y in run(case.traced, inputs)])


def of_rows(case, y, rows):
    """These `rows` of an output, on both axes of the batch where the case `compares` its rows."""
    return y[rows][:, rows] if case.compares else y[rows]


def right_padding_changes_nothing(case):
    axes = masks_of(case)
    needs(axes, "takes no padding mask")
    inputs = case.draw()
    outputs = run(case.traced, inputs)
    for axis, amount in itertools.product(axes, (1, 4)):
        padded = padded_by(amount, axis, inputs, case, after=True)
        assert_close(corner(run(case.traced, padded), like=outputs), outputs)


def left_padding_changes_nothing(case):
    needs(case.left_padding, "promises nothing of left padding")
    inputs, axis = case.draw(), case.left_padding
    for amount in (1, 4):
        padded = padded_by(amount, axis, inputs, case, after=False)
        assert_close([y[:, amount:] for y in run(case.traced, padded)], run(case.traced, inputs))


def no_output_sees_what_comes_later(case):
    needs(case.causal, "not causal")
    inputs, other = case.draw(seed=3), case.draw(seed=4)
    outputs = run(case.traced, inputs)
    for t in range(LENGTHS[case.causal] - 1):
        changed = dict(inputs)
        for name, axis in case.axes(case.causal).items():
            assert axis == 1
            changed[name] = np.concatenate([inputs[name][:, : t + 1], other[name][:, t + 1 :]], axis=1)
        assert_equal([y[:, : t + 1] for y in run(case.traced, changed)], [y[:, : t + 1] for y in outputs])


def all_padding_empty_batch_and_length_one_are_finite(case):
    inputs = case.draw()
    for axis, name in masks_of(case).items():
        run(case.traced, inputs | {name: np.zeros_like(inputs[name])})
        run(case.traced, case.draw(**{axis: 1}))
    run(case.traced, case.draw(**dict.fromkeys(LENGTHS, 1)))
    if not case.convolves:
        for y in run(case.traced, {name: x[:0] for name, x in inputs.items()}):
            assert y.shape[0] == 0


def attention_rows_sum_to_one(case):
    needs(case.attends, "does not attend")
    inputs = case.draw()
    for name in masks_of(case).values():
        inputs[name][-1] = False
    with record_attention(case.model) as recorded:
        run(case.model, inputs)
    assert recorded
    masks = [inputs[mask] for mask in masks_of(case).values()]
    for name, weights in recorded.items():
        for some in weights if isinstance(weights, list) else [weights]:
            assert_attends(ops.convert_to_numpy(some), masks, LENGTHS.get(case.causal), name)


def fused_equals_plain(case):
    needs(case.plain, "no fused path")
    outputs = case.expected  # which draws the layer's weights
    assert_close(outputs, tree.flatten(case.plain(case.layer, **case.draw(), **case.call)))


def cached_equals_uncached(case):
    needs(case.cache, "does not decode")
    length = LENGTHS[case.causal]
    inputs = case.draw()
    for name in case.axes(case.causal):
        if case.inputs[name].dtype == "bool":
            inputs[name] = np.ones_like(inputs[name])
    expected = decoded_outputs(case.model(inputs))
    stepped = next(name for name in case.axes(case.causal) if case.inputs[name].dtype != "bool")
    for sizes in ([1] * length, [2, 1, length - 3], [length]):
        cache = case.cache(case.layer, inputs, length + 2)
        shapes = [x.shape for x in tree.flatten(cache)]
        pieces = []
        for piece in np.split(inputs[stepped], np.cumsum(sizes)[:-1], axis=1):
            y, cache = case.layer.step(ops.convert_to_tensor(piece), cache)
            pieces.append(ops.convert_to_numpy(y))
            assert [x.shape for x in tree.flatten(cache)] == shapes
        assert_close([np.concatenate(pieces, axis=1)], [expected])


def every_weight_gets_a_gradient(case):
    needs(case.model.trainable_weights, "nothing to train")
    gradients = gradients_of(case.model, case.draw(), traced=False)
    for weight, gradient in zip(case.model.trainable_weights, gradients, strict=True):
        assert np.isfinite(gradient).all(), weight.path
        # A key's bias adds the same to all scores of a row, and so does one of heads that are mixed.
        in_vain = ("key/bias", "on_scores/mixing/bias", *case.without_effect)
        assert weight.path.endswith(in_vain) or np.abs(gradient).max() > 1e-6, weight.path


def frozen_weights_stay(case):
    needs(case.model.trainable_weights, "nothing to train")
    model = case.other(seed=1)
    leaves = [layer for layer in model._flatten_layers() if layer._trainable_variables]
    needs(len(leaves) > 1, "one layer only: frozen whole, nothing would train")
    last = leaves[-1]  # the first may be the layer itself, and freeze all
    before = {weight.path: weight.numpy() for weight in model.weights}
    last.trainable = False
    try:
        step_towards(tree.map_structure(ops.ones_like, case.outputs), model, case.draw())()
        for weight in last.weights:
            np.testing.assert_array_equal(weight, before[weight.path])
        assert any((weight.numpy() != before[weight.path]).any() for weight in model.trainable_weights)
    finally:
        last.trainable = True


def rematerialised_gradients_are_equal(case):
    """Traced and in training: what is recomputed draws the same dropout."""
    needs(case.model.trainable_weights, "nothing to train")
    gradients = []
    for scope in (keras.RematScope("full"), contextlib.nullcontext()):
        with scope:
            mode = keras_tfm.layers.Layer()._remat_mode
        random.seed(7)  # from which Keras draws the seeds of layers
        model = case.around(case.factory())
        for part in model._flatten_layers():
            if isinstance(part, keras_tfm.layers.Layer):
                part._remat_mode = mode
        model.set_weights(case.model.get_weights())
        # Batch norms of three examples would magnify roundings.
        inputs = case.draw(batch_size=16) if case.convolves else case.draw()
        gradients.append(gradients_of(model, inputs, training=True))
    if case.convolves:
        # A gradient that is 0 by the mathematics, such as a key's bias's, is left with roundings of the
        # others.
        in_vain = ("key/bias", *case.without_effect)
        is_kept = [not weight.path.endswith(in_vain) for weight in model.trainable_weights]
        gradients = [list(itertools.compress(part, is_kept)) for part in gradients]
        # As parts of each weight's greatest, or of the median weight's: what is small is left of large sums.
        greatest = [np.abs(gradient).max() for gradient in gradients[1]]
        scales = np.maximum(greatest, max(1, np.median(greatest)))
        gradients = [[g / scale for g, scale in zip(part, scales, strict=True)] for part in gradients]
    # A graph's optimiser rounds sums otherwise; other draws would differ by per cents.
    assert_close(*gradients, 1e-4)


def mixed_float16_keeps_its_bound(case):
    keeps_its_bound(case, "float16", 1.25e-2)  # up to 1.0006e-2 where a processor rounds after each product


def mixed_bfloat16_keeps_its_bound(case):
    keeps_its_bound(case, "bfloat16", 8e-2)


def keeps_its_bound(case, dtype, bound):
    needs(not case.chooses, "lower precision may choose others")
    expected = case.expected
    keras.config.set_dtype_policy(f"mixed_{dtype}")
    model = case.around(case.factory())
    model.set_weights(case.model.get_weights())
    assert all(weight.dtype in ("float32", "uint32") for weight in model.weights)
    outputs = model(case.draw())
    both = [*tree.flatten(outputs), *tree.flatten(model.output)]
    assert {keras.backend.standardize_dtype(y.dtype) for y in both} == {dtype}
    for actual, exact in zip(run(lambda outputs: outputs, outputs), expected, strict=True):
        assert np.abs(actual - exact).max() <= bound * max(1, np.abs(exact).max())


def parts_have_their_layers_dtype(case):
    config = case.layer.get_config() | {"dtype": "mixed_bfloat16"}
    backbone = config["backbone"]["config"] if "backbone" in config else config
    needs("input_layers" not in backbone, "a graph: each of its layers keeps its own")
    backbone["dtype"] = "mixed_bfloat16"
    layer = type(case.layer).from_config(config)
    model = case.around(layer)
    for part in layer._flatten_layers():
        if not isinstance(part, keras.layers.InputLayer):
            assert part.built, f"{part.path or part.name} is a part that nobody calls"
            assert part.compute_dtype == "bfloat16", part.path
    assert case.chooses or {y.dtype for y in tree.flatten(model.output)} == {"bfloat16"}
    assert keras.config.dtype_policy().name == "float32"


def overfits_one_batch(case):
    needs(case.model.trainable_weights, "nothing to train")
    inputs, optimizer = case.draw(), keras.optimizers.Adam(0.02)
    step = step_towards(case.outputs, case.other(seed=5), inputs, optimizer)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((), "int32")])
    def steps(count):
        return tf.while_loop(lambda i, _: i < count, lambda i, _: (i + 1, step()), (0, 0.0))[1]

    def left():
        loss = steps(150)
        optimizer.learning_rate.assign(optimizer.learning_rate / 2)  # sines and gates jump at high rates
        return loss

    first = steps(1)
    assert any(left() < case.left_loss * first for _ in range(4))


def tied_weights_survive(case):
    needs(case.tied, "no tied weights")
    with tempfile.TemporaryDirectory() as folder:
        case.model.save(f"{folder}/model.keras")
        other = keras.saving.load_model(f"{folder}/model.keras")
    for model in (case.model, other):
        first, second = case.tied(model)
        assert first is second
    assert len(other.weights) == len(case.model.weights)


def dict_equals_positional_and_unknown_arguments_raise(case):
    inputs, expected = case.draw(), case.expected
    assert_equal(run(case.model, dict(reversed(inputs.items()))), expected)
    with pytest.raises(ValueError, match="nonsense"):
        case.model(inputs | {"nonsense": inputs[next(iter(inputs))]})
    if isinstance(case.layer, keras.Model):
        return
    leading = itertools.takewhile(inputs.__contains__, inspect.signature(case.layer.call).parameters)
    tensors = {name: ops.convert_to_tensor(x) for name, x in inputs.items()}
    positional = [tensors.pop(name) for name in leading]
    assert_equal(run(lambda x: case.layer(*x, **tensors, **case.call), positional), expected)
    with pytest.raises(TypeError, match="nonsense"):
        case.layer(*positional, **tensors, **case.call, nonsense=1)


INVARIANTS = (
    config_round_trip,
    built_parts_are_taken_as_they_are,
    eager_and_graph_agree,
    eager_and_xla_agree,
    symbolic_shape_and_dtype_are_the_actual,
    weights_file_is_exact,
    keras_file_is_exact,
    saved_model_answers_without_this_package,
    checkpoint_round_trip_is_exact,
    equals_the_reference,
    inference_is_deterministic,
    seeded_training_is_deterministic,
    a_batch_of_one_is_a_row_of_the_batch,
    permutes_with_its_batch,
    right_padding_changes_nothing,
    left_padding_changes_nothing,
    no_output_sees_what_comes_later,
    all_padding_empty_batch_and_length_one_are_finite,
    attention_rows_sum_to_one,
    fused_equals_plain,
    cached_equals_uncached,
    every_weight_gets_a_gradient,
    frozen_weights_stay,
    rematerialised_gradients_are_equal,
    mixed_float16_keeps_its_bound,
    mixed_bfloat16_keeps_its_bound,
    parts_have_their_layers_dtype,
    overfits_one_batch,
    tied_weights_survive,
    dict_equals_positional_and_unknown_arguments_raise,
)
# These cost seconds each, but for the weights file: `keras_file_is_exact` has the same one inside its file.
DEAR = {
    eager_and_xla_agree,
    weights_file_is_exact,
    saved_model_answers_without_this_package,
    rematerialised_gradients_are_equal,
    overfits_one_batch,
    seeded_training_is_deterministic,
    mixed_bfloat16_keeps_its_bound,
}
# What a family, made of bricks that pass the whole contract, can break by putting them together. One graph of
# the case answers most of them.
OF_FAMILIES = {
    eager_and_graph_agree,
    equals_the_reference,
    a_batch_of_one_is_a_row_of_the_batch,
    right_padding_changes_nothing,
    left_padding_changes_nothing,
    no_output_sees_what_comes_later,
    all_padding_empty_batch_and_length_one_are_finite,
    cached_equals_uncached,
    every_weight_gets_a_gradient,
}
