"""Low-rank updates of a model's kernels: what they train, that merging and files keep the function."""

import keras
import numpy as np
import pytest

from keras_tfm.heads import Classifier
from keras_tfm.models import BERT
from keras_tfm.training.low_rank import adapt, adapted_layers, merge
from keras_tfm.training.weights import load_weights, save_weights

DIM, HIDDEN, RANK = 16, 32, 3
BATCH = {"token_ids": np.array([[2, 5, 7, 3], [2, 9, 3, 0]]), "segment_ids": np.zeros((2, 4), int)}
BATCH["padding_mask"] = BATCH["token_ids"] > 0


def make(seed=0):
    keras.utils.set_random_seed(seed)
    sizes = {"num_layers": 2, "dim": DIM, "num_heads": 2, "hidden_dim": HIDDEN, "vocabulary_size": 20}
    return Classifier(BERT.from_size("tiny", **sizes), 2)


def trained(model):
    model.compile(keras.optimizers.Adam(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(BATCH, np.array([0, 1]), epochs=3, verbose=0)
    return model


def test_only_updates_and_head_train():
    model = make()
    expected, frozen = model(BATCH), {w.path: w.numpy() for w in model.backbone.weights}
    adapt(model, RANK)
    np.testing.assert_allclose(model(BATCH), expected, atol=1e-6)
    a_block = (DIM + 3 * DIM) + (DIM + DIM) + 2 * (DIM + HIDDEN)  # q k v in one, output, two of the FFN
    pooler_and_head = DIM * DIM + DIM + DIM * 2 + 2
    assert sum(np.prod(w.shape) for w in model.trainable_weights) == 2 * RANK * a_block + pooler_and_head
    trained(model)
    for weight in model.backbone.weights:
        if weight.path in frozen and "pooler" not in weight.path:
            np.testing.assert_array_equal(weight.numpy(), frozen[weight.path])
    assert np.abs(model(BATCH) - expected).max() > 0.1


def test_merging_and_files_keep_the_function(tmp_path):
    model = make()
    weights = [weight.path for weight in model.weights]
    adapt(model, RANK)
    expected = trained(model)(BATCH, training=False)
    save_weights(model, tmp_path / "model.safetensors")
    other = make(1)
    load_weights(other, tmp_path / "model.safetensors")
    np.testing.assert_allclose(other(BATCH), expected, atol=1e-5)
    load_weights(model, tmp_path / "model.safetensors")  # into one that is adapted: its updates start anew
    np.testing.assert_allclose(model(BATCH), expected, atol=1e-5)
    assert adapted_layers(model)
    trained(model)
    expected = model(BATCH, training=False)
    merge(model)
    np.testing.assert_allclose(model(BATCH), expected, atol=1e-5)
    assert [weight.path for weight in model.weights] == weights == [w.path for w in model.trainable_weights]
    adapt(model, 1)
    np.testing.assert_allclose(model(BATCH), expected, atol=1e-5)


def test_refusals():
    model = make()
    with pytest.raises(ValueError, match="`rank` must be at least 1; it is 0"):
        adapt(model, 0)
    adapt(model, 1)
    with pytest.raises(ValueError, match="adapted already; merge it first"):
        adapt(model, 1)
    dense = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="has no blocks"):
        adapt(dense, 1)
