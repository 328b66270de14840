"""Multiple choice: the contract, and that each choice is read as a text by itself."""

import numpy as np
import pytest

from keras_tfm.heads import Classifier, MultipleChoice, classification_loss
from keras_tfm.models import BART, BERT, DistilBERT
from tests import contract
from tests.contract import Case, Spec, mask
from tests.models.test_bart import TINY as BART_TINY
from tests.models.test_bert import ONE_BLOCK, TINY
from tests.models.test_distilbert import ONE_BLOCK as DISTILBERT

TOKENS, SEGMENTS = Spec(("M", "T"), "int32", 11), Spec(("M", "T"), "int32", 2)
HIDDEN = {"hidden_dim": 8, "activation": "relu"}

test_contract = contract.check(
    Case("pooled", lambda: MultipleChoice(BERT(ONE_BLOCK), dropout=0.2),
         {"token_ids": TOKENS, "padding_mask": mask("M", "T"), "segment_ids": SEGMENTS}, attends=True),
    Case("hidden layer", lambda: MultipleChoice(DistilBERT(DISTILBERT), **HIDDEN),
         {"token_ids": TOKENS, "padding_mask": mask("M", "T")}, attends=True),
)  # fmt: skip


def test_each_choice_is_read_by_itself():
    rng = np.random.default_rng(0)
    backbone = BERT(TINY)
    classifier, model = Classifier(backbone, 1), MultipleChoice(backbone)
    for one in (classifier, model):
        contract.randomise(one, seed=0)
    is_token = np.arange(7) < rng.integers(1, 8, (2, 3, 1))
    batch = {"token_ids": rng.integers(0, 11, (2, 3, 7)), "padding_mask": is_token}
    logits = model(batch).numpy()
    assert logits.shape == (2, 3)
    for row in range(2):
        expected = classifier({name: x[row] for name, x in batch.items()})  # (3, 1)
        np.testing.assert_allclose(logits[row], expected[:, 0], atol=1e-5)
    batch["token_ids"] = np.where(is_token, batch["token_ids"], 5)
    np.testing.assert_allclose(model(batch), logits, atol=1e-5)


def test_an_encoder_decoder_reads_each_choice_on_both_sides():
    backbone = BART(BART_TINY)
    classifier, model = Classifier(backbone, 1), MultipleChoice(backbone)
    for one in (classifier, model):
        contract.randomise(one, seed=0)
    token_ids = np.array([[[4, 5, BART_TINY.end_id], [6, 7, BART_TINY.end_id]]])
    expected = classifier({"token_ids": token_ids[0]})[:, 0]
    np.testing.assert_allclose(model({"token_ids": token_ids})[0], expected, atol=1e-5)


@pytest.mark.slow
def test_fit_learns_the_right_choice():
    rng = np.random.default_rng(0)
    token_ids = rng.integers(1, 10, (64, 4, 5))
    right = rng.integers(0, 4, 64)
    token_ids[np.arange(64), right, 2] = 10
    model = MultipleChoice(BERT(TINY))
    model.compile("adam", classification_loss(), weighted_metrics=["accuracy"])
    model.optimizer.learning_rate = 0.01
    model.fit({"token_ids": token_ids}, right, batch_size=16, epochs=30, verbose=0)
    assert model.evaluate({"token_ids": token_ids}, right, verbose=0, return_dict=True)["accuracy"] > 0.95
