"""The contract that every layer and model passes: a `Case` a class, a test an invariant.

    test_contract = contract.check(
        Case("causal", lambda: TransformerBlock(2, 16, causal=True), {"x": floats("T", 8), "mask": mask("T")},
             causal="T"),
    )

What a class can do is declared in its case; an invariant that does not apply is skipped with its
reason. Axes are named by a letter, so that padding and causality know which inputs belong together. A
layer is checked as a functional model of unknown batch size and lengths; every weight, biases and
scales too, is drawn at random.
"""

import atexit
import contextlib
import copy
import dataclasses
import functools
import inspect
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops, tree

import keras_tfm
from keras_tfm.layers import masks
from keras_tfm.training import load_weights, save_weights

BATCH = 3
LENGTHS = {"S": 7, "T": 5, "M": 3}
EPSILON = 1e-5


# Inputs -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Spec:
    """An input without its batch axis: letters are lengths; `size` bounds its integers."""

    shape: tuple
    dtype: str = "float32"
    size: int = 0

    def draw(self, rng, batch_size, lengths):
        shape = (batch_size, *(lengths.get(n, n) for n in self.shape))
        if self.dtype == "bool":  # padded on the right, the first row not at all
            sizes = rng.integers(1, shape[1] + 1, shape[0])
            sizes[:1] = shape[1]
            return np.arange(shape[1]) < sizes[:, None]
        if self.dtype == "int32":
            return rng.integers(0, self.size, shape, "int32")
        return rng.normal(size=shape).astype(self.dtype)


def floats(*shape):
    """Normal numbers of shape (B, *shape), such as `floats("T", 8)`."""
    return Spec(shape)


def ids(axis, size):
    """Integers in [0, size): (B, axis)."""
    return Spec((axis,), "int32", size)


def mask(axis):
    """The padding mask (B, axis) of every input that has this axis."""
    return Spec((axis,), "bool")


# Cases --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A class under contract: how to make one, what goes in, what it can do.

    `factory` makes the layer or model, `inputs` names its tensors in the order of its call, `call` the
    other arguments. What it promises, each by default nothing: `attends`, its attention weights are
    `masked_softmax`'s; `causal`, the axis along which no output sees what comes later; `left_padding`,
    the axis that may be padded on the left; `cache(layer, inputs, max_length)` starts decoding along
    `causal`; `reference(layer, **inputs)` computes the same with NumPy in float64, `plain` without
    fusing; `tied(model)` gives the two variables that are one.
    """

    name: str
    factory: Callable
    inputs: dict
    call: dict = dataclasses.field(default_factory=dict)
    attends: bool = False
    causal: str | None = None
    left_padding: str | None = None
    cache: Callable | None = None
    reference: Callable | None = None
    plain: Callable | None = None
    tied: Callable | None = None

    def draw(self, seed=0, batch_size=BATCH, **lengths):
        """The case's inputs; `lengths` by axis."""
        rng = np.random.default_rng(seed)
        return {name: spec.draw(rng, batch_size, LENGTHS | lengths) for name, spec in self.inputs.items()}

    def around(self, layer):
        """A functional model that is, or calls, `layer`."""
        if isinstance(layer, keras.Model):
            return layer
        inputs = {
            name: keras.Input(spec_shape(spec), dtype=spec.dtype, name=name)
            for name, spec in self.inputs.items()
        }
        return keras_tfm.Model(inputs, layer(**inputs, **self.call))

    def new(self, seed=1):
        """A model with weights drawn from `seed`."""
        model = self.around(self.factory())
        randomise(model, seed)
        return model

    @functools.cached_property
    def layer(self):
        return self.factory()

    @functools.cached_property
    def model(self):
        """One model for all invariants that leave its weights as they are; it calls `layer`."""
        model = self.around(self.layer)
        randomise(model, seed=1)
        return model

    def axes(self, letter):
        """{input: axis} of the inputs that have this axis."""
        return {
            name: 1 + spec.shape.index(letter) for name, spec in self.inputs.items() if letter in spec.shape
        }


def spec_shape(spec):
    return tuple(None if isinstance(n, str) else n for n in spec.shape)


