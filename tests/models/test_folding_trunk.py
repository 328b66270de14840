"""ESMFold's trunk: its count, passes by hand, one residue; its numbers are compared by
tests.parity.golden.
"""

import numpy as np
import pytest
from keras import ops

from keras_tfm.layers.residues import residues
from keras_tfm.models import FoldingTrunk, FoldingTrunkConfig, PairPositionTable
from keras_tfm.models.proteins.folding_trunk import VirtualBetas
from tests import contract
from tests.contract import Case, floats, ids, mask, randomise

SMALL = FoldingTrunkConfig(
    dim=8,
    head_dim=4,
    pair_dim=6,
    pair_head_dim=3,
    num_layers=1,
    expansion=2,
    position_limit=3,
    num_bins=5,
    structure_dim=6,
    structure_pair_dim=4,
    num_structure_layers=1,
    num_structure_heads=2,
    structure_head_dim=3,
    num_query_points=2,
    num_value_points=2,
    num_transitions=1,
    angle_dim=5,
    num_angle_blocks=1,
)
INPUTS = {
    "sequence": floats("T", 8),
    "pair": floats("T", "T", 6),
    "numbers": ids("T", 21),
    "residue_index": ids("T", 9),
    "padding_mask": mask("T"),
    "previous_sequence": floats("T", 8),
    "previous_pair": floats("T", "T", 6),
    "previous_betas": floats("T", 3),
}
WITHOUT_EFFECT = ("pair_bias/norm/beta", "pair_bias/bias")
test_contract = contract.check_family(
    Case(
        "FoldingTrunk",
        lambda: FoldingTrunk(SMALL),
        INPUTS,
        attends=True,
        chooses=True,  # places of atoms are in float32
        without_effect=WITHOUT_EFFECT,
    )
)


def test_parameters_of_the_published_size(no_allocation):
    model = FoldingTrunk.from_size("esmfold", num_layers=1, num_structure_layers=1)  # these share weights
    assert model.count_params() + 47 * model.get_layer("block_0").count_params() == 688_548_524


def draw(length=5, size=2, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "sequence": rng.normal(size=(size, length, 8)).astype("float32"),
        "pair": rng.normal(size=(size, length, length, 6)).astype("float32"),
        "numbers": rng.integers(0, 21, (size, length)),
        "residue_index": np.tile(np.arange(length), (size, 1)),
        "padding_mask": np.ones((size, length), "bool"),
    }


@pytest.fixture(scope="module")
def model():
    model = FoldingTrunk(SMALL)
    randomise(model, 1)
    return model


def test_two_passes_by_hand(model):
    inputs = draw()
    start = {name: np.asarray(x) for name, x in model.start(inputs["numbers"]).items()}
    assert {name: x.shape for name, x in start.items()} == {
        "previous_sequence": (2, 5, 8),
        "previous_pair": (2, 5, 5, 6),
        "previous_betas": (2, 5, 3),
    }
    assert all((x == 0).all() for x in start.values())
    inputs = {name: ops.convert_to_tensor(x) for name, x in inputs.items()}
    first = model(inputs | model.start(inputs["numbers"]))
    ends = {"sequence": "sequence_output", "pair": "pair_output", "betas": "betas"}
    second = model(inputs | {f"previous_{name}": first[key] for name, key in ends.items()})
    for count, expected in ((0, first), (1, second)):
        np.testing.assert_array_equal(model.fold(inputs, count)["positions"], expected["positions"])
    assert np.abs(np.asarray(second["positions"]) - first["positions"]).max() > 1e-2
    with pytest.raises(ValueError, match="`num_recycles` must be at least 0; it is -1"):
        model.fold(inputs, -1)


def test_one_residue(model):
    outputs = model.fold(draw(length=1), 1)
    assert all(np.isfinite(np.asarray(x, "float32")).all() for x in outputs.values())
    assert outputs["positions"].shape == (2, 1, 1, 14, 3)


def test_positions_along_the_chain():
    layer = PairPositionTable(3, limit=2)
    layer(np.array([[0]]))
    layer.embedding.embeddings.assign(np.arange(6)[:, None] * np.ones((1, 3)))
    rows = np.asarray(layer(np.array([[0, 1, 5]])))[0, :, :, 0]
    assert rows.tolist() == [[3, 4, 5], [2, 3, 5], [1, 1, 3]]
    rows = layer(np.array([[0, 1, 5]]), np.array([[True, True, False]]))
    assert np.asarray(rows)[0, :, :, 0].tolist() == [[3, 4, 0], [2, 3, 0], [0, 0, 0]]


def test_cb_lies_where_the_table_has_it():
    """Within 0.1 angstrom of the mean places of all residues that have one; the ring of proline bends it."""
    tables = residues()
    places = np.asarray(VirtualBetas()(tables.positions[None, :20]))[0]
    has_one = np.array([i for i in range(20) if i not in (7, 14)])
    assert np.linalg.norm(places[has_one] - tables.positions[has_one, 4], axis=-1).max() < 0.1


@pytest.mark.parametrize(("name", "value"), [("head_dim", 3), ("pair_head_dim", 4)])
def test_refusals(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a divisor of"):
        FoldingTrunkConfig(8, pair_dim=6, **{"head_dim": 4, "pair_head_dim": 3} | {name: value})
