"""The enhanced mask decoder: the contract, its definition, and the effect of absolute positions."""

import types

import numpy as np
import pytest

import keras_tfm
from keras_tfm.heads import EnhancedMaskedLM, MaskedLM
from keras_tfm.models import BERT, DeBERTa
from tests import contract
from tests.contract import Case, ids
from tests.layers import test_disentangled as attention
from tests.models.test_bert import TINY
from tests.models.test_deberta import ALL, INPUTS, ONE_BLOCK, V1, V2, V3

WITH_POSITIONS = {**INPUTS, "mask_positions": ids("M", 1)}  # 0 alone is inside whatever the length

test_contract = contract.check(
    Case("EnhancedMaskedLM", lambda: EnhancedMaskedLM(DeBERTa(ONE_BLOCK)), WITH_POSITIONS, attends=True,
         tied=lambda model: (model.get_layer("mlm").embedding.token, model.backbone.embedding.token)),
)  # fmt: skip


def model_of(config, **options):
    model = EnhancedMaskedLM(DeBERTa(config), **options)
    contract.randomise(model, seed=0)
    return model


@pytest.mark.parametrize("config", [V1, V2, V3, ALL], ids=["v1", "v2", "v3", "every option"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_it_is_the_last_block_asked_again_about_the_states_before_it(config, num_layers):
    """Section 3.2, with the attention pair by pair in float64."""
    model = model_of(config, num_layers=num_layers)
    backbone = model.backbone
    batch = {
        "token_ids": np.array([[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]]),
        "padding_mask": np.array([[True] * 5, [True] * 3 + [False] * 2]),
    }
    batch |= {"segment_ids": np.zeros((2, 5), int)} if "segment_ids" in backbone.input else {}
    mask = batch["padding_mask"]
    # The last product before the head: what its dense layer is called on, at every position.
    decoded = keras_tfm.Model(model.input, model.get_layer("mlm").input[0])
    states = keras_tfm.Model(backbone.input, backbone.hidden_states["encoder"])(batch)
    hidden, block = np.asarray(states[-2]), backbone.blocks["encoder"][-1]
    query = hidden + model.get_layer("decoder_position").embedding.embeddings.numpy()[:5]
    distances = backbone.get_layer("distances")
    part = types.SimpleNamespace(attention=block.attention.branch, distances=distances)
    for _ in range(num_layers):
        y = attention.reference(part, query, mask, value=hidden)
        query = np.asarray(block.attention.norm(query + y))
        query = np.asarray(block.feedforward.norm(query + np.asarray(block.feedforward.branch(query))))
    positions = {"mask_positions": np.zeros((2, 1), int)}
    np.testing.assert_allclose(np.asarray(decoded(batch | positions))[mask], query[mask], atol=2e-5)


def test_a_layer_without_positions_is_the_encoders_last_block():
    enhanced = model_of(V3, num_layers=1)
    enhanced.get_layer("decoder_position").embedding.embeddings.assign(np.zeros((V3.max_length, V3.dim)))
    plain = MaskedLM(enhanced.backbone)
    for weight, value in zip(plain.get_layer("mlm").weights, enhanced.get_layer("mlm").weights, strict=True):
        weight.assign(value)
    batch = {"token_ids": np.array([[1, 2, 3, 4]]), "padding_mask": np.array([[True, True, True, False]])}
    np.testing.assert_allclose(enhanced(batch)[:, :3], plain(batch)[:, :3], atol=1e-5)


def test_it_tells_absolute_positions_and_the_encoder_does_not():
    """In a row of one token alone nothing but absolute positions differs."""
    model, batch = model_of(V3), {"token_ids": np.full((1, 6), 5)}
    plain = MaskedLM(model.backbone)
    contract.randomise(plain.get_layer("mlm"), seed=0)
    spread, of_plain = (np.ptp(np.asarray(logits(batch)), axis=1).max() for logits in (model, plain))
    assert of_plain < 1e-5 and spread > 1e-2


def test_only_the_positions_are_weights_of_its_own():
    backbone = DeBERTa(V3)
    more = EnhancedMaskedLM(backbone).count_params() - MaskedLM(backbone).count_params()
    assert more == V3.max_length * V3.dim


def test_what_cannot_be_is_refused():
    for num_layers in (0, 10**7):
        with pytest.raises(ValueError, match=rf"`num_layers` must lie in \[1, 64\]; it is {num_layers}"):
            EnhancedMaskedLM(DeBERTa(V3), num_layers=num_layers)
    with pytest.raises(ValueError, match=r"`backbone` must be a DeBERTa, .* it is 'bert'"):
        EnhancedMaskedLM(BERT(TINY))
