"""`keras_tfm.Model`: functional or subclassed in any order, and what it makes of its inputs."""

import collections
import dataclasses
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from keras.src.models.functional import Functional

import keras_tfm
from keras_tfm import layers
from keras_tfm.configs import Config
from keras_tfm.models.base import ConfiguredModel, Trace
from tests.fresh_process import UNUSED, run_fresh


def functional(**options):
    x = keras.Input((3,), name="x")
    return keras_tfm.Model(x, keras.layers.Dense(2)(x), **options)


def subclassed():
    class Own(keras_tfm.Model):
        def __init__(self):
            super().__init__(name="own")
            self.dense = keras.layers.Dense(2)

        def call(self, x):
            return self.dense(x)

    return Own()


def functional_subclass():
    class Own(keras_tfm.Model):
        def __init__(self, units):
            x = keras.Input((3,), name="x")
            super().__init__(x, keras.layers.Dense(units)(x), name="own")
            self.units = units

    return Own(2)


def functional_grandchild():
    class Parent(keras_tfm.Model):
        def __init__(self, inputs, outputs):
            super().__init__(inputs=inputs, outputs=outputs)

    class Child(Parent):
        def __init__(self):
            x = keras.Input((3,), name="x")
            super().__init__(x, keras.layers.Dense(2)(x))

    return Child()


KINDS = [functional, subclassed, functional_subclass, functional_grandchild]


# Kinds of models, in any order -----------------------------------------------------------------------


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_every_kind_trains_after_every_other(first, second):
    x = np.random.normal(size=(4, 3)).astype("float32")
    for make in (first, second):
        model = make()
        assert isinstance(model, keras_tfm.Model)
        assert isinstance(model, Functional) == (make is not subclassed)
        before = model(x).numpy()
        model.compile("sgd", "mse", run_eagerly=True)
        model.train_on_batch(x, np.zeros((4, 2), "float32"))
        assert np.abs(model(x) - before).max() > 0
    assert not issubclass(keras_tfm.Model, Functional)


def test_a_functional_model_is_one():
    model = functional(name="mine")
    assert model.name == "mine"
    assert (model.input.shape, model.output.shape) == ((None, 3), (None, 2))
    lines = []
    model.summary(print_fn=lines.append)
    assert "dense" in "\n".join(lines)


def test_a_subclass_made_of_inputs_and_outputs_keeps_its_attributes():
    model = functional_subclass()
    assert model.units == 2 and model.output.shape == (None, 2)


# Inputs ----------------------------------------------------------------------------------------------


def echo(*names):
    """A model that gives back its inputs."""
    inputs = {
        name: keras.Input((None,), dtype="bool" if "mask" in name else "int32", name=name) for name in names
    }
    return keras_tfm.Model(inputs, {name: ops.cast(x, "int32") for name, x in inputs.items()}, name="echo")


def test_masks_and_segments_that_are_left_out_are_filled():
    model = echo("token_ids", "padding_mask", "segment_ids", "decoder_token_ids", "decoder_padding_mask")
    given = {"token_ids": np.array([[3, 4, 5]]), "decoder_token_ids": np.array([[6, 7]])}
    for batch in (given, {name: tf.constant(x) for name, x in given.items()}):
        y = model(batch)
        np.testing.assert_array_equal(y["padding_mask"], [[1, 1, 1]])
        np.testing.assert_array_equal(y["segment_ids"], [[0, 0, 0]])
        np.testing.assert_array_equal(y["decoder_padding_mask"], [[1, 1]])
        np.testing.assert_array_equal(y["decoder_token_ids"], [[6, 7]])


def test_what_is_given_is_not_filled_and_the_batch_is_left_alone():
    batch = {"token_ids": np.array([[3, 4]]), "padding_mask": np.array([[1, 0]])}
    y = echo("token_ids", "padding_mask", "segment_ids")(batch)
    np.testing.assert_array_equal(y["padding_mask"], [[1, 0]])
    assert list(batch) == ["token_ids", "padding_mask"]


def test_arrays_and_tensors_may_be_mixed():
    y = echo("token_ids", "padding_mask")({"token_ids": np.array([[3]]), "padding_mask": tf.constant([[1]])})
    np.testing.assert_array_equal([y["token_ids"], y["padding_mask"]], [[[3]], [[1]]])


