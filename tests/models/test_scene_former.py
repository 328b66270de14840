"""SceneFormer: what its networks read of rooms, causality, rooms of networks that learnt a rule."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm.models import SceneFormer, SceneFormerConfig
from keras_tfm.models.pictures.scene_former import make_rooms, room_sequences
from tests import contract
from tests.contract import Case, floats, ids

SIZES = {"num_layers": 1, "dim": 8, "num_heads": 2, "intermediate_dim": 12}
TABLES = {"category": 6, "location": 7, "current_category": 6}
FLAT = SceneFormerConfig(TABLES, "location", period=3, context_dim=4, max_length=16, **SIZES)
INPUTS = {name: ids("T", 3) for name in TABLES}

test_contract = contract.check_family(
    Case("SceneFormer", lambda: SceneFormer(FLAT), {**INPUTS, "context": floats("S", 4)},
         attends=True, causal="T"),
)  # fmt: skip


@pytest.mark.parametrize("size", ["category", "orientation", "location", "size"])
def test_parameters_of_the_published_sizes(size, no_allocation):
    model = SceneFormer.from_size(size)
    block = 4 * 256 * 257 + 2 * 256 * 257 + 4 * 256
    tables, period = model.config.tables, 3 if size in ("location", "size") else 0
    rows = sum(tables.values()) + period + (122 if period else 42)
    expected = 8 * block + 256 * rows + 257 * (tables[size] - 1)
    assert contract.num_parameters(model.weights) == expected


ROOM = {
    "category": np.array([[2, 0]]),
    "orientation": np.array([[4, 5]]),
    "location": np.array([[[1, 2, 3], [0, 1, 2]]]),
    "size": np.array([[[3, 1, 2], [2, 3, 0]]]),
}


def test_what_is_read_of_a_room():
    tables = {"category": 6, "x": 7, "z": 7, "width": 7, "current_category": 6, "current_height": 7}
    config = SceneFormerConfig(tables)
    sequences = {name: x.tolist() for name, x in room_sequences(config, ROOM).items()}
    assert sequences == {
        "category": [[5, 2, 0]],
        "x": [[6, 1, 0]],
        "z": [[6, 3, 2]],
        "width": [[6, 3, 2]],
        "current_category": [[2, 0, 3]],
        "current_height": [[2, 0, 4]],
    }
    sequences = {name: x.tolist() for name, x in room_sequences(FLAT, ROOM).items()}
    assert sequences == {
        "category": [[5, 2, 2, 2, 0, 0, 0]],
        "location": [[6, 1, 2, 3, 0, 1, 2]],
        "current_category": [[2, 2, 2, 0, 0, 0, 3]],
    }


def test_what_is_padded_is_hidden():
    model, padding = SceneFormer(FLAT), FLAT.pad_id
    x = {name: np.array([[1, 2, 0, 1]]) for name in TABLES}
    x["location"][0, 1] = padding
    context = np.ones((1, 2, 4), "float32")
    before = np.asarray(model({**x, "context": context})["logits"])
    x["category"][0, 1] = 0
    after = np.asarray(model({**x, "context": context})["logits"])
    np.testing.assert_allclose(after[:, [0, 2, 3]], before[:, [0, 2, 3]], atol=1e-6)
    assert np.abs(after - before)[:, 1].max() > 1e-3


def test_made_rooms_follow_the_rule_that_was_learnt():
    """Categories 0, 1, 2 in this order, then stop; an object's orientation is its category + 1."""
    keras.utils.set_random_seed(0)
    rooms = {"category": np.array([[0, 1, 2, 4]] * 8), "orientation": np.array([[1, 2, 3, 4]] * 8)}
    common = {"max_length": 6, "dropout": 0.0, **SIZES}
    networks = []
    for name, more in (("category", {}), ("orientation", {"current_category": 6})):
        config = SceneFormerConfig({"category": 6, "orientation": 7, **more}, name, **common)
        model, sequences = SceneFormer(config), room_sequences(config, rooms)
        inputs = {table: x[:, :-1] for table, x in sequences.items()}
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=config.pad_id)
        model.compile(keras.optimizers.Adam(0.03), {"logits": loss})
        repeated = {table: np.tile(x, (40, 1)) for table, x in inputs.items()}
        model.fit(repeated, {"logits": np.tile(sequences[name][:, 1:], (40, 1))}, batch_size=8, verbose=0)
        networks.append(model)
    places = SceneFormer(dataclasses.replace(FLAT, context_dim=0))  # which learnt nothing
    made = make_rooms([*networks, places], 3, 5, temperature=0.1)
    assert made["category"].tolist() == [[0, 1, 2, 4, 3]] * 3
    assert made["orientation"].tolist() == [[1, 2, 3, 4, 4]] * 3
    assert made["location"].shape == (3, 5, 3)
    assert made["location"][:, :3].max() < FLAT.pad_id
    assert (made["location"][:, 3:] == FLAT.pad_id).all()


def test_refusals():
    with pytest.raises(ValueError, match="`predicts` must be one of the tables"):
        dataclasses.replace(FLAT, predicts="size")
    with pytest.raises(ValueError, match="`tables` must be a number of tokens from 4 on"):
        SceneFormerConfig({"category": 3})
