"""A dtype reaches every part: made in `__init__` or `build`, given by the user, or of a family's graph."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import heads, layers
from keras_tfm.models import BERT, GPT2, BERTConfig
from keras_tfm.training.quantization import quantize

CONFIG = BERTConfig(11, num_layers=1, dim=8, num_heads=2, intermediate_dim=12, max_length=9)
BATCH = {"token_ids": np.array([[1, 2, 3]])}


def dtypes(layer):
    """The dtypes in which the parts compute, by name."""
    return {
        part.path or part.name: part.compute_dtype
        for part in layer._flatten_layers()
        if not isinstance(part, keras.layers.InputLayer)
    }


class Holder(layers.Layer):
    """Parts of every kind: given alone, in lists and dicts, Keras's own, made here and when built."""

    def __init__(self, single, many=(), named=None, **kwargs):
        super().__init__(**kwargs)
        self.single = single
        self.many = many
        self.named = named
        cell = keras.layers.GRUCell(4, recurrent_initializer="zeros")  # no QR decomposition in bfloat16
        self.made = keras.layers.Bidirectional(keras.layers.RNN(cell, return_sequences=True), "sum")

    def build(self, x_shape):
        self.dense = keras.layers.Dense(x_shape[-1], name="dense")
        self.dense.build(x_shape)
        self.inner = layers.FeedForward(3, name="inner")
        self.inner.build(x_shape)

    def call(self, x):
        for part in (self.single, *self.many, *(self.named or {}).values(), self.dense, self.inner):
            x = part(x)
        return self.made(x)


def holder(**options):
    parts = [layers.FeedForward(5), keras.layers.Dense(4), Holder(layers.FeedForward(3))]
    return Holder(layers.LayerNormalization(), parts, {"last": layers.RMSNormalization()}, **options)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "float64"])
def test_all_parts_follow(policy):
    layer = holder(dtype=policy)
    compute = layer.compute_dtype
    assert set(dtypes(layer).values()) == {compute}
    y = layer(np.ones((2, 3, 4)))
    assert set(dtypes(layer).values()) == {compute} == {keras.backend.standardize_dtype(y.dtype)}
    assert {weight.dtype for weight in layer.trainable_weights} == {layer.variable_dtype}
    assert keras.config.dtype_policy().name == "float32"


def test_what_has_a_dtype_or_weights_keeps_its_own():
    shared = layers.TokenEmbedding(11, 4)
    shared(BATCH["token_ids"])
    head = heads.LanguageModelHead(11, shared, use_bias=True, dtype="mixed_bfloat16")
    assert head(np.ones((1, 2, 4))).dtype == "bfloat16" and shared.compute_dtype == "float32"
    attention = layers.MultiHeadAttention(2, dtype="float32", name="given")
    feedforward = layers.Residual(layers.FeedForward(8))
    norm = layers.LayerNormalization()
    block = layers.Block(
        {"attention": layers.Residual(attention, norm), "feedforward": feedforward}, dtype="mixed_bfloat16"
    )
    outer = Holder(block, dtype="float64")
    outer(np.ones((1, 3, 4)))
    of = {part.name: part.compute_dtype for part in block._flatten_layers()}
    assert (of["norm"], of["given"]) == ("bfloat16", "float32")
    assert attention.output_projection.compute_dtype == "float32"


@pytest.mark.parametrize("make", [
    holder,
    lambda: layers.Block({
        "attention": layers.Residual(
            layers.MultiHeadAttention(2, position=layers.RotaryEmbedding(), dtype="float64")
        ),
        "feedforward": layers.Residual(layers.FeedForward(8)),
    }),
    lambda: layers.RecurrentEncoder(3, cell=keras.layers.GRUCell(3)),
])  # fmt: skip
def test_the_configuration_says_what_was_given_and_the_rest_follows_again(make):
    layer = make()
    config = layer.get_config()
    assert type(layer).from_config(config).get_config() == config
    explicit = {name for name, dtype in dtypes(layer).items() if dtype == "float64"}
    changed = dtypes(type(layer).from_config(config | {"dtype": "bfloat16"}))
    assert {name for name, dtype in changed.items() if dtype != "bfloat16"} == explicit


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float64"])
def test_models_and_their_heads(policy, tmp_path):
    backbone = BERT(CONFIG, dtype=policy)
    model = heads.MaskedLM(backbone)
    for one in (backbone, model, heads.MultipleChoice(backbone), BERT.from_config(backbone.get_config())):
        assert set(dtypes(one).values()) == {backbone.compute_dtype}
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.dtype_policy == again.backbone.dtype_policy == backbone.dtype_policy
    np.testing.assert_array_equal(
        again(BATCH).numpy().astype("float32"), model(BATCH).numpy().astype("float32")
    )
    apart = heads.Classifier(BERT(CONFIG), 2, dtype=policy)
    assert apart.head.compute_dtype == backbone.compute_dtype != apart.backbone.compute_dtype


