"""Sentences as vectors: means by hand, alone as in a batch, kept, exported, given away."""

import json

import keras
import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.data import BERTTokenizer
from keras_tfm.heads import pooled_tokens
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
    assert encoder.tokenizer.in_graphs in (tmp_path / "served" / "README.md").read_text("utf-8")
    served = ask(tmp_path / "served", text=["the cat sat", "cat"])["vector"]
    np.testing.assert_allclose(served, expected, atol=1e-6)


def test_modules_count_more_than_the_head_of_the_training(encoder, tmp_path):
    """all-distilroberta-v1 names a masked language model; older folders have the encoder in an inner one."""
    folder, inner = tmp_path / "folder", tmp_path / "folder" / "0_Transformer"
    encoder.save_huggingface(folder)
    entries = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(entries | {"architectures": ["BertForMaskedLM"]}))
    expected = encoder.predict(TEXTS)
    np.testing.assert_allclose(tasks.from_huggingface(folder).predict(TEXTS), expected, atol=1e-6)
    inner.mkdir()
    for file in list(folder.glob("*.*")):
        if file.name != "modules.json":
            file.rename(inner / file.name)
    modules = (folder / "modules.json").read_text()
    (folder / "modules.json").write_text(modules.replace('"path": ""', '"path": "0_Transformer"', 1))
    np.testing.assert_allclose(tasks.from_huggingface(folder).predict(TEXTS), expected, atol=1e-6)


POOLINGS = {
    "cls": lambda hidden: hidden[0],
    "max": lambda hidden: hidden.max(0),
    "mean": lambda hidden: hidden.mean(0),
    "mean_sqrt_len_tokens": lambda hidden: hidden.sum(0) / np.sqrt(len(hidden)),
    "weightedmean": lambda hidden: np.average(hidden, 0, np.arange(1, len(hidden) + 1)),
    "lasttoken": lambda hidden: hidden[-1],
}


def test_the_poolings_of_sentence_transformers(encoder, tmp_path):
    """Each by itself and all side by side, for texts that are padded in the batch; kept and given away."""
    ids = [[2, 5, 6, 7, 3], [2, 3]]
    hidden = [np.asarray(encoder.model({"token_ids": np.array([row])})["sequence_output"])[0] for row in ids]
    wanted = {name: np.stack([pool(x) for x in hidden]) for name, pool in POOLINGS.items()}
    mask = np.array([[True] * len(row) + [False] * (6 - len(row)) for row in ids])
    padded = np.stack([np.pad(x, ((0, 6 - len(x)), (0, 0)), constant_values=9) for x in hidden])
    for name, vectors in wanted.items():
        np.testing.assert_allclose(pooled_tokens(padded, mask, [name]), vectors, atol=1e-6)
    config = SentenceEncoderConfig(8, normalize=False, pooling=tuple(POOLINGS)[::-1])
    task = SentenceEncoder(encoder.model, encoder.tokenizer, config)
    vectors = task.predict(TEXTS[:2])
    np.testing.assert_allclose(vectors, np.concatenate(list(wanted.values()), -1), atol=1e-5)
    task.save(tmp_path / "task")
    np.testing.assert_array_equal(tasks.load(tmp_path / "task").predict(TEXTS[:2]), vectors)
    task.save_huggingface(tmp_path / "folder")
    again = SentenceEncoder.from_huggingface(tmp_path / "folder")
    assert again.config == SentenceEncoderConfig(8, normalize=False, pooling=tuple(POOLINGS))
    np.testing.assert_allclose(again.predict(TEXTS[:2]), vectors, atol=1e-5)
    again.save_huggingface(tmp_path / "folder", overwrite=True)  # it is this package's own
    chosen = SentenceEncoder.from_huggingface(tmp_path / "folder", max_length=5, normalize=True)
    assert (chosen.config.max_length, chosen.config.normalize) == (5, True)


def test_case_and_the_width_of_the_model(encoder, tmp_path):
    """Lower case is the tokenizer's here; longer texts than the model reads are cut."""
    encoder.save_huggingface(tmp_path / "folder")
    lengths = tmp_path / "folder" / "sentence_bert_config.json"
    lengths.write_text('{"max_seq_length": 512, "do_lower_case": true}')
    assert SentenceEncoder.from_huggingface(tmp_path / "folder").config.max_length == 16
    cased = BERTTokenizer(encoder.tokenizer.vocabulary, lowercase=False)
    SentenceEncoder(encoder.model, cased, encoder.config).save_huggingface(tmp_path / "cased")
    lengths.rename(tmp_path / "cased" / "sentence_bert_config.json")
    with pytest.raises(ValueError, match="do_lower_case is true, and its tokenizer distinguishes case"):
        SentenceEncoder.from_huggingface(tmp_path / "cased")


def test_bad_input(encoder):
    for pooling in ((), ("mean", "mean"), ("median",), "mean"):
        with pytest.raises(ValueError, match="`pooling"):
            SentenceEncoderConfig(pooling=pooling)
    with pytest.raises(ValueError, match=r"`poolings` must be some of cls, max, mean, .*; they are"):
        pooled_tokens(np.ones((1, 2, 3)), np.ones((1, 2), bool), ["median"])
    for length in (2, 17):
        with pytest.raises(ValueError, match=rf"must lie in \[3, 16\]; it is {length}"):
            SentenceEncoder(encoder.model, encoder.tokenizer, SentenceEncoderConfig(length))
    larger = BERTTokenizer([*encoder.tokenizer.vocabulary, "unheard"])
    with pytest.raises(
        ValueError, match="does not match the embedding: the tokenizer has 11 tokens, the model 10"
    ):
        SentenceEncoder(encoder.model, larger, SentenceEncoderConfig(8))
