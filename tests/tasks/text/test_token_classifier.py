"""Tagging whole: words aligned to their pieces, entities counted, long sentences, kept and exported."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.data import BERTTokenizer
from keras_tfm.export.graph_readers import pack_words
from keras_tfm.models import BERT, Recurrent
from keras_tfm.tasks import TokenClassifier, TokenClassifierConfig
from keras_tfm.tasks.text.spans import repaired
from keras_tfm.training.options import FineTuning
from tests.fresh_process import ask
from tests.tasks.tiny import TINY

WORDS = [
    ["Ada", "Lovelace", "met", "Bob"],
    ["Paris", "slept"],
    ["nobody", "met", "nobody"],
    ["Bob", "met", "Ada"],
]
TAGS = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "O"], ["O", "O", "O"], ["B-PER", "O", "B-PER"]]
PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "ada",
    "love",
    "##lace",
    "met",
    "bob",
    "paris",
    "slept",
    "no",
]
PIECES += ["##body", "the"]
LABELS = ("B-LOC", "B-PER", "I-PER", "O")


def make(max_length=16):
    keras.utils.set_random_seed(0)
    tokenizer = BERTTokenizer(PIECES)
    bert = BERT.from_size("tiny", **TINY, vocabulary_size=len(PIECES), max_length=32)
    return TokenClassifier.from_backbone(
        bert, tokenizer, (WORDS, TAGS), max_length=max_length, head={"dropout": 0.0}
    )


@pytest.fixture(scope="module")
def learnt():
    """A task that has learnt WORDS by heart."""
    task = make()
    examples = (WORDS * 50, TAGS * 50)  # an epoch costs more than its steps
    task.fit(examples, (WORDS, TAGS), epochs=6, batch_tokens=100, learning_rate=1e-2, weight_decay=0.0)
    return task


@pytest.mark.slow
def test_a_fresh_tagger_learns_from_few_sentences_by_its_defaults():
    rng = np.random.default_rng(0)
    syllables = ["ka", "lo", "mi", "ren", "ta", "sol", "ber", "an", "du", "fi"]

    def name():
        return "".join(rng.choice(syllables, 3))

    def examples(count):
        words = [["does", name(), "live", "in", name()] for _ in range(count)]
        orders = [["buy", "tea", "in", name(), "for", name()] for _ in range(count)]
        tags = [["O", "B-PER", "O", "O", "B-LOC"]] * count + [["O", "O", "O", "B-LOC", "O", "B-PER"]] * count
        return words + orders, tags

    train, unseen = examples(150), examples(100)
    keras.utils.set_random_seed(0)
    task = TokenClassifier.from_examples(train)
    assert isinstance(task.model.backbone, Recurrent)  # a BERT learns more slowly from so few
    task.fit(train)
    assert task.evaluate(unseen)["f1"] > 0.95


def test_rules_stand_beside_a_training():
    task = make()
    known = task.examples_class([*WORDS, ["met", "Bob"]], [*TAGS, ["O", "O"]])
    long = ["met"] * 20  # the last of these words are not read
    asked = task.examples_class(
        [["Paris", "met", "Bob"], ["unknown"], long],
        [["B-LOC", "O", "B-PER"], ["O"], ["O"] * 14 + ["B-LOC"] * 6],
    )
    rules = task.baselines(known, asked, seed=0).entries()
    assert rules == {
        "metric": "val_token_accuracy",
        "the commonest class": round(16 / 18, 6),
        "the commonest tag of each word": 1.0,
    }


def test_first_pieces_bear_the_tags():
    task = make()
    words = [*WORDS[:1], ["\u200e", "met"]]
    read = task.answerer.read_all(words)
    rows = [row for (row,), _ in read]
    assert [row.ids for row in rows] == [[2, 5, 6, 7, 8, 9, 3], [2, 1, 8, 3]]  # nothing left: unknown
    assert [row.more.firsts for row in rows] == [[1, 2, 4, 5], [1, 2]]
    encoded = pack_words(task.tokenizer, task.config.max_length, tf.ragged.constant(words))  # in a graph
    assert encoded["token_ids"].to_list() == [row.ids for row in rows]
    assert encoded["is_first"].to_list() == [[0, 1, 1, 0, 1, 1, 0], [0, 1, 1, 0]]
    labels = task._encode_labels(task.examples_class(WORDS[:1], TAGS[:1]), read[:1])
    assert labels.to_list() == [[-1, 1, 2, -1, 3, 1, -1]]
    ((inputs, truth, weights),) = task.batches(
        task.examples_class(WORDS, TAGS), FineTuning(batch_tokens=100), is_validation=True
    ).dataset()
    assert inputs["token_ids"].shape == truth.shape == weights.shape
    assert weights.numpy().sum() == sum(map(len, WORDS))


def test_sentences_are_tagged(learnt):
    assert learnt.config.labels == LABELS
    assert learnt.predict(WORDS) == TAGS and learnt.predict([" ".join(row) for row in WORDS]) == TAGS
    assert learnt.predict([[], ["Bob"], []]) == [[], ["B-PER"], []] and learnt.predict([]) == []
    measures = learnt.evaluate((WORDS, TAGS))
    assert measures == {"accuracy": 1, "precision": 1, "recall": 1, "f1": 1, "sentences": 4}


def test_entities_are_counted_whole(learnt):
    """One of six true entities is cut short, another missed: 4 of 5 answers are right."""
    truth = [["B-PER", "I-PER", "I-PER", "B-PER"], *TAGS[1:3], ["B-PER", "B-PER", "B-PER"]]
    measures = learnt.evaluate((WORDS, truth))
    assert (measures["precision"], measures["recall"]) == (0.8, 0.6667)
    assert measures["f1"] == pytest.approx(2 * 0.8 * 2 / 3 / (0.8 + 2 / 3), abs=1e-4)
    assert measures["accuracy"] == pytest.approx(10 / 12, abs=1e-4)


def test_words_beyond_the_length_are_outside(learnt):
    long = ["Bob"] * 20
    (tags,) = learnt.predict([long])
    assert "B-PER" in tags[:14] and tags[14:] == ["O"] * 6
    assert learnt.count_truncated([long, ["Bob"] * 14, "met " * 15]) == 2
    assert learnt.evaluate(([long], [["B-PER"] * 20]))["recall"] <= 14 / 20


def test_records_have_words_scores_and_spans(learnt):
    (record,) = learnt.records(["Ada Lovelace met Bob"])
    assert record["words"] == WORDS[0] and record["answer"] == TAGS[0]
    assert record["confidence"] == min(record["scores"]) and 0 < record["confidence"] <= 1
    spans = [(span["label"], span["text"], span["start"], span["end"]) for span in record["spans"]]
    assert spans == [("PER", "Ada Lovelace", 0, 2), ("PER", "Bob", 3, 4)]
    (long,) = learnt.records([["Bob"] * 20])
    assert len(long["answer"]) == len(long["scores"]) == 20 and long["scores"][-1] is None
    (nothing,) = learnt.records([[]])
    assert nothing == {"answer": [], "confidence": None, "words": [], "scores": [], "spans": []}


def test_tags_are_repaired_by_choice():
    """An untrained model's tags, of which some I-PER go on with nothing."""
    task = make()
    sentences = [words * 3 for words in WORDS]
    plain = task.predict(sentences)
    right = task.predict(sentences, repair=True)
    assert (
        right == list(map(repaired, plain)) == [row["answer"] for row in task.records(sentences, repair=True)]
    )


