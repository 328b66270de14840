"""Functions that XLA compiles by themselves equal the plain ones, gradients included."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.heads import MaskedLM, TokenCrossEntropy, token_cross_entropy
from keras_tfm.jit import fusing, is_cpu_alone
from keras_tfm.layers.compiler.fused import fused
from keras_tfm.layers.compiler.normalization import (
    group_normalization,
    layer_normalization,
    rms_normalization,
)
from keras_tfm.layers.dense import fused_activation
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.layers.masks import masked_softmax
from keras_tfm.layers.regularization import chosen, keep_some
from keras_tfm.models import BERT
from keras_tfm.training import AdamW

SHAPE = (3, 5, 8)


def drawn(*shape):
    return tf.constant(np.random.default_rng(len(shape)).normal(size=shape), "float32")


def is_kept():
    return tf.constant(np.random.default_rng(1).random(SHAPE) < 0.7)


CASES = {
    "layer_normalization": (
        lambda *x: layer_normalization(*x, epsilon=1e-6),
        lambda: [drawn(*SHAPE), drawn(8), drawn(8)],
    ),
    "rms_normalization": (
        lambda *x: rms_normalization(*x, epsilon=1e-6),
        lambda: [drawn(*SHAPE), drawn(8)],
    ),
    "group_normalization": (
        lambda *x: group_normalization(*x, groups=2, epsilon=1e-6),
        lambda: [drawn(*SHAPE), drawn(8), drawn(8)],
    ),
    "softmax": (masked_softmax, lambda: [drawn(*SHAPE), is_kept()]),
    "softmax of all": (lambda x: masked_softmax(x, None), lambda: [drawn(*SHAPE)]),
    "dropout": (lambda *x: keep_some(*x, rate=0.3), lambda: [drawn(*SHAPE), is_kept()]),
    "gelu": (fused_activation(activation_of("gelu")), lambda: [drawn(*SHAPE)]),
    "gelu_tanh": (fused_activation(activation_of("gelu_tanh")), lambda: [drawn(*SHAPE)]),
    "cross-entropy": (
        lambda labels, logits: token_cross_entropy(labels, logits, 0.1),
        lambda: [tf.constant([[1, 0, 7, 2, 3]] * 3), drawn(*SHAPE)],
    ),
}


def value_and_gradients(function, tensors, on):
    """The value of a graph of `function`, and its gradients by the float tensors."""
    floats = [x for x in tensors if x.dtype.is_floating]

    @tf.function
    def graph():
        with fusing(on), tf.GradientTape() as tape:
            tape.watch(floats)
            y = function(*tensors)
            total = tf.reduce_sum(y * tf.cast(drawn(*y.shape), y.dtype))
        return [y, *tape.gradient(total, floats)]

    calls = [node.op for node in graph.get_concrete_function().graph.as_graph_def().node]
    assert any(op.endswith("PartitionedCall") for op in calls) == on
    return [tf.cast(x, "float32").numpy() for x in graph()]


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients(name):
    function, make = CASES[name]
    for ours, plain in zip(*(value_and_gradients(function, make(), on) for on in (True, False)), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)


def test_dropout_chooses_the_same_values():
    x, seed = drawn(4, 100), tf.constant([3, 5], "uint32")
    graphs = []
    for on in (True, False):

        @tf.function
        def graph(on=on):
            with fusing(on):
                return chosen(x, seed, rate=0.3)

        graphs.append(graph().numpy())
    np.testing.assert_array_equal(*graphs)
    assert 0.6 < graphs[0].mean() < 0.8


def test_activations_are_rounded_once_in_bfloat16():
    x = tf.linspace(-4.0, 4.0, 1001)
    narrow = tf.cast(x, "bfloat16")
    exact = keras.activations.gelu(tf.cast(narrow, "float64"), approximate=False).numpy()
    (ours, _) = value_and_gradients(fused_activation(activation_of("gelu")), [narrow], True)
    np.testing.assert_allclose(ours, exact, rtol=2**-8, atol=1e-6)


def test_a_layer_as_activation_is_left_alone():
    layer = keras.layers.PReLU()
    assert fused_activation(layer) is layer and fused_activation(None) is None


def test_options_are_constants_and_tensors_may_be_missing():
    @fused
    def scaled(x, shift, *, factor):
        return x * factor if shift is None else x * factor + shift

    for factor in (2.0, 3.0):
        value, gradient = value_and_gradients(
            lambda x, factor=factor: scaled(x, None, factor=factor), [drawn(4)], True
        )
        np.testing.assert_allclose(value, drawn(4) * factor)
        np.testing.assert_allclose(gradient, drawn(4) * factor)


@pytest.mark.skipif(not is_cpu_alone(), reason="an accelerator compiles whole steps")
def test_a_training_in_bfloat16_is_compiled_in_parts(monkeypatch):
    """It learns what a training without XLA learns, but for rounding; `jit_compile=False` means none."""
    monkeypatch.delenv("KERAS_TFM_JIT")
    token_ids = np.random.default_rng(0).integers(5, 30, (4, 6))
    inputs = {"token_ids": token_ids, "padding_mask": token_ids > 0, "segment_ids": 0 * token_ids}
    inputs["mask_positions"] = np.tile(np.arange(6), (4, 1))
    losses = []
    for options in ({}, {"jit_compile": False}):
        keras.utils.set_random_seed(0)
        sizes = {"num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 32, "dropout": 0.1}
        backbone = BERT.from_size("tiny", vocabulary_size=30, dtype="mixed_bfloat16", pooler=False, **sizes)
        model = MaskedLM(backbone, dtype="mixed_bfloat16")
        model.compile(AdamW(1e-2, 0.1), TokenCrossEntropy(), **options)
        assert not model.jit_compile and model.compiles_parts == (not options)
        losses.append([float(model.train_on_batch(inputs, token_ids)) for _ in range(5)])
    np.testing.assert_allclose(*losses, rtol=0.02)
    assert losses[0][-1] < losses[0][0] - 0.1
