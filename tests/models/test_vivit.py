"""ViViT: its published sizes, its tubelets, its factorised encoder, its folders."""

import dataclasses
import math

import keras
import numpy as np
import pytest

from keras_tfm.convert import save_huggingface
from keras_tfm.heads import Classifier
from keras_tfm.models import ViViT, ViViTConfig
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models.folders import check_both_ways

SMALL = ViViTConfig(
    num_frames=4,
    image_size=(4, 6),
    tubelet_size=(2, 2, 3),
    num_channels=1,
    num_layers=1,
    dim=8,
    num_heads=2,
    intermediate_dim=12,
)
FACTORIZED = dataclasses.replace(SMALL, num_temporal_layers=1)
VIDEOS = {"videos": floats(4, 4, 6, 1)}

test_contract = contract.check_family(
    Case("ViViT", lambda: ViViT(SMALL), VIDEOS, attends=True),
    Case("factorised", lambda: ViViT(FACTORIZED), VIDEOS, attends=True),
)


# Model 1 with Kinetics' 400 classes: transformers' count. Model 2: 115.1 M in Arnab et al. 2021, table 2.
@pytest.mark.parametrize(("size", "expected"), [("B/16x2", 88_954_000), ("B/16x2-FE", 115_062_928)])
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    model = Classifier(ViViT.from_size(size), 400)
    assert sum(math.prod(weight.shape) for weight in model.weights) == expected


def draw():
    return np.random.default_rng(0).random((3, 4, 4, 6, 1), "float32")


def test_outputs():
    model = ViViT(SMALL)
    outputs = model({"videos": draw()})
    assert outputs["sequence_output"].shape == (3, 9, 8)  # 2 moments of 2 x 2 tubelets
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    model = ViViT(FACTORIZED)
    assert model({"videos": draw()})["sequence_output"].shape == (3, 3, 8)
    assert {stack: [x.shape[1] for x in states] for stack, states in model.hidden_states.items()} == {
        "encoder": [5, 5],
        "temporal": [3, 3],
    }
    names = {stack: [block.name for block in blocks] for stack, blocks in model.blocks.items()}
    assert names == {"encoder": ["block_0"], "temporal": ["temporal_block_0"]}


@pytest.mark.parametrize(("config", "is_apart"), [(SMALL, False), (FACTORIZED, True)])
def test_only_a_factorised_encoder_keeps_moments_apart(config, is_apart):
    """A change of the second moment reaches the first one's tokens where all attend to all."""
    model = ViViT(config)
    randomise(model, 1)
    states = keras.Model(model.input, model.hidden_states["encoder"][-1])
    videos = draw()[:1]
    other = videos.copy()
    other[:, 2:] += 1
    y, changed = (np.asarray(states({"videos": x})) for x in (videos, other))
    first = np.s_[0] if is_apart else np.s_[0, 1:5]
    assert (np.abs(y - changed)[first].max() == 0) == is_apart
    assert np.abs(y - changed).max() > 0


def test_the_order_of_moments_matters_by_positions_alone():
    model = ViViT(FACTORIZED)
    randomise(model, 1)
    videos = draw()
    swapped = np.concatenate([videos[:, 2:], videos[:, :2]], axis=1)
    position = model.get_layer("temporal_position").embedding
    pooled = [np.asarray(model({"videos": x})["pooled_output"]) for x in (videos, swapped)]
    assert np.abs(pooled[0] - pooled[1]).max() > 1e-3
    position.embeddings.assign(np.zeros(position.embeddings.shape))
    pooled = [np.asarray(model({"videos": x})["pooled_output"]) for x in (videos, swapped)]
    np.testing.assert_allclose(*pooled, atol=1e-5)


@pytest.mark.parametrize("kind", ["pooler", "classifier"])
def test_folders_of_transformers_both_ways(kind, tmp_path):
    model = ViViT(dataclasses.replace(SMALL, pooler=kind == "pooler"))
    model = Classifier(model, 5) if kind == "classifier" else model
    check_both_ways(model, tmp_path / "folder")


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match="Videos of 5 frames are not divisible into tubelets of 2"):
        ViViT(dataclasses.replace(SMALL, num_frames=5))
    with pytest.raises(ValueError, match="`tubelet_size` must be a list of 3"):
        ViViTConfig(tubelet_size=(2, 16))
    with pytest.raises(ValueError, match="VivitModel computes only `num_temporal_layers` None; it is 1"):
        save_huggingface(ViViT(FACTORIZED), tmp_path / "folder")
