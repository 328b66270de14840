"""RoBERTa: the contract, the paper's sizes, its positions."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm.heads import Classifier, MaskedLM
from keras_tfm.layers import LayerNormalization
from keras_tfm.models import RoBERTa, RoBERTaConfig
from tests import contract
from tests.contract import Case, ids, mask

TINY = RoBERTaConfig(11, num_layers=2, dim=8, num_heads=2, intermediate_dim=12, max_length=16)
ONE_BLOCK = dataclasses.replace(TINY, num_layers=1)  # enough under a head
POOLED = dataclasses.replace(ONE_BLOCK, num_segments=2, pooler=True)
INPUTS = {"token_ids": ids("T", 11), "padding_mask": mask("T")}
TWO_LAYERS = {"hidden_dim": 8, "dropout": 0.2, "input_dropout": 0.2}

test_contract = contract.check_family(
    Case("RoBERTa", lambda: RoBERTa(TINY), INPUTS, attends=True, left_padding="T"),
    Case("with segments and pooler", lambda: RoBERTa(POOLED), {**INPUTS, "segment_ids": ids("T", 2)},
         attends=True),
    Case("MaskedLM", lambda: MaskedLM(RoBERTa(ONE_BLOCK)), {**INPUTS, "mask_positions": ids("M", 1)},
         attends=True),
    Case("Classifier", lambda: Classifier(RoBERTa(ONE_BLOCK), 3, **TWO_LAYERS), INPUTS, attends=True),
)  # fmt: skip


# The released models' 124,645,632 and 355,359,744 less their poolers.
@pytest.mark.parametrize(("size", "count"), [("base", 124_055_040), ("large", 354_310_144)])
def test_parameters_of_the_published_sizes(size, count, no_allocation):
    assert contract.num_parameters(RoBERTa.from_size(size).trainable_weights) == count


def test_positions_begin_after_the_padding_id_and_leave_padding_out():
    config = dataclasses.replace(TINY, pad_id=3)
    model = RoBERTa(config)
    contract.randomise(model, seed=0)
    weights = {weight.path: weight.numpy() for weight in model.weights}
    token, segment = weights["embedding/token/embeddings"], weights["embedding/segment/embeddings"]
    position = weights["embedding/position/embedding/embeddings"]
    assert position.shape == (16 + 4, 8)
    norm = LayerNormalization(config.epsilon)
    norm.build((None, 8))
    norm.set_weights([weights["embedding_norm/gamma"], weights["embedding_norm/beta"]])
    tokens = np.array([[5, 6, 7, 3], [3, 3, 8, 9]])
    expected = norm(token[tokens] + segment[0] + position[[[4, 5, 6, 3], [3, 3, 4, 5]]])
    embedded = keras.Model(model.input, model.get_layer("embedding_norm").output)
    actual = embedded({"token_ids": tokens, "padding_mask": tokens != 3})
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_the_longest_text_fits_and_no_longer_one():
    model = RoBERTa(TINY)
    assert np.isfinite(model({"token_ids": np.ones((1, 16), "int32")})["sequence_output"]).all()
    with pytest.raises(ValueError, match=r"`positions` must lie in \[0, 18\); one of them is 18"):
        model({"token_ids": np.ones((1, 17), "int32")})


def test_the_classifier_reads_the_first_token():
    model = Classifier(RoBERTa(TINY), 3, hidden_dim=8)
    contract.randomise(model, seed=0)
    batch = {"token_ids": np.array([[1, 2, 3]])}
    first = np.asarray(model.backbone(batch)["sequence_output"])[:, 0]
    hidden, hidden_bias, output, output_bias = model.head.get_weights()
    expected = np.tanh(first @ hidden + hidden_bias) @ output + output_bias
    np.testing.assert_allclose(model(batch), expected, atol=1e-5)
