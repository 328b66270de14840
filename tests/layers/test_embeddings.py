"""Token, position and segment embeddings."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_tfm import layers
from keras_tfm.training.quantization import quantize
from tests import contract
from tests.contract import Case, floats, ids
from tests.layers import reference

Embedding = layers.TokenAndPositionEmbedding


test_contract = contract.check(
    Case("learned", lambda: Embedding(11, 9, 6), {"token_ids": ids("T", 11)}, reference=reference.embedding,
         kind="look-up"),
    Case("segments_scaled_sine",
         lambda: Embedding(11, 9, 6, num_segments=2, scale=True, position=layers.SinePositionEncoding()),
         {"token_ids": ids("T", 11), "segment_ids": ids("T", 2)}, reference=reference.embedding),
    Case("learned_vectors", lambda: layers.LearnedVectors(5), {"context": floats("T", 8)},
         reference=lambda layer, context: np.tile(layer.table.numpy(), (len(context), 1, 1))),
)  # fmt: skip


def built(*arguments, **options):
    layer = Embedding(*arguments, **options)
    layer.build((None, None))
    contract.randomise(layer, seed=3)
    return layer


def test_the_sinusoids_are_added():
    layer = built(11, 9, 6, position=layers.SinePositionEncoding())
    token_ids = np.array([[3, 3, 0, 10]])
    added = layer(token_ids) - ops.take(layer.token.embeddings, token_ids, axis=0)
    np.testing.assert_allclose(added[0], reference.sines(4, 6), atol=1e-6)


def test_a_lookup_is_a_product_with_one_hot_vectors():
    layer = built(7, 3, 4)
    product = ops.one_hot(np.arange(7)[None], 7) @ layer.token.embeddings
    for token in range(7):
        expected = product[:, token] + layer.position.embedding.embeddings[0]
        np.testing.assert_allclose(layer(np.array([[token]]))[:, 0], expected, atol=1e-6)


def test_number_of_weights():
    """20,000 tokens and 600 positions of width 256: 5,273,600."""
    assert built(20_000, 600, 256).count_params() == 5_273_600
    assert built(20_000, 600, 32, position=layers.SinePositionEncoding()).count_params() == 640_000


def test_segments_default_to_the_first():
    layer = built(11, 9, 6, num_segments=2)
    token_ids = np.array([[1, 2, 3]])
    np.testing.assert_array_equal(layer(token_ids), layer(token_ids, np.zeros_like(token_ids)))
    assert np.abs(layer(token_ids) - layer(token_ids, np.ones_like(token_ids))).max() > 1e-2


def test_logits_are_the_transposed_table():
    layer = built(11, 9, 6)
    x = np.random.normal(size=(2, 3, 6)).astype("float32")
    np.testing.assert_allclose(layer.logits(x), x @ layer.token.embeddings.numpy().T, atol=1e-6)


@pytest.mark.parametrize("argument", ["token_ids", "segment_ids"])
@pytest.mark.parametrize("wrong", [-1, 11])
def test_an_id_outside_the_vocabulary_is_loud(argument, wrong):
    """It is refused by name; in a graph its vector is NaN, and its alone: never one of the table or zero."""
    layer = built(11, 9, 6, num_segments=2)
    right = {"token_ids": np.array([[1, 2]]), "segment_ids": np.array([[0, 1]])}
    given = right | {argument: np.array([[right[argument][0, 0], wrong]])}
    compiled = tf.function(lambda x: layer(**x), autograph=False, jit_compile=True)
    y = compiled({name: tf.constant(x) for name, x in given.items()})[0]
    assert np.isnan(y[1]).all()
    np.testing.assert_allclose(y[0], layer(**right)[0, 0], rtol=1e-6)
    size = {"token_ids": 11, "segment_ids": 2}[argument]
    with pytest.raises(ValueError, match=rf"`{argument}` must lie in \[0, {size}\); one of them is {wrong}"):
        layer(**given)


@pytest.mark.parametrize("wrong", [-1, 9])
def test_a_position_outside_the_table_is_refused(wrong):
    with pytest.raises(ValueError, match=rf"`positions` must lie in \[0, 9\); one of them is {wrong}"):
        built(11, 9, 6)(np.array([[1, 2]]), positions=np.array([0, wrong]))


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "bfloat16"])
def test_tables_in_8_bits_compute_in_half_precision(precision):
    layer = Embedding(11, 9, 6, num_segments=2, dtype=precision)
    model = keras.Sequential([keras.Input((None,), dtype="int32"), layer])
    expected = model(token_ids := np.array([[1, 2, 10]]))
    quantize(model)
    y = model(token_ids)
    assert y.dtype == expected.dtype == layer.compute_dtype
    np.testing.assert_allclose(ops.cast(y, "float32"), ops.cast(expected, "float32"), atol=2e-3)


def test_fractional_ids_are_refused():
    with pytest.raises(ValueError, match="`token_ids` must be integers; they are"):
        built(11, 9, 6)(np.array([[1.9]]))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_sequential_model_begins_with_it(jit_compile):
    """Keras then hands whole numbers over as floats; a fraction is loud, half precision is refused."""
    layer = Embedding(11, 9, 6, num_segments=2)
    model = keras.Sequential([layer, keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(2)])
    token_ids = np.array([[1, 2, 3], [4, 10, 0]])
    expected = model.layers[2](model.layers[1](layer(token_ids)))
    np.testing.assert_allclose(model(token_ids), expected, rtol=1e-6)
    model.compile("sgd", "mse", jit_compile=jit_compile)
    model.fit(token_ids, np.ones((2, 2)), verbose=0)
    call = tf.function(layer.call, autograph=False, jit_compile=True)
    assert np.isnan(call(tf.constant([[1.0, 1.5]]))[0]).all(-1).tolist() == [False, True]
    with pytest.raises(ValueError, match=r"`token_ids` must be integers; they are bfloat16. In a `keras.Seq"):
        keras.Sequential([Embedding(11, 9, 6, dtype="bfloat16")])(token_ids)


def test_impossible_sizes_are_refused():
    for name, sizes in (("vocabulary_size", (0, 9, 6)), ("max_length", (11, 0, 6)), ("dim", (11, 9, 0))):
        with pytest.raises(ValueError, match=f"`{name}` must be at least 1; it is 0"):
            Embedding(*sizes)
