"""What every layer inherits: configuration from the constructor, rematerialisation that is exact."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.saving.serialization_lib import ObjectSharingScope  # what loading a file stands in

from keras_tfm import layers
from keras_tfm.layers.base import Pattern
from keras_tfm.layers.recurrent import RecurrentEncoder


class Counting(layers.Layer):
    """x times a weight, after dropout; counts its calls."""

    def __init__(self, rate, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.dropout = layers.Dropout(rate)
        self.calls = 0

    def build(self, x_shape):
        self.weight = self.add_weight(x_shape[-1:], "ones")

    def call(self, x, offset=None, training=False):
        self.calls += 1
        x = self.dropout(self.dropout(x, training=training), training=training) * self.weight
        return x if offset is None else x + offset


def test_layers_among_the_arguments_are_configuration_not_state():
    position = layers.RelativePositionEmbedding(2)
    attention = layers.MultiHeadAttention(2, position=position)
    attention(np.ones((1, 3, 4), "float32"))
    copy = Pattern(attention).new("copy")
    assert copy.name == "copy" and copy.position is not position
    assert copy.position.max_distance == 2 and not copy.position.built


@pytest.mark.parametrize(
    ("layer", "name", "value"),
    [
        (layers.StandardizedConvolution(4, dilation=2), "dilation", 2),
        (layers.CrossCovarianceAttention(2, key_dim=3), "key_dim", 3),
        (layers.LayerNormalization(name="other"), "name", "other"),
    ],
)
def test_arguments_that_go_to_the_parent_class_are_configuration_too(layer, name, value):
    copy = type(layer).from_config(layer.get_config())
    assert getattr(layer, name) == getattr(copy, name) == copy.get_config()[name] == value


@pytest.mark.parametrize("options", [{"input_shape": (5, 4)}, {"input_dim": 4}])
def test_a_first_layer_of_a_sequence_has_a_configuration(options):
    with pytest.warns(UserWarning, match="Do not pass an `input_shape`"):  # Keras prefers an `Input`
        config = layers.FeedForward(8, **options).get_config()
    assert layers.FeedForward.from_config(config).get_config() == config


def test_what_is_recomputed_draws_the_same_dropout():
    results = []
    for scope in (keras.RematScope("full"), keras.RematScope("activations")):
        keras.utils.set_random_seed(5)
        with scope:
            layer = Counting(0.5)
        x = tf.ones((4, 6))
        layer(x)
        layer.calls = 0
        for _ in range(2):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x, offset=tf.ones((4, 6)), training=True)
            results.append([y, tape.gradient(y, x), layer.dropout.seed_generator.state.numpy()])
        calls = 4 if scope.mode == "full" else 2
        assert layer.calls == calls
    for first, second in zip(results[:2], results[2:], strict=True):
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)
    assert (results[0][0].numpy() != results[1][0].numpy()).any()


def test_what_is_made_while_a_file_is_loaded_has_parts_of_its_own():
    """Keras knows objects by their addresses there, and a new object may get the address of a dead one."""
    with ObjectSharingScope():
        made = [RecurrentEncoder(2, num_layers=2) for _ in range(10)]
    parts = [part for layer in made for part in layer._flatten_layers()]
    number = len(list(RecurrentEncoder(2, num_layers=2)._flatten_layers()))
    assert len({id(part) for part in parts}) == len(parts) == 10 * number


class Parts(layers.Layer):
    """A dense layer of `__init__`, and one of `build`, both of them without a `name` of their own."""

    def __init__(self, late_name=None, **kwargs):
        super().__init__(**kwargs)
        self.late_name = late_name
        self.early = keras.layers.Dense(2)

    def build(self, x_shape):
        self.early.build(x_shape)
        self.late = keras.layers.Dense(2, name=self.late_name)
        self.late.build(x_shape)


def test_parts_are_named_by_their_attributes():
    layer = Parts("late", name="parts")
    layer.build((None, 3))
    assert [weight.path for weight in layer.weights] == [
        f"parts/{part}/{weight}" for part in ("early", "late") for weight in ("kernel", "bias")
    ]
    with pytest.raises(ValueError, match=r"`build` of Parts makes the part `late` .* with name='late'"):
        Parts().build((None, 3))
