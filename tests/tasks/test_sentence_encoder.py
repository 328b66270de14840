"""Sentences as vectors: means by hand, alone as in a batch, kept, exported, given away."""

import keras
import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.data import BERTTokenizer
from keras_tfm.models import BERT
from keras_tfm.tasks import SentenceEncoder, SentenceEncoderConfig
from tests.fresh_process import ask

WORDS = ["the", "cat", "sat", "dog", "ran"]
TEXTS = ["the cat sat", "", "the dog ran and ran and ran", "cat"]


@pytest.fixture(scope="module")
def encoder():
    keras.utils.set_random_seed(0)
    tokenizer = BERTTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
    changes = {"num_layers": 1, "dim": 32, "num_heads": 2, "intermediate_dim": 64, "max_length": 16}
    bert = BERT.from_size("tiny", **changes, vocabulary_size=10, pooler=False)
    return SentenceEncoder(bert, tokenizer, SentenceEncoderConfig(8))


def test_vectors_are_means_of_length_one(encoder):
    hidden = np.asarray(encoder.model({"token_ids": np.array([[2, 5, 6, 7, 3]])})["sequence_output"])[0]
    mean = hidden.mean(0)
    vectors = encoder.predict(TEXTS)
    np.testing.assert_allclose(vectors[0], mean / np.linalg.norm(mean), atol=1e-6)
    alone = np.concatenate([encoder.predict([text]) for text in TEXTS])
    np.testing.assert_allclose(vectors, alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, rtol=1e-5)
    raw = SentenceEncoder(encoder.model, encoder.tokenizer, SentenceEncoderConfig(8, normalize=False))
    np.testing.assert_allclose(raw.predict(TEXTS[:1])[0], mean, atol=1e-5)
    expected = vectors @ vectors[:2].T
    for each in (encoder, raw):
        np.testing.assert_allclose(each.similarity(TEXTS, TEXTS[:2]), expected, atol=1e-5)
    assert encoder.predict([]).shape == (0, 32) and encoder.count_truncated(TEXTS) == 1


def test_kept_exported_and_given_away(encoder, tmp_path):
    expected = encoder.predict(["the cat sat", "cat"])
    encoder.save(tmp_path / "task")
    np.testing.assert_array_equal(tasks.load(tmp_path / "task").predict(["the cat sat", "cat"]), expected)
    encoder.save_huggingface(tmp_path / "folder")
    again = SentenceEncoder.from_huggingface(tmp_path / "folder", max_length=8)
    np.testing.assert_allclose(again.predict(["the cat sat", "cat"]), expected, atol=1e-6)
    encoder.export(tmp_path / "served")
    served = ask(tmp_path / "served", text=["the cat sat", "cat"])["vector"]
    np.testing.assert_allclose(served, expected, atol=1e-6)


def test_bad_input(encoder):
    for length in (2, 17):
        with pytest.raises(ValueError, match=rf"must lie in \[3, 16\]; it is {length}"):
            SentenceEncoder(encoder.model, encoder.tokenizer, SentenceEncoderConfig(length))
    larger = BERTTokenizer([*encoder.tokenizer.vocabulary, "unheard"])
    with pytest.raises(
        ValueError, match="does not match the embedding: the tokenizer has 11 tokens, the model 10"
    ):
        SentenceEncoder(encoder.model, larger, SentenceEncoderConfig(8))