def randomise(model, seed):
    """Draw every floating-point weight: scales around 1, all others around 0."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        if "float" in weight.dtype:
            weight.assign(rng.normal(weight.name == "gamma", 0.3, weight.shape))


def run(function, inputs, **arguments):
    """The outputs as a list of arrays, each asserted finite; half precisions come as float32."""
    outputs = [
        np.asarray(ops.cast(y, "float32") if keras.backend.is_float_dtype(y.dtype) else y)
        for y in tree.flatten(function(inputs, **arguments))
    ]
    for y in outputs:
        assert np.isfinite(y).all()
    return outputs


def assert_close(actual, expected, tolerance=EPSILON):
    """Absolute and relative at once: within `tolerance` of max(1, |expected|)."""
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance)


def assert_equal(actual, expected):
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, e)


def corner(arrays, like):
    """The leading part of each array, of the shape of its counterpart in `like`."""
    return [a[tuple(slice(n) for n in b.shape)] for a, b in zip(arrays, like, strict=True)]


def needs(capability, reason):
    """Skip unless the case has the capability."""
    if not capability:
        pytest.skip(reason)


# Invariants, in the order of the design -----------------------------------------------------------


def config_round_trip(case):
    model, layer = case.model, case.layer
    config = json.loads(json.dumps(layer.get_config()))
    twin = type(layer).from_config(copy.deepcopy(config))
    other = case.around(twin)
    assert json.loads(json.dumps(twin.get_config())) == config
    other.set_weights(model.get_weights())
    assert_equal(run(other, case.draw()), run(model, case.draw()))


def eager_graph_and_xla_agree(case):
    model, inputs = case.model, case.draw()
    expected = run(model, inputs)
    assert_close(run(tf.function(lambda x: model(x), autograph=False), inputs), expected)
    assert_close(run(tf.function(lambda x: model(x), autograph=False, jit_compile=True), inputs), expected)


def symbolic_shape_and_dtype_are_the_actual(case):
    inputs = case.draw()
    actual = case.model(inputs)
    symbols = {name: keras.KerasTensor(x.shape, str(x.dtype)) for name, x in inputs.items()}
    if isinstance(case.layer, keras.Model):
        known = case.layer.compute_output_spec(symbols)
    else:
        known = case.layer.compute_output_spec(**symbols, **case.call)

    def compare(y, of_known, of_unknown):
        assert tuple(of_known.shape) == y.shape
        assert len(of_unknown.shape) == len(y.shape)
        assert all(n in (None, size) for n, size in zip(of_unknown.shape, y.shape, strict=True))
        assert of_known.dtype == of_unknown.dtype == keras.backend.standardize_dtype(y.dtype)

    tree.map_structure(compare, actual, known, case.model.output)


def weights_file_is_exact(case):
    with tempfile.TemporaryDirectory() as folder:
        case.model.save_weights(f"{folder}/model.weights.h5")
        other = case.new(seed=2)
        other.load_weights(f"{folder}/model.weights.h5")
    assert_equal(other.get_weights(), case.model.get_weights())
    assert_equal(run(other, case.draw()), run(case.model, case.draw()))


def keras_file_is_exact(case):
    with tempfile.TemporaryDirectory() as folder:
        case.model.save(f"{folder}/model.keras")
        other = keras.saving.load_model(f"{folder}/model.keras")
    assert type(other) is type(case.model)
    assert_equal(other.get_weights(), case.model.get_weights())
    assert_equal(run(other, case.draw()), run(case.model, case.draw()))


def saved_model_answers_without_this_package(case):
    inputs = case.draw()
    with tempfile.TemporaryDirectory() as folder:
        case.model.export(folder, verbose=False)
        assert_close(answers_of_a_fresh_process(folder, inputs), run(case.model, inputs))


def checkpoint_round_trip_is_exact(case):
    needs(isinstance(case.layer, keras.Model), "a part: checkpoints are of whole models")
    other = case.new(seed=2)
    with tempfile.TemporaryDirectory() as folder:
        save_weights(case.model, f"{folder}/model.safetensors")
        load_weights(other, f"{folder}/model.safetensors")
    assert_equal(other.get_weights(), case.model.get_weights())
    assert_equal(run(other, case.draw()), run(case.model, case.draw()))


def equals_the_reference(case):
    needs(case.reference, "no reference")
    inputs = case.draw()
    expected = case.reference(case.layer, **inputs, **case.call)
    assert_close(run(case.model, inputs), tree.flatten(expected))


def inference_is_deterministic(case):
    assert_equal(run(case.model, case.draw()), run(case.model, case.draw()))


def seeded_training_is_deterministic(case):
    needs(case.model.trainable_weights, "nothing to train")
    inputs = case.draw()
    targets = case.model(inputs)

    def trained():
        keras.utils.set_random_seed(7)
        model = case.around(case.factory())
        start = model.get_weights()
        step = step_towards(targets, model, inputs, training=True)
        step(), step()
        return start, model.get_weights()

    (start, once), (_, again) = trained(), trained()
    assert_equal(once, again)
    assert any((a != b).any() for a, b in zip(start, once, strict=True))


def a_batch_of_one_is_a_row_of_the_batch(case):
    inputs = case.draw()
    outputs = run(case.model, inputs)
    for row in range(BATCH):
        alone = run(case.model, {name: x[row : row + 1] for name, x in inputs.items()})
        assert_close(alone, [y[row : row + 1] for y in outputs])


def permutes_with_its_batch(case):
    inputs, order = case.draw(), [2, 0, 1]
    permuted = run(case.model, {name: x[order] for name, x in inputs.items()})
    assert_close(permuted, [y[order] for y in run(case.model, inputs)])


def right_padding_changes_nothing(case):
    axes = masks_of(case)
    needs(axes, "takes no padding mask")
    inputs = case.draw()
    outputs = run(case.model, inputs)
    for axis, amount in itertools.product(axes, (1, 4)):
        padded = padded_by(amount, axis, inputs, case, after=True)
        assert_close(corner(run(case.model, padded), like=outputs), outputs)


def left_padding_changes_nothing(case):
    needs(case.left_padding, "promises nothing of left padding")
    inputs, axis = case.draw(), case.left_padding
    for amount in (1, 4):
        padded = padded_by(amount, axis, inputs, case, after=False)
        assert_close([y[:, amount:] for y in run(case.model, padded)], run(case.model, inputs))


def no_output_sees_what_comes_later(case):
    needs(case.causal, "not causal")
    inputs, other = case.draw(seed=3), case.draw(seed=4)
    outputs = run(case.model, inputs)
    for t in range(LENGTHS[case.causal] - 1):
        changed = dict(inputs)
        for name, axis in case.axes(case.causal).items():
            assert axis == 1
            changed[name] = np.concatenate([inputs[name][:, : t + 1], other[name][:, t + 1 :]], axis=1)
        assert_equal([y[:, : t + 1] for y in run(case.model, changed)], [y[:, : t + 1] for y in outputs])


def all_padding_empty_batch_and_length_one_are_finite(case):
    inputs = case.draw()
    for axis, name in masks_of(case).items():
        run(case.model, inputs | {name: np.zeros_like(inputs[name])})
        run(case.model, case.draw(**{axis: 1}))
    for y in run(case.model, {name: x[:0] for name, x in inputs.items()}):
        assert y.shape[0] == 0
    run(case.model, case.draw(**dict.fromkeys(LENGTHS, 1)))


def attention_rows_sum_to_one(case):
    needs(case.attends, "does not attend")
    inputs = case.draw()
    for name in masks_of(case).values():
        inputs[name][-1] = False
    with recorded_attention() as records:
        run(case.model, inputs)
    assert records
    for weights, allowed in records:
        allowed = np.broadcast_to(True if allowed is None else allowed, weights.shape)
        assert (weights[~allowed] == 0).all()
        np.testing.assert_allclose(weights.sum(-1), allowed.any(-1), rtol=1e-6)


def fused_equals_plain(case):
    needs(case.plain, "no fused path")
    inputs = case.draw()
    assert_close(run(case.model, inputs), tree.flatten(case.plain(case.layer, **inputs, **case.call)))


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
    gradients = gradients_of(case.model, case.draw())
    for weight, gradient in zip(case.model.trainable_weights, gradients, strict=True):
        assert np.isfinite(gradient).all(), weight.path
        is_key_bias = weight.path.endswith("/key/bias")  # it adds the same to all scores of a row
        assert is_key_bias or np.abs(gradient).max() > 1e-6, weight.path


def frozen_weights_stay(case):
    needs(case.model.trainable_weights, "nothing to train")
    model = case.new()
    leaves = [layer for layer in model._flatten_layers() if layer._trainable_variables]
    needs(len(leaves) > 1, "one layer only: frozen whole, nothing would train")
    leaves[-1].trainable = False  # the first may be the layer itself, and freeze all
    frozen = {weight.path for weight in leaves[-1].weights}
    before = {weight.path: weight.numpy() for weight in model.weights}
    inputs = case.draw()
    step_towards(tree.map_structure(ops.ones_like, model(inputs)), model, inputs)()
    for weight in model.weights:
        if weight.path in frozen:
            np.testing.assert_array_equal(weight, before[weight.path])
    assert any((weight.numpy() != before[weight.path]).any() for weight in model.trainable_weights)


def rematerialised_gradients_are_equal(case):
    """Traced and in training: what is recomputed draws the same dropout."""
    needs(case.model.trainable_weights, "nothing to train")
    gradients = []
    for scope in (keras.RematScope("full"), contextlib.nullcontext()):
        with scope:
            mode = keras_tfm.layers.Layer()._remat_mode
        keras.utils.set_random_seed(7)
        model = case.around(case.factory())
        for part in model._flatten_layers():
            if isinstance(part, keras_tfm.layers.Layer):
                part._remat_mode = mode
        model.set_weights(case.model.get_weights())
        gradients.append(gradients_of(model, case.draw(), training=True))
    assert_close(*gradients)


def mixed_precision_keeps_its_bound(case):
    inputs = case.draw()
    expected = run(case.model, inputs)
    for dtype, bound in (("float16", 1e-2), ("bfloat16", 8e-2)):
        keras.config.set_dtype_policy(f"mixed_{dtype}")
        model = case.around(case.factory())
        model.set_weights(case.model.get_weights())
        assert all(weight.dtype in ("float32", "uint32") for weight in model.weights)
        outputs = model(inputs)
        dtypes = {keras.backend.standardize_dtype(y.dtype) for y in tree.flatten([outputs, model.output])}
        assert dtypes == {dtype}
        for actual, exact in zip(run(model, inputs), expected, strict=True):
            assert np.abs(actual - exact).max() <= bound * max(1, np.abs(exact).max())


def overfits_one_batch(case):
    needs(case.model.trainable_weights, "nothing to train")
    inputs = case.draw()
    step = step_towards(case.model(inputs), case.new(seed=5), inputs, keras.optimizers.Adam(0.02))

    @tf.function(autograph=False)
    def steps(count):
        return tf.while_loop(lambda i, _: i < count, lambda i, _: (i + 1, step()), (0, 0.0))[1]

    first = steps(1)
    assert steps(150) < 0.05 * first


def tied_weights_survive(case):
    needs(case.tied, "no tied weights")
    with tempfile.TemporaryDirectory() as folder:
        case.model.save(f"{folder}/model.keras")
        other = keras.saving.load_model(f"{folder}/model.keras")
    for model in (case.model, other):
        first, second = case.tied(model)
        assert first is second
    assert len(other.weights) == len(case.model.weights)


def tokenizer_equals_its_reference(case):
    pytest.skip("not a tokenizer")


def dict_equals_positional_and_unknown_arguments_raise(case):
    inputs = case.draw()
    expected = run(case.model, inputs)
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
    eager_graph_and_xla_agree,
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
    mixed_precision_keeps_its_bound,
    overfits_one_batch,
    tied_weights_survive,
    tokenizer_equals_its_reference,
    dict_equals_positional_and_unknown_arguments_raise,
)


def check(*cases):
    """The test of all invariants for `cases`, each pair under an id of its own."""

    @pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
    @pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda invariant: invariant.__name__)
    def test(case, invariant):
        invariant(case)

    return test


# What the invariants stand on ---------------------------------------------------------------------


def masks_of(case):
    """{axis: name} of the padding masks."""
    return {spec.shape[0]: name for name, spec in case.inputs.items() if spec.dtype == "bool"}


def padded_by(amount, axis, inputs, case, after):
    """`inputs` with `amount` more positions on `axis`, their content large and masked out."""
    padded = dict(inputs)
    noise = case.draw(seed=9, **{axis: amount})
    for name, position in case.axes(axis).items():
        more = np.zeros_like(noise[name]) if case.inputs[name].dtype == "bool" else noise[name]
        more = more * 10 if case.inputs[name].dtype == "float32" else more
        padded[name] = np.concatenate([inputs[name], more] if after else [more, inputs[name]], axis=position)
    return padded


def decoded_outputs(outputs):
    """Of several outputs the decoder's."""
    if not isinstance(outputs, dict):
        return outputs
    return outputs.get("decoder_sequence_output", outputs.get("sequence_output"))


