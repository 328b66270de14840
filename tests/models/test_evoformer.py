"""The Evoformer: the counts of its blocks, what padding hides, a new block; its numbers are compared by
tests.parity.golden.
"""

import dataclasses

import numpy as np
import pytest

from keras_tfm.models import Evoformer, EvoformerConfig
from keras_tfm.models.proteins.evoformer import evoformer_block
from tests import contract
from tests.contract import Case, floats, mask, randomise

SMALL = EvoformerConfig(8, 6, 5, 1, 2, 3, 2, 3, 3, 4, 2)
INPUTS = {
    "msa": floats("M", "T", 8),
    "pair": floats("T", "T", 6),
    "msa_mask": mask("M", "T"),
    "pair_mask": mask("T", "T"),
}
BETA = ("pair_bias/norm/beta",)  # adds the same to all scores of a head
test_contract = contract.check_family(
    Case("Evoformer", lambda: Evoformer(SMALL), INPUTS, attends=True, without_effect=BETA)
)


# Jumper et al. 2021, supplement: blocks of 256 and 128, and of 64 for the extra sequences.
def test_parameters_of_the_published_blocks(no_allocation):
    config = Evoformer.sizes["alphafold"]
    assert evoformer_parameters(config) == 1_829_952
    extra = dataclasses.replace(config, msa_dim=64, msa_head_dim=8)
    assert evoformer_parameters(extra, global_columns=True) == 701_312


def evoformer_parameters(config, **options):
    block = evoformer_block(config, "block", **options)
    block.build((None, None, None, config.msa_dim), (None, None, None, config.pair_dim))
    return block.count_params()


def draw(sequences=4, length=5, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "msa": rng.normal(size=(1, sequences, length, 8)).astype("float32"),
        "pair": rng.normal(size=(1, length, length, 6)).astype("float32"),
        "msa_mask": np.ones((1, sequences, length), "bool"),
        "pair_mask": np.ones((1, length, length), "bool"),
    }


@pytest.fixture(scope="module")
def model():
    model = Evoformer(SMALL)
    randomise(model, 1)
    return model


def test_hidden_sequences_and_residues_change_nothing(model):
    inputs, wide = draw(), draw(7, 8, seed=1)
    for name, x in inputs.items():
        corner = tuple(slice(n) for n in x.shape)
        wide[name] = wide[name] * (0 if "mask" in name else 10)
        wide[name][corner] = x
    outputs, padded = model(inputs), model(wide)
    for name, y in outputs.items():
        corner = tuple(slice(n) for n in y.shape)
        np.testing.assert_allclose(np.asarray(padded[name])[corner], y, rtol=1e-4, atol=1e-5)


def test_sequences_after_the_first_have_no_order(model):
    inputs, order = draw(), [0, 3, 1, 2]
    outputs = model(inputs)
    turned = model({**inputs, "msa": inputs["msa"][:, order]})
    np.testing.assert_allclose(turned["sequence_output"], outputs["sequence_output"], rtol=1e-4, atol=1e-5)
    expected = np.asarray(outputs["msa_output"])[:, order]
    np.testing.assert_allclose(turned["msa_output"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("global_columns", [False, True])
def test_a_new_block_is_the_identity(global_columns):
    inputs = draw()
    outputs = evoformer_block(SMALL, "block", global_columns)(inputs["msa"], inputs["pair"])
    for y, x in zip(outputs, (inputs["msa"], inputs["pair"]), strict=True):
        np.testing.assert_array_equal(y, x)


def test_dropout_is_shared_along_the_paper_axes():
    block = evoformer_block(SMALL, "block")
    axes = {name: part.axis for name, part in block.pair.parts.items() if part.dropout}
    assert axes == {"outgoing": 1, "incoming": 1, "starting": 1, "ending": 2}
    rates = [part.dropout for part in (*block.sequence.parts.values(), *block.pair.parts.values())]
    assert rates == [0.15, 0, 0, 0.25, 0.25, 0.25, 0.25, 0]
