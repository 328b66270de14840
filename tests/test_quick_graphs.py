"""Graphs that tests make with less work are those that TensorFlow makes."""

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