def gradients_of(model, inputs, training=False):
    """The gradients of a random weighting of all outputs."""
    inputs = tree.map_structure(tf.convert_to_tensor, inputs)
    variables = [weight.value for weight in model.trainable_weights]

    @tf.function(autograph=False)
    def gradients():
        rng = np.random.default_rng(8)
        with tf.GradientTape() as tape:
            outputs = tree.flatten(model(inputs, training=training))
            loss = tf.add_n([tf.reduce_sum(y * rng.normal(size=y.shape).astype("float32")) for y in outputs])
        return [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]

    return [gradient.numpy() for gradient in gradients()]


def step_towards(targets, model, inputs, optimizer=None, training=False):
    """A function that takes a training step of `model` towards `targets` and returns the loss before it."""
    inputs, targets = tree.map_structure(tf.convert_to_tensor, inputs), tree.flatten(targets)
    variables = model.trainable_variables
    optimizer = optimizer or keras.optimizers.SGD(0.1)
    optimizer.build(variables)

    def step():
        with tf.GradientTape() as tape:
            outputs = tree.flatten(model(inputs, training=training))
            loss = tf.add_n([tf.reduce_mean((y - t) ** 2) for y, t in zip(outputs, targets, strict=True)])
        optimizer.apply(tape.gradient(loss, [variable.value for variable in variables]))
        return loss

    return step


