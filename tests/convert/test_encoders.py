"""Encoders' folders: written and read again with every head, and what a family alone refuses."""

import dataclasses
import json

import numpy as np
import pytest

from keras_tfm import convert
from keras_tfm.convert import CheckpointError
from keras_tfm.heads import Classifier, MaskedLM, SpanFinder, TokenTagger
from keras_tfm.models import DistilBERT, RoBERTa
from tests.contract import randomise
from tests.models import test_distilbert, test_roberta

ROBERTA = dataclasses.replace(test_roberta.TINY, num_segments=2, pad_id=3, activation="relu", epsilon=1e-4)
DISTILBERT = dataclasses.replace(test_distilbert.TINY, dropout=0.3, activation="gelu_quick")
TWO_LAYERS = {"hidden_dim": 8, "dropout": 0.3}
MODELS = {
    "RobertaModel": lambda: RoBERTa(dataclasses.replace(ROBERTA, pooler=True)),
    "RobertaForMaskedLM": lambda: MaskedLM(RoBERTa(ROBERTA), activation="gelu"),
    "RobertaForSequenceClassification": lambda: Classifier(
        RoBERTa(ROBERTA), 3, **TWO_LAYERS, input_dropout=0.3
    ),
    "RobertaForTokenClassification": lambda: TokenTagger(RoBERTa(ROBERTA), 5, dropout=0.0),
    "RobertaForQuestionAnswering": lambda: SpanFinder(RoBERTa(ROBERTA)),
    "DistilBertModel": lambda: DistilBERT(DISTILBERT),
    "DistilBertForMaskedLM": lambda: MaskedLM(DistilBERT(DISTILBERT)),
    "DistilBertForSequenceClassification": lambda: Classifier(
        DistilBERT(DISTILBERT), 3, **TWO_LAYERS, activation="relu"
    ),
    "DistilBertForTokenClassification": lambda: TokenTagger(DistilBERT(DISTILBERT), 5, dropout=0.3),
    "DistilBertForQuestionAnswering": lambda: SpanFinder(DistilBERT(DISTILBERT), dropout=0.4),
}


@pytest.mark.parametrize("architecture", MODELS)
def test_round_trip(architecture, tmp_path):
    model = MODELS[architecture]()
    randomise(model, seed=0)
    convert.save_huggingface(model, tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["architectures"] == [architecture]
    other = convert.from_huggingface(tmp_path / "model")
    assert other.get_config() == model.get_config()
    for a, b in zip(model.weights, other.weights, strict=True):
        assert a.path == b.path
        if "float" in a.dtype:
            np.testing.assert_array_equal(a, b)


def change_config(folder, **entries):
    config = json.loads((folder / "config.json").read_text()) | entries
    (folder / "config.json").write_text(json.dumps(config))


def test_what_is_absent_means_what_transformers_makes_of_it(tmp_path):
    RoBERTa(dataclasses.replace(test_roberta.TINY, max_length=510, num_segments=2)).save_huggingface(
        tmp_path / "model"
    )
    entries = json.loads((tmp_path / "model" / "config.json").read_text())
    for name in ("max_position_embeddings", "pad_token_id", "layer_norm_eps", "type_vocab_size"):
        entries.pop(name)
    (tmp_path / "model" / "config.json").write_text(json.dumps(entries))
    config = RoBERTa.from_huggingface(tmp_path / "model").config
    assert (config.max_length, config.pad_id, config.epsilon, config.num_segments) == (510, 1, 1e-12, 2)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            {"max_position_embeddings": "18"},
            "max_position_embeddings: expected a value of its kind, got '18'",
        ),
        ({"max_position_embeddings": 1}, "max_position_embeddings: expected a value like 512, got -1"),
        ({"max_position_embeddings": 40}, r"position_embeddings.weight: expected the shape \(40, 8\)"),
        ({"pad_token_id": None}, "pad_token_id: expected a value like 1, got None"),
        ({"pad_token_id": 30}, "max_position_embeddings: expected a value like 512, got -13"),
    ],
)
def test_wrong_configurations_of_roberta(entries, message, tmp_path):
    RoBERTa(test_roberta.TINY).save_huggingface(tmp_path / "model")
    change_config(tmp_path / "model", **entries)
    with pytest.raises(CheckpointError, match=message):
        convert.from_huggingface(tmp_path / "model")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: MaskedLM(RoBERTa(ROBERTA)),
            "MaskedLM around RoBERTa has no counterpart",
        ),  # relu in the head
        (lambda: Classifier(RoBERTa(ROBERTA), 3), "Classifier around RoBERTa has no counterpart"),
        (
            lambda: Classifier(DistilBERT(DISTILBERT), 3, hidden_dim=5, activation="relu"),
            "Classifier around DistilBERT has no counterpart",
        ),
    ],
)
def test_what_transformers_lacks_is_not_written(make, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        convert.save_huggingface(make(), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_another_epsilon_is_not_distilberts(tmp_path):
    with pytest.raises(ValueError, match="DistilBertModel computes only `epsilon` 1e-12; it is 1e-05"):
        DistilBERT(dataclasses.replace(DISTILBERT, epsilon=1e-5)).save_huggingface(tmp_path / "model")
