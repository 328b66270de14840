"""Low-rank updates of a model's kernels: what they train, that merging and files keep the function."""

import gc
import random

import keras
import numpy as np
import pytest

from keras_tfm.heads import Classifier
from keras_tfm.models import BERT
from keras_tfm.training import freeze
from keras_tfm.training.low_rank import adapted, adapted_layers
from keras_tfm.training.weights import load_weights, save_weights

DIM, HIDDEN, RANK = 16, 32, 3
BATCH = {"token_ids": np.array([[2, 5, 7, 3], [2, 9, 3, 0]]), "segment_ids": np.zeros((2, 4), int)}
BATCH["padding_mask"] = BATCH["token_ids"] > 0


def make(seed=0):
    keras.utils.set_random_seed(seed)
    sizes = {"num_layers": 2, "dim": DIM, "num_heads": 2, "intermediate_dim": HIDDEN, "vocabulary_size": 20}
    return Classifier(BERT.from_size("tiny", **sizes), 2)


def trained(model):
    model.compile(keras.optimizers.Adam(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(BATCH, np.array([0, 1]), epochs=3, verbose=0)
    return model


def test_only_updates_and_head_train():
    model = make()
    expected, frozen = model(BATCH), {w.path: w.numpy() for w in model.backbone.weights}
    with adapted(model, RANK):
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
    with adapted(model, RANK):
        expected = trained(model)(BATCH, training=False)
        save_weights(model, tmp_path / "model.safetensors")
        other = make(1)
        load_weights(other, tmp_path / "model.safetensors")
        np.testing.assert_allclose(other(BATCH), expected, atol=1e-5)
        load_weights(model, tmp_path / "model.safetensors")  # its updates start anew
        np.testing.assert_allclose(model(BATCH), expected, atol=1e-5)
        assert adapted_layers(model)
        trained(model)
        expected = model(BATCH, training=False)
    np.testing.assert_allclose(model(BATCH), expected, atol=1e-5)
    assert [weight.path for weight in model.weights] == weights == [w.path for w in model.trainable_weights]
    with adapted(model, 1):
        np.testing.assert_allclose(model(BATCH), expected, atol=1e-5)


def test_what_the_caller_froze_stays_frozen_however_the_block_ends():
    model = make()
    freeze(model, 1)
    before = [(weight.path, weight.trainable) for weight in model.weights]
    with pytest.raises(ZeroDivisionError), adapted(model, RANK):
        raise ZeroDivisionError
    assert [(weight.path, weight.trainable) for weight in model.weights] == before
    assert not adapted_layers(model)


def test_a_seed_draws_the_updates_and_no_global_generator():
    model, before = make(), (random.getstate(), np.random.get_state()[1].copy())
    drawn = []
    for seed in (0, 0, 1):
        with adapted(model, RANK, seed):
            drawn.append([layer.lora_kernel_a.numpy() for layer in adapted_layers(model)])
    assert all((a == b).all() and (a != c).any() for a, b, c in zip(*drawn, strict=True))
    assert random.getstate() == before[0] and (np.random.get_state()[1] == before[1]).all()


def test_no_layer_has_all_garbage_collected(monkeypatch):
    """Keras does so for each variable that is deleted: two for every kernel, 0.2 s each."""
    model = make()
    collected = []
    monkeypatch.setattr(gc, "collect", lambda *arguments: collected.append(arguments))
    with adapted(model, RANK):
        pass
    model.quantize("int8", filters="query_key_value")
    assert not collected


def test_refusals():
    model = make()
    for rank in (0, DIM + 1, 100_000):
        message = f"`rank` must be 1 to {DIM}, the smaller side of the largest kernel .*; it is {rank}"
        with pytest.raises(ValueError, match=message), adapted(model, rank):
            pass
    with adapted(model, DIM):
        assert adapted_layers(model)
    with adapted(model, 1), pytest.raises(ValueError, match="adapted already"), adapted(model, 1):
        pass
    dense = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="has no blocks"), adapted(dense, 1):
        pass
