"""ESM-2: its counts, masked tokens, contacts by hand; transformers' numbers are compared in tests/parity."""

import numpy as np
import pytest

from keras_tfm.data import ResidueTokenizer
from keras_tfm.heads import MaskedLM
from keras_tfm.models import ESM2, ESM2Config
from keras_tfm.models.proteins.esm2 import ContactHead, MaskedTokens
from keras_tfm.tasks import MaskedLanguageModel, MaskedLanguageModelConfig
from tests import contract
from tests.contract import Case, ids, mask

SMALL = ESM2Config(33, 2, 8, 2, 12, 16, embedding_norm=True, pooler=True)
INPUTS = {"token_ids": ids("T", 32), "padding_mask": mask("T")}
test_contract = contract.check_family(
    Case(
        "ESM2",
        lambda: ESM2(SMALL),
        INPUTS,
        attends=True,
        without_effect=("contact_head/kernel", "contact_head/bias"),  # which `contacts` alone reads
    )
)


@pytest.mark.parametrize(("size", "count"), [("8m", 7_512_474), ("650m", 651_043_254)])
def test_parameters_of_the_published_sizes(size, count, no_allocation):
    """The released files have as many, with the masked language model's head."""
    assert MaskedLM(ESM2.from_size(size)).count_params() == count


def test_masked_tokens_are_zero_and_the_others_scaled():
    x = np.ones((3, 4, 2), "float32")
    ids = np.array([[5, 9, 5, 5], [5, 9, 9, 1], [9, 9, 1, 1]])
    seen = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]], "bool")
    y = np.asarray(MaskedTokens(9)(x, ids, seen))[..., 0]
    expected = [[4 / 3, 0, 4 / 3, 4 / 3], [3, 0, 0, 3], [0, 0, 2, 2]]
    np.testing.assert_allclose(y, 0.88 * np.array(expected), rtol=1e-6)


def test_contacts_by_hand():
    rng = np.random.default_rng(0)
    maps, head = rng.uniform(size=(1, 2, 6, 6)).astype("float32"), ContactHead()
    seen = np.array([[1, 1, 1, 1, 0, 0]], "bool")
    head(maps, seen)
    head.kernel.assign([[2.0], [-1.0]])
    head.bias.assign([0.5])
    inner = maps[0, :, 1:4, 1:4]
    inner = inner + inner.transpose(0, 2, 1)
    rows = inner.sum(2, keepdims=True)
    inner = inner - rows * rows.transpose(0, 2, 1) / inner.sum((1, 2), keepdims=True)
    logits = 2 * inner[0] - inner[1] + 0.5
    found = np.asarray(head(maps, seen))
    np.testing.assert_allclose(found[0, :3, :3], 1 / (1 + np.exp(-logits)), rtol=1e-5)
    assert found.shape == (1, 4, 4) and np.isfinite(np.asarray(head(maps, ~seen & seen))).all()


def test_blanks_of_proteins_are_filled(tmp_path):
    tokenizer, model = ResidueTokenizer(), MaskedLM(ESM2.from_size("tiny", num_layers=1))
    task = MaskedLanguageModel(model, tokenizer, MaskedLanguageModelConfig(pairs="none"))
    task.save_huggingface(tmp_path / "published")
    task = MaskedLanguageModel.from_huggingface(tmp_path / "published")
    (text,) = task.predict(["MKT<mask>LV<mask>"])
    assert len(text) == 7 and text.isupper() and (text[:3], text[4:6]) == ("MKT", "LV")
    task.save(tmp_path / "run")
    assert MaskedLanguageModel.load(tmp_path / "run").predict(["MKT<mask>LV<mask>"]) == [text]
