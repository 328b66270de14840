"""Graphs and layers that tests make with less work equal what TensorFlow and Keras make."""

import inspect
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import BERTTokenizer
from keras_tfm.data.batches.encoding import pack_texts
from tests import quick_graphs

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]


@pytest.fixture(autouse=True)
def quickly():
    quick_graphs.make_graphs_quickly()


def texts_in_pairs():
    tokenizer = BERTTokenizer(PIECES)
    return lambda texts: pack_texts(tokenizer, 16, texts, texts), tf.TensorSpec((None,), "string")


def many_kinds():
    """Variables that are read and written in order, loops, branches, integers that are large, constants."""
    count = tf.Variable(0)

    def compute(x):
        count.assign_add(1)
        y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * tf.cast(count, "float32")), (0, x))[1]
        count.assign(count * 2)
        y = tf.cond(count > 5, lambda: y[:, 1:-1, None], lambda: y[..., None][:, :2] + 1)
        buckets = tf.strings.to_hash_bucket_fast(tf.as_string(y), 2**62)
        shuffled = tf.random.uniform((2, 3), -1, 1, seed=2**40)
        numbers = [[1, 2], [3, 4]], [1, 2.5], (1, 2), [], np.arange(3), True, 2**40, -(2**31)
        return buckets, shuffled, [tf.constant(x, "float64") for x in numbers], tf.constant(2**40, "int64")

    return compute, tf.TensorSpec((None, 4))


def a_training_step():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "gelu"), keras.layers.Dropout(0.5)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x, training=True))
        variables = [variable.value for variable in model.trainable_variables]
        optimizer.apply(tape.gradient(loss, variables))
        return loss

    return step, tf.TensorSpec((None, 4))


def graph_of(function, spec):
    """The nodes of the graph and of its functions, without the numbers that count all that were made."""
    graph = tf.function(function, autograph=False).get_concrete_function(spec).graph.as_graph_def()
    parts = [graph.node, *(part.node_def for part in graph.library.function)]
    return sorted(re.sub(r"(?<=[_-])\d+(?=[_/:\"])", "", "".join(map(str, nodes))) for nodes in parts)


@pytest.mark.parametrize("case", [texts_in_pairs, many_kinds, a_training_step])
def test_they_are_those_of_tensorflow(case):
    function, spec = case()
    with quick_graphs.made_by_tensorflow_alone():
        expected = graph_of(function, spec)
    assert graph_of(function, spec) == expected
    assert sum(map(len, expected)) > 10_000


class Doubled(keras.layers.Layer):
    """Plain values, a part, containers of parts, a value that was a part before, a property."""

    def __init__(self, units=3, *, label="a", **kwargs):
        super().__init__(**kwargs)
        self.units, self.label, self.nothing = units, label, None
        self.part = keras.layers.Dense(units)
        self.part = 2.0
        self.parts = [keras.layers.Dense(units), {"last": keras.layers.BatchNormalization()}]
        self.trainable = False

    def build(self, shape):
        self.scale = self.add_weight(shape=shape[-1:], name="scale")
        self.parts[0].build(shape)
        self.parts[1]["last"].build((*shape[:-1], self.units))

    def call(self, x, training=False):
        return self.parts[1]["last"](self.parts[0](x * self.scale), training=training)


def what_is_made():
    """A layer's attributes by type and plain value, what it tracks, its weights, its configuration."""
    keras.utils.set_random_seed(0)
    keras.backend.clear_session()
    layer = Doubled(4, label="b")
    outputs = layer(np.ones((2, 5), "float32"), training=True)
    plain = (bool, int, float, str, type(None))
    return (
        {name: x if isinstance(x, plain) else type(x) for name, x in vars(layer).items()},
        {name: [x.name for x in kept] for name, (_, kept) in layer._tracker.config.items()},
        [(weight.path, weight.shape, weight.trainable, weight.numpy().tolist()) for weight in layer.weights],
        sorted(tf.train.Checkpoint(layer)._trackable_children()["root"]._trackable_children()),
        layer.get_config(),
        layer.call_signature_parameters,
        outputs.numpy().tolist(),
    )


def test_layers_are_those_of_keras():
    with quick_graphs.made_by_tensorflow_alone():
        expected = what_is_made()
    assert what_is_made() == expected
    assert expected[0]["part"] == 2.0 and expected[0]["label"] == "b" and not expected[0]["_trainable"]
    assert len(expected[1]["layers"]) == 3


def test_variables_begin_with_the_same_values_and_change_alone():
    names = ("glorot_uniform", "he_normal", "truncated_normal", "random_uniform", "zeros", "ones")

    def values(seed):
        makers = [
            keras.initializers.get({"class_name": name, "config": {"seed": seed}}) for name in names[:4]
        ]
        makers += [keras.initializers.get(name) for name in names[4:]]
        return [keras.Variable(make, shape=(2, 3), dtype="float32") for make in makers]

    for seed in (0, 7, 2**31 - 2, 2**31 + 5, 2**32 - 1):
        with quick_graphs.made_by_tensorflow_alone():
            expected = [value.numpy() for value in values(seed)]
        one, another = values(seed), values(seed)
        for value in one:
            value.assign_add(np.ones((2, 3), "float32"))
        for value, begun, changed in zip(another, expected, one, strict=True):
            np.testing.assert_array_equal(value, begun)
            np.testing.assert_array_equal(changed, begun + 1)


def test_a_signature_is_that_of_each_function_and_of_its_method():
    def make(default):
        return lambda self, x=default: x

    class One:
        call = make(1)

    class Two:
        call = make(2)

    read = quick_graphs._remembering_signatures().signature
    for _ in range(2):
        for cls in (One, Two):
            assert read(cls.call) == inspect.signature(cls.call)
            assert read(cls().call) == inspect.signature(cls().call) != read(cls.call)
    assert read(One().call) != read(Two().call)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: tf.raw_ops.AddV2(x=x, y=tf.cast(x, "int32")),
        lambda x: tf.raw_ops.Conv2D(input=tf.cast(x, "string"), filter=x, strides=[1] * 4, padding="SAME"),
        lambda x: tf.raw_ops.Sqrt(x=tf.cast(x, "int32")),
        lambda x: tf.raw_ops.MatMul(a=x, b=x[:, :3]),
        lambda x: tf.raw_ops.Concat(concat_dim=0, values=[x]),
        lambda x: tf.raw_ops.StringToHashBucketFast(input=tf.as_string(x), num_buckets=-1),
        lambda x: tf.constant(1.5, "int32"),
        lambda x: tf.constant(7, "string"),
    ],
)
def test_what_tensorflow_refuses_is_refused_in_its_words(wrong):
    def refusal():
        with pytest.raises((TypeError, ValueError, tf.errors.OpError)) as refused:
            tf.function(wrong, autograph=False).get_concrete_function(tf.TensorSpec((3, 4)))
        return type(refused.value), str(refused.value)

    with quick_graphs.made_by_tensorflow_alone():
        expected = refusal()
    assert refusal() == expected


def test_iterators_give_the_same():
    """Shuffled, in parallel, in batches: what tf.data's own rewriting gives."""
    dataset = tf.data.Dataset.range(40).shuffle(40, seed=1, reshuffle_each_iteration=False)
    dataset = dataset.map(lambda x: x * x, tf.data.AUTOTUNE).batch(7)
    found = [x.tolist() for x in dataset.as_numpy_iterator()]
    with quick_graphs.made_by_tensorflow_alone():
        assert found == [x.tolist() for x in dataset.as_numpy_iterator()]
    assert np.sort(np.concatenate(found)).tolist() == [x * x for x in range(40)]
