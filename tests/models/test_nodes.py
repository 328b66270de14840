"""Families as graphs of blocks: clones, parts of them, and files keep the weights, shared ones too."""

import keras
import numpy as np
import pytest

import keras_tfm
from keras_tfm.models import ALBERT, BERT, GPT2, T5, DeBERTa, Swin, Transformer, ViT
from tests import contract

TEXT = {"vocabulary_size": 9, "dim": 8, "num_heads": 2, "intermediate_dim": 6, "num_layers": 3}
IMAGE = {"image_size": 8, "patch_size": 2, "dim": 8}
FAMILIES = {
    BERT: lambda: BERT.from_size("tiny", **TEXT),
    ALBERT: lambda: ALBERT.from_size("base", embedding_dim=4, num_groups=2, group_size=1, **TEXT),
    DeBERTa: lambda: DeBERTa.from_size("v2-xlarge", **TEXT),
    GPT2: lambda: GPT2.from_size("tiny", **TEXT),
    T5: lambda: T5.from_size("tiny", key_dim=4, **TEXT),
    Transformer: lambda: Transformer.from_size("tiny", **TEXT),
    ViT: lambda: ViT.from_size("tiny", intermediate_dim=6, num_layers=3, num_heads=2, **IMAGE),
    Swin: lambda: Swin.from_size("tiny", depths=(1, 2), num_heads=(1, 2), window=2, **IMAGE),
}


@pytest.fixture(params=FAMILIES, ids=lambda family: family.__name__)
def model(request):
    model = FAMILIES[request.param]()
    contract.randomise(model, seed=1)
    return model


def batch(model):
    rng = np.random.default_rng(0)
    if "images" in model.input:
        return {"images": rng.normal(size=(2, 8, 8, 3)).astype("float32")}
    ids = rng.integers(1, 9, (2, 5))
    return {name: np.ones_like(ids) if "mask" in name else ids % 2 if "segment" in name else ids
            for name in model.input}  # fmt: skip


def flat(outputs):
    return [np.asarray(y) for y in keras.tree.flatten(outputs)]


@pytest.mark.slow
def test_a_clone_and_a_file_have_the_same_weights(model, tmp_path):
    inputs, paths = batch(model), [weight.path for weight in model.weights]
    clone = keras.models.clone_model(model)
    assert [weight.path for weight in clone.weights] == paths
    clone.set_weights(model.get_weights())
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert [weight.path for weight in again.weights] == paths
    for other in (clone, again):
        for actual, expected in zip(flat(other(inputs)), flat(model(inputs)), strict=True):
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.slow
def test_every_state_can_be_had(model):
    """In and out of every block; what a part of the model needs is all that it holds."""
    inputs = batch(model)
    states = keras_tfm.Model(model.input, model.hidden_states)(inputs)
    for stack, blocks in model.blocks.items():
        applied = model.config.num_layers if type(model) is ALBERT else len(blocks)
        assert len(states[stack]) == applied + 1
        assert all(np.isfinite(y).all() for y in flat(states[stack]))
        first = keras_tfm.Model(model.input, model.hidden_states[stack][0])
        held = {weight.path for weight in first.weights}
        assert not any(weight.path in held for weight in blocks[-1].weights)


def test_blocks_have_the_names_of_their_places(model):
    names = [block.name for blocks in model.blocks.values() for block in blocks]
    assert len(set(names)) == len(names)
    for name in names:
        assert model.get_layer(name).name == name and name.rpartition("_")[2].isdigit()