def test_inputs_are_filled_where_the_model_is_called_symbolically():
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    outer = keras_tfm.Model(
        token_ids, echo("token_ids", "padding_mask")({"token_ids": token_ids})["padding_mask"]
    )
    np.testing.assert_array_equal(outer(np.array([[3, 4]])), [[1, 1]])


def test_inputs_are_filled_in_fit_and_predict():
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    x = keras.layers.Embedding(9, 2)(token_ids) * ops.cast(padding_mask, "float32")[..., None]
    model = keras_tfm.Model({"token_ids": token_ids, "padding_mask": padding_mask}, x)
    batch, labels = {"token_ids": np.array([[3, 4], [5, 6]])}, np.zeros((2, 2, 2), "float32")
    model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensor_slices((batch, labels)).batch(2)
    assert model.fit(data, shuffle=False, verbose=0).history["loss"][0] > 0
    np.testing.assert_allclose(model.predict(batch, verbose=0), model(batch), rtol=1e-6)


def test_unknown_and_missing_names_raise():
    model = echo("token_ids", "padding_mask")
    token_ids = np.array([[1, 2]])
    with pytest.raises(ValueError, match=r"'echo' takes .*; it was given labels, mask"):
        model({"token_ids": token_ids, "mask": token_ids, "labels": token_ids})
    with pytest.raises(ValueError, match="'echo' needs 'token_ids'; it was given padding_mask"):
        model({"padding_mask": token_ids})
    with pytest.raises(ValueError, match="'echo' needs 'token_ids'; it was given nothing"):
        model({})


def test_a_single_input_may_be_the_bare_array():
    model, token_ids = echo("token_ids"), np.array([[1, 2]])
    np.testing.assert_array_equal(model(token_ids)["token_ids"], model({"token_ids": token_ids})["token_ids"])


