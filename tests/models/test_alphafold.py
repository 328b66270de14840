"""AlphaFold: the published count, passes, hidden templates and sequences, what the last pass gave."""

import numpy as np
import pytest

from keras_tfm.heads import StructureHead
from keras_tfm.models import AlphaFold, AlphaFoldConfig, InputEmbedder, RecyclingEmbedder
from keras_tfm.models.proteins.alphafold import TINY
from tests import contract
from tests.contract import Case, floats, ids, mask, randomise

SIZES = {
    **{name: 4 for name in ("msa_dim", "pair_dim", "single_dim", "extra_msa_dim", "triangle_dim")},
    **{
        name: 2
        for name in ("msa_head_dim", "pair_head_dim", "num_msa_heads", "structure_head_dim", "outer_dim")
    },
    **{name: 1 for name in ("num_layers", "num_structure_layers", "num_structure_heads", "num_angle_blocks")},
    **{
        name: 3 for name in ("target_features", "msa_features", "extra_msa_features", "num_bins", "angle_dim")
    },
    **{"template_features": 3, "template_angle_features": 3, "template_dim": 4, "template_head_dim": 2},
}
SMALL = AlphaFoldConfig(**TINY | SIZES | {"num_template_layers": 1})
INPUTS = {
    "target": floats("T", 3),
    "numbers": ids("T", 21),
    "residue_index": ids("T", 9),
    "padding_mask": mask("T"),
    "msa": floats("M", "T", 3),
    "msa_mask": mask("M", "T"),
    "extra_msa": floats("S", "T", 3),
    "extra_msa_mask": mask("S", "T"),
    "template_pairs": floats(2, "T", "T", 3),
    "template_angles": floats(2, "T", 3),
    "template_mask": mask(2),
    "template_angle_mask": mask(2, "T"),
    "previous_row": floats("T", 4),
    "previous_pair": floats("T", "T", 4),
    "previous_betas": floats("T", 3),
}
BIASES = ("pair_bias/norm/beta", "pair_bias/bias")  # add the same to all scores
WHOLE = Case(
    "AlphaFold",
    lambda: AlphaFold(SMALL),
    INPUTS,
    attends=True,
    chooses=True,  # places of atoms are in float32
    without_effect=BIASES,
    deviation=0.2,
)
test_contract = pytest.mark.slow(contract.check_family(WHOLE))  # seconds; FoldingTrunk is quicker

EMBEDDED = {"target": floats("T", 3), "msa": floats("M", "T", 5), "index": ids("T", 9)}
CHAINS = {**EMBEDDED, "chains": contract.Spec(("T", 3), "int32", 2)}
LAST = {"row": floats("T", 4), "pair": floats("T", "T", 5), "positions": floats("T", 3)}
test_contract_of_embedders = contract.check_family(
    Case("InputEmbedder", lambda: InputEmbedder(4, 5, 2), EMBEDDED),
    Case("InputEmbedder-chains", lambda: InputEmbedder(4, 5, 2, 1), CHAINS),
    Case("RecyclingEmbedder", lambda: RecyclingEmbedder(4, 0.3, 3.0), LAST),
)


# With the heads of the first of the authors' models, as this package composes it.
def test_parameters_of_the_published_size(no_allocation):
    one = {"num_layers": 1, "num_extra_layers": 1, "num_structure_layers": 1}
    model = AlphaFold.from_size("model_1", **one)
    block, extra = (model.get_layer(name).count_params() for name in ("block_0", "extra_block_0"))
    backbone = model.count_params() + 47 * block + 3 * extra
    heads = StructureHead(model).count_params() - model.count_params()
    of_error = 64 * 129  # not in the first five models
    assert (backbone, backbone + heads - of_error) == (93_127_660, 93_229_082)


def draw(seed=0, size=2):
    rng = np.random.default_rng(seed)
    lengths = {"T": 5, "M": 3, "S": 4}
    return {name: spec.draw(rng, size, lengths) for name, spec in INPUTS.items()}