def test_double_precision_is_double():
    """Outputs and gradients agree with float32's to its rounding, and are finite and float64."""
    models = [BERT(CONFIG, dtype=dtype) for dtype in ("float32", "float64")]
    models[1].set_weights(models[0].get_weights())
    results = []
    for model in models:
        with tf.GradientTape() as tape:
            y = model(BATCH)["pooled_output"]
            loss = tf.reduce_sum(y**2)
        weights = [weight.value for weight in model.trainable_weights]
        results.append([y, *(tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, weights))])
    assert {x.dtype for x in results[1]} == {tf.float64}
    for single, double in zip(*results, strict=True):
        np.testing.assert_allclose(single, double, atol=1e-5)


def test_sizes_and_folders_take_a_dtype(tmp_path):
    BERT.from_size("tiny", dtype="float64", vocabulary_size=11).save_huggingface(tmp_path / "folder")
    assert BERT.from_huggingface(tmp_path / "folder").compute_dtype == "float32"
    model = BERT.from_huggingface(tmp_path / "folder", dtype="bfloat16")
    assert set(dtypes(model).values()) == {"bfloat16"}


def functional(layer, *shape, dtype="float32"):
    x = keras.Input(shape, dtype=dtype)
    return keras.Model(x, layer(x))


QUANTISED = {
    "embedding": lambda: functional(layers.TokenAndPositionEmbedding(11, 9, 8), 3, dtype="int32"),
    "encoder": lambda: functional(layers.TransformerEncoder(2, 2, 12), 3, 8),
    "arguments": lambda: functional(layers.WindowAttention(layers.MultiHeadAttention(2), 2), 4, 4, 8),
    "renamed": lambda: functional(layers.Residual(layers.FeedForward(5), name="twice"), 3, 4),
    "model": lambda: BERT(CONFIG),
    "head": lambda: heads.Classifier(BERT(CONFIG), 2),
    "tied": lambda: heads.LanguageModel(GPT2.from_size("tiny", vocabulary_size=11, dim=8, num_layers=1)),
}


@pytest.mark.parametrize("kind", QUANTISED)
def test_quantised_parts_are_saved_and_loaded(kind, tmp_path):
    """By whatever means: all by Keras's own `quantize`, which rounds activations too, or products alone."""
    model = QUANTISED[kind]()
    if kind in ("encoder", "tied"):
        quantize(model)
    else:
        kinds = keras.layers.Dense, keras.layers.EinsumDense, keras.layers.Embedding
        model.quantize("int8", filters=lambda layer: isinstance(layer, kinds))
    modes = {part.path: getattr(part, "quantization_mode", None) for part in model._flatten_layers()}
    assert "int8" in modes.values()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    found = {part.path: getattr(part, "quantization_mode", None) for part in loaded._flatten_layers()}
    assert found == modes
    assert [weight.dtype for weight in loaded.weights] == [weight.dtype for weight in model.weights]
    x = (
        {"token_ids": np.array([[1, 2, 3]])}
        if isinstance(model.input, dict)
        else np.ones((1, *model.input.shape[1:]))
    )
    for ours, theirs in zip(tf.nest.flatten(model(x)), tf.nest.flatten(loaded(x)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    again = type(loaded).from_config(loaded.get_config())  # of weights that were loaded
    assert {part.path: getattr(part, "quantization_mode", None) for part in again._flatten_layers()} == modes