# Training --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["arrays", "dataset", "generator"])
def test_a_step_is_traced_once(kind):
    traced = []

    class Own(keras_tfm.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(2)

        def call(self, x, training=False):
            traced.append(training)
            return self.dense(x)

    x, y = np.zeros((64, 3), "float32"), np.zeros((64, 2), "float32")
    data = {
        "arrays": (x, y),
        "dataset": (tf.data.Dataset.from_tensor_slices((x, y)).batch(4),),
        "generator": (((x[:4], y[:4]) for _ in range(3)),),
    }[kind]
    model = Own()
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(*data, epochs=1, steps_per_epoch=2, verbose=0, shuffle=False)
    assert sum(traced) == 1


COMPILING = """
import keras, numpy as np, tensorflow as tf, keras_tfm
x = keras.Input((None,), dtype="int32")
model = keras_tfm.Model(x, keras.layers.Dense(2)(keras.layers.Embedding(5, 3)(x)))
model.compile(keras_tfm.training.AdamW(0.1, clipnorm=1.0, use_ema=True), "mse", jit_compile=True)
shapes = [(2, 3), (4, 1), (2, 3), (3, 4)]
batches = [(np.ones(shape, "int32"), np.ones((*shape, 2), "float32")) for shape in shapes]
spec = tf.TensorSpec((None, None), "int32"), tf.TensorSpec((None, None, 2), "float32")
model.fit(tf.data.Dataset.from_generator(lambda: batches, output_signature=spec), verbose=0)
"""


def test_xla_compiles_gradients_for_each_shape_of_a_batch_and_the_update_once(monkeypatch):
    monkeypatch.setenv("TF_CPP_VMODULE", "xla_compiler=1")  # the log then names what XLA compiles
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    result = run_fresh(COMPILING, blocked=UNUSED)
    assert result.returncode == 0, result.stderr
    names = re.findall(r"XlaCompiler::CompileFunction __inference_*(\w+?)_\d+", result.stderr)
    assert collections.Counter(names) == {"dense_gradients": 3, "update": 1}


EAGER = """
import numpy as np, keras, keras_tfm
with keras_tfm.training.strategy("mirrored:2").scope():
    x = keras.Input((1,))
    model = keras_tfm.Model(x, keras.layers.Dense(1)(x))
    model.compile("sgd", "mse", run_eagerly=True, steps_per_execution=2)
ones = np.ones((10, 1), "float32")
model.fit(ones, ones, batch_size=2, verbose=0)
print(int(model.optimizer.iterations.numpy()))
"""


@pytest.mark.slow  # in a process of its own
def test_eager_replicas_take_every_batch():
    result = run_fresh(EAGER, blocked=UNUSED)
    assert result.stdout.strip() == "5", result.stderr


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_model_with_nothing_to_train_is_fitted(jit_compile):
    model = functional()
    model.trainable = False
    model.compile(keras_tfm.training.AdamW(), "mse", jit_compile=jit_compile)
    before = model.get_weights()
    model.fit(np.ones((2, 3)), np.ones((2, 2)), verbose=0)
    for value, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("first", ["fit", "evaluate", "train_on_batch"])
def test_all_is_made_in_the_scope_of_a_strategy_of_one_device(first):
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    x, y = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")
    with strategy.scope():
        model = subclassed()
        model.compile("adam", "mse")
    calls = {"fit": {"verbose": 0}, "evaluate": {"verbose": 0}, "train_on_batch": {}}
    getattr(model, first)(x, y, **calls[first])
    model.fit(x, y, verbose=0)
    variables = [*model.variables, *model.optimizer.variables]
    assert all(strategy.extended.variable_created_in_scope(variable.value) for variable in variables)


@pytest.mark.parametrize(
    "weights", [np.array([1.0, 0.0, 0.0, 2.0, 0.5]), np.array([True, False, True, True, True])]
)
@pytest.mark.parametrize("reduction", ["mean_with_sample_weight", "sum_over_batch_size"])
def test_the_loss_over_batches_is_that_of_all_examples_at_once(reduction, weights):
    """However weights, of padding for example, fall into batches."""
    x = np.arange(1.0, 6.0)[:, None]
    inputs = keras.Input((1,))
    model = keras_tfm.Model(inputs, keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")(inputs))
    model.compile(keras.optimizers.SGD(0.0), keras.losses.MeanSquaredError(reduction))
    total = np.sum(weights * x[:, 0] ** 2)
    expected = total / (weights.sum() if reduction == "mean_with_sample_weight" else 5)
    data = (x, np.zeros_like(x), weights)
    history = model.fit(*data[:2], 2, sample_weight=weights, validation_data=data, verbose=0).history
    assert history["loss"] == history["val_loss"] == [pytest.approx(expected)]


def test_evaluation_makes_nothing_for_the_optimizer():
    model = functional()
    model.compile("adam", "mse")
    model.evaluate(np.zeros((4, 3)), np.zeros((4, 2)), verbose=0)
    assert not model.optimizer.built


# Files and configurations ----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [functional, lambda: echo("token_ids", "padding_mask")])
def test_a_file_gives_the_same_class_back(make, tmp_path):
    model = make()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is type(model) and isinstance(loaded, keras_tfm.Model)
    x = np.ones((2, 3), "float32") if make is functional else {"token_ids": np.array([[1, 2]])}
    for y, z in zip(keras.tree.flatten(model(x)), keras.tree.flatten(loaded(x)), strict=True):
        np.testing.assert_array_equal(y, z)


@dataclasses.dataclass(frozen=True)
class FamilyConfig(Config):
    dim: int
    depth: int = 2


class Family(ConfiguredModel):
    config_class = FamilyConfig
    sizes = {"s": FamilyConfig(4), "m": FamilyConfig(6)}

    def __init__(self, config, name="family", **kwargs):
        x = keras.Input((None, config.dim), name="x")
        blocks = [layers.TransformerBlock(2, 8, name=f"block_{i}") for i in range(config.depth)]
        trace = Trace()
        super().__init__(config, x, trace.run("encoder", blocks, x), trace, name=name, **kwargs)


def test_a_size_is_a_configuration_with_changes():
    model = Family.from_size("m", depth=1)
    assert model.config == FamilyConfig(6, 1)
    assert model.output.shape == (None, None, 6)


def test_unknown_sizes_and_fields_are_refused():
    with pytest.raises(ValueError, match="Family has no size 'l'; it has s, m"):
        Family.from_size("l")
    with pytest.raises(ValueError, match="FamilyConfig has no width; it has dim, depth"):
        Family.from_size("s", width=3)


def test_a_family_survives_its_configuration_and_file(tmp_path):
    model = Family(FamilyConfig(4, 1), name="mine")
    model.save(tmp_path / "model.keras")
    for copy in (Family.from_config(model.get_config()), keras.saving.load_model(tmp_path / "model.keras")):
        assert (type(copy), copy.config, copy.name) == (Family, model.config, "mine")
    x = np.random.normal(size=(2, 3, 4)).astype("float32")
    np.testing.assert_array_equal(copy(x), model(x))