@contextlib.contextmanager
def recorded_attention():
    """Every (weights, mask) that `masked_softmax` gives to any layer meanwhile."""
    records, original = [], masks.masked_softmax

    def recording(scores, mask=None):
        weights = original(scores, mask)
        records.append((ops.convert_to_numpy(weights), None if mask is None else ops.convert_to_numpy(mask)))
        return weights

    with pytest.MonkeyPatch.context() as patch:
        for module in [m for name, m in sys.modules.items() if name.startswith("keras_tfm.layers.")]:
            if hasattr(module, "masked_softmax"):
                patch.setattr(module, "masked_softmax", recording)
        yield records


SERVER = """
import sys
sys.modules["keras_tfm"] = sys.modules["keras"] = None
import numpy as np
import tensorflow as tf
for folder in map(str.strip, sys.stdin):
    inputs = {name: tf.constant(x) for name, x in np.load(folder + "/inputs.npz").items()}
    loaded = tf.saved_model.load(folder)
    outputs = loaded.serve(inputs)
    np.savez(folder + "/outputs.npz", *tf.nest.flatten(outputs))
    print("answered", flush=True)
"""


@functools.cache
def fresh_process():
    """One process for all exports of a session: importing TensorFlow costs seconds."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)
    return process


def answers_of_a_fresh_process(folder, inputs):
    """What the SavedModel in `folder` answers where this package cannot be imported."""
    np.savez(Path(folder, "inputs.npz"), **inputs)
    process = fresh_process()
    print(folder, file=process.stdin, flush=True)
    assert process.stdout.readline() == "answered\n"
    with np.load(Path(folder, "outputs.npz")) as outputs:
        return [outputs[name] for name in outputs.files]