@pytest.fixture(scope="module")
def model():
    model = AlphaFold(SMALL)
    randomise(model, 1)
    return model


@pytest.mark.slow
def test_two_passes_by_hand(model):
    inputs = {name: x for name, x in draw().items() if not name.startswith("previous")}
    start = {name: np.asarray(x) for name, x in model.start(inputs["numbers"]).items()}
    first = model({**inputs, **start})
    ends = {"previous_row": "row_output", "previous_pair": "pair_output", "previous_betas": "betas"}
    second = model({**inputs, **{name: np.asarray(first[key]) for name, key in ends.items()}})
    for count, expected in ((0, first), (1, second)):
        np.testing.assert_allclose(model.fold(inputs, count)["positions"], expected["positions"], atol=1e-5)
    glycine = inputs["numbers"] == 7
    positions, betas = np.asarray(first["positions"])[:, -1], np.asarray(first["betas"])
    np.testing.assert_array_equal(betas, np.where(glycine[..., None], positions[:, :, 1], positions[:, :, 4]))


def test_templates_and_sequences_that_are_hidden(model):
    inputs = draw()
    inputs["template_mask"][:] = [[True, False], [False, False]]
    inputs["template_angle_mask"] &= inputs["template_mask"][..., None]
    inputs["msa_mask"][:, 2], inputs["extra_msa_mask"][:, 1] = False, False
    expected = model(inputs)
    changed = {name: x.copy() for name, x in inputs.items()}
    for name in ("template_pairs", "template_angles"):
        changed[name][0, 1], changed[name][1] = 9, 9
    changed["msa"][:, 2], changed["extra_msa"][:, 1] = 9, 9
    outputs = model(changed)
    for name in ("sequence_output", "pair_output", "positions"):
        np.testing.assert_allclose(outputs[name], expected[name], rtol=1e-4, atol=1e-4)
    changed["template_pairs"][0, 0] += 1
    assert np.abs(np.asarray(model(changed)["pair_output"]) - expected["pair_output"]).max() > 1e-3


def test_classes_of_chains_by_hand():
    embedder = InputEmbedder(1, 1, 2, 1)
    index, chains = np.array([[0, 1, 0]]), np.array([[[0, 0, 0], [0, 0, 0], [1, 0, 1]]])
    zero = np.zeros((1, 3, 1), "float32"), np.zeros((1, 1, 3, 1), "float32")
    embedder(*zero, index, chains)
    kernel = np.zeros((11, 1), "float32")  # 6 of distance, 1 of the entity, 4 of the copy
    kernel[:6, 0], kernel[6], kernel[7:, 0] = np.arange(6), 10, 100 * np.arange(4)
    embedder.position.kernel.assign(kernel)
    pair = np.asarray(embedder(*zero, index, chains)[1])[0, ..., 0]
    # i - j + 2, or 5 for another chain; one entity; copies i - j + 1.
    assert pair.tolist() == [[112, 111, 15], [113, 112, 15], [215, 215, 112]]
    with pytest.raises(ValueError, match=r"With `chain_limit` 1 .* takes `chains`"):
        embedder(*zero, index)


def test_distances_of_the_last_pass_by_hand():
    layer = RecyclingEmbedder(3, 2.0, 4.0)  # 2 to 3, 3 to 4, and more than 4
    inputs = np.zeros((1, 4, 2), "float32"), np.zeros((1, 4, 4, 1), "float32")
    places = np.array([[[0, 0, 0], [2.5, 0, 0], [3.0, 0, 0], [50, 0, 0]]], "float32")
    layer(*inputs, places)
    layer.distance.kernel.assign([[1], [2], [3]])
    pair = np.asarray(layer(*inputs, places)[1])[0, ..., 0]
    # 3 lies on an edge and in no bin
    assert pair.tolist() == [[0, 1, 0, 3], [1, 0, 0, 3], [0, 0, 0, 3], [3, 3, 3, 0]]