def test_the_marks_are_those_of_the_examples():
    examples = [[*words, "."] for words in WORDS], [[*tags, "O"] for tags in TAGS]
    config = TokenClassifier.config_for(examples)
    assert config.marks == "." and TokenClassifier.config_for((WORDS, TAGS)).marks == ""
    assert TokenClassifierConfig.from_json({"labels": ["a", "b"]}).marks == ""  # of an older folder


@pytest.mark.slow
def test_kept_exported_and_given_away(learnt, tmp_path):
    config = dataclasses.replace(learnt.config, marks=".,")  # as of a training with punctuation
    apart = TokenClassifier(learnt.model, learnt.tokenizer, config)
    apart.export(tmp_path / "served")
    texts = ["Ada Lovelace met Bob", "", "Paris slept, ...", " (Bob."]
    served = ask(tmp_path / "served", text=texts)
    assert served["tags"].tolist()[:2] == ["B-PER I-PER O B-PER", ""]
    assert served["tags"].tolist() == [" ".join(tags) for tags in apart.predict(texts)]
    assert [len(tags.split()) for tags in served["tags"]] == [4, 0, 4, 2]
    learnt.save(tmp_path / "task")
    assert tasks.load(tmp_path / "task").predict(WORDS) == TAGS
    learnt.save_huggingface(tmp_path / "folder")
    entries = json.loads((tmp_path / "folder" / "config.json").read_text("utf-8"))
    assert entries["id2label"] == {str(i): label for i, label in enumerate(LABELS)}
    kept = tasks.from_huggingface(tmp_path / "folder")
    assert kept.predict(WORDS) == TAGS
    for a, b in zip(kept.model.weights, learnt.model.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_bad_input(learnt):
    with pytest.raises(ValueError, match="sentence 2: expected 2 tags, one for each word, got 1"):
        learnt.evaluate((WORDS[:2], [TAGS[0], ["O"]]))
    with pytest.raises(ValueError, match="'B-ORG' unseen in training; known are B-LOC"):
        learnt.evaluate(([["Bob"]], [["B-ORG"]]))
    with pytest.raises(ValueError, match="two at least"):
        TokenClassifierConfig(("O",))
