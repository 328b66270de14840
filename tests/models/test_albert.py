"""ALBERT: the contract, the paper's sizes, what is shared."""

import dataclasses
import itertools

import keras
import numpy as np
import pytest

import keras_tfm
from keras_tfm.heads import MaskedLM
from keras_tfm.models import ALBERT, ALBERTConfig
from tests import contract
from tests.contract import Case, ids, mask

SIZES = {"num_layers": 3, "num_groups": 2, "group_size": 1, "dim": 8, "num_heads": 2, "intermediate_dim": 12}
IDS = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
TINY = ALBERTConfig(11, embedding_dim=5, max_length=16, **SIZES)
TWO_BLOCKS = dataclasses.replace(TINY, num_layers=1, num_groups=1, group_size=2)
INPUTS = {"token_ids": ids("T", 11), "padding_mask": mask("T"), "segment_ids": ids("T", 2)}

test_contract = contract.check_family(
    Case("ALBERT", lambda: ALBERT(TINY), INPUTS, attends=True),
    Case("pre-training", lambda: MaskedLM(ALBERT(TWO_BLOCKS), next_sentence=True, dropout=0.1),
         {**INPUTS, "mask_positions": ids("M", 1)}, attends=True,
         tied=lambda model: (model.get_layer("mlm").embedding.token, model.backbone.embedding.token)),
)  # fmt: skip


# Lan et al. 2020, table 1: 12 M, 18 M, 60 M and 235 M.
@pytest.mark.parametrize(
    ("size", "count"),
    [("base", 11_683_584), ("large", 17_683_968), ("xlarge", 58_724_864), ("xxlarge", 222_595_584)],
)
def test_parameters_of_the_published_sizes(size, count, no_allocation):
    assert contract.num_parameters(ALBERT.from_size(size).trainable_weights) == count


def test_one_block_is_applied_again_and_again():
    model = ALBERT(dataclasses.replace(TINY, num_layers=3, num_groups=1, group_size=1))
    contract.randomise(model, seed=0)
    assert len([weight for weight in model.weights if "query_key_value/kernel" in weight.path]) == 1
    (block,) = model.blocks["encoder"]
    states = keras_tfm.Model(model.input, model.hidden_states["encoder"])({"token_ids": IDS})
    for before, after in itertools.pairwise(states):
        np.testing.assert_allclose(block(before), after, atol=1e-6)
    assert len(states) == 4


@pytest.mark.parametrize(
    ("num_layers", "num_groups", "expected"),
    [(4, 2, [0, 0, 1, 1]), (3, 2, [0, 0, 1]), (3, 3, [0, 1, 2]), (5, 2, [0, 0, 0, 1, 1])],
)
def test_groups_take_turns(num_layers, num_groups, expected):
    model = ALBERT(dataclasses.replace(TINY, num_layers=num_layers, num_groups=num_groups))
    contract.randomise(model, seed=0)
    states = keras_tfm.Model(model.input, model.hidden_states["encoder"])({"token_ids": IDS})
    for i, (before, after) in enumerate(itertools.pairwise(states)):
        np.testing.assert_allclose(model.blocks["encoder"][expected[i]](before), after, atol=1e-6)
    assert len(states) == num_layers + 1


def test_impossible_groups_are_refused():
    with pytest.raises(ValueError, match="`num_groups` must lie in 1 to `num_layers`, 3; it is 4"):
        ALBERT(dataclasses.replace(TINY, num_groups=4))


def test_the_padding_mask_stays_inside():
    """Keras would carry a layer's argument `mask` on, into the losses of what is made of its outputs."""
    model = MaskedLM(ALBERT(TINY))
    batch = {"token_ids": np.array([[1, 2, 3]]), "padding_mask": np.array([[True, True, False]])}
    logits = model({**batch, "mask_positions": np.array([[1]])})
    assert getattr(logits, "_keras_mask", None) is None


def test_it_recomputes_block_by_block():
    """As one, the backward pass would hold what all blocks together make."""
    with keras.RematScope("full"):
        model = ALBERT(dataclasses.replace(TINY, group_size=2))
    blocks = model.blocks["encoder"]
    x = np.zeros((1, 2, 8))
    assert len(blocks) == 4
    assert all(block.rematerialized_call(block.call, x) is not block.call for block in blocks)
