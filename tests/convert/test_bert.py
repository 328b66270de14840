"""BERT's folders: written and read again with every head; what is wrong in one is refused by name."""

import contextlib
import json

import numpy as np
import pytest

from keras_tfm import convert
from keras_tfm.convert import CheckpointError
from keras_tfm.convert.folder import WEIGHTS
from keras_tfm.heads import Classifier, MaskedLM, MultipleChoice, NextSentence, SpanFinder, TokenTagger
from keras_tfm.models import BERT, ViT, XCiT
from keras_tfm.training.safetensors import read_tensors
from keras_tfm.training.weights import write_tensors
from tests.contract import randomise
from tests.models.folders import change_config, check_both_ways
from tests.models.test_bert import TINY, WITHOUT_POOLER
from tests.models.test_xcit import SMALL

MODELS = {
    "BertModel": lambda: BERT(TINY),
    "BertForPreTraining": lambda: MaskedLM(BERT(TINY), next_sentence=True),
    "BertForMaskedLM": lambda: MaskedLM(BERT(WITHOUT_POOLER)),
    "BertForNextSentencePrediction": lambda: NextSentence(BERT(TINY)),
    "BertForSequenceClassification": lambda: Classifier(BERT(TINY), 3, dropout=0.3),
    "BertForTokenClassification": lambda: TokenTagger(BERT(WITHOUT_POOLER), 5, dropout=0.0),
    "BertForMultipleChoice": lambda: MultipleChoice(BERT(TINY), dropout=0.3),
    "BertForQuestionAnswering": lambda: SpanFinder(BERT(WITHOUT_POOLER)),
}


@pytest.fixture
def folder(tmp_path):
    model = BERT(TINY)
    randomise(model, seed=0)
    model.save_huggingface(tmp_path / "bert")
    return tmp_path / "bert"


def change_weights(folder, function):
    tensors, _ = read_tensors(folder / WEIGHTS)
    tensors = function({key: np.array(tensor) for key, tensor in tensors.items()})
    write_tensors(tensors, folder / WEIGHTS)


@pytest.mark.parametrize("architecture", MODELS)
def test_round_trip(architecture, tmp_path):
    model = MODELS[architecture]()
    check_both_ways(model, tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["architectures"] == [architecture]
    with pytest.raises(FileExistsError):
        convert.save_huggingface(model, tmp_path / "model")


def test_a_backbone_leaves_the_head_behind(tmp_path):
    model = MODELS["BertForPreTraining"]()
    convert.save_huggingface(model, tmp_path / "model")
    bert = BERT.from_huggingface(tmp_path / "model")
    for a, b in zip(model.backbone.trainable_weights, bert.trainable_weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_pooler_that_its_head_does_not_use_is_left_out(tmp_path):
    convert.save_huggingface(MaskedLM(BERT(TINY)), tmp_path / "model")
    assert not [key for key in read_tensors(tmp_path / "model" / WEIGHTS)[0] if "pooler" in key]
    assert convert.from_huggingface(tmp_path / "model").backbone.config == WITHOUT_POOLER


def test_names_and_copies_of_older_files(folder):
    expected = BERT.from_huggingface(folder).get_weights()
    change_config(folder, architectures=["BertForMaskedLM"])

    def old(tensors):
        tensors = {f"bert.{key}": tensor for key, tensor in tensors.items()}
        tensors |= {"bert.embeddings.position_ids": np.arange(9)[None]}
        tensors |= {"cls.predictions.bias": np.zeros(11, "float32")}
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
        return {
            key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): x
            for key, x in tensors.items()
        }

    change_weights(folder, old)
    for a, b in zip(expected, BERT.from_huggingface(folder).get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(CheckpointError, match=r"cls.predictions.transform.dense.weight: .* got none"):
        convert.from_huggingface(folder)
    change_weights(folder, lambda x: {**x, "cls.predictions.decoder.weight": np.ones((11, 8), "float32")})
    with pytest.raises(CheckpointError, match=r"expected a copy of bert.embeddings.word_embeddings.weight"):
        BERT.from_huggingface(folder)
    change_weights(folder, lambda x: {**x, "bert.embeddings.LayerNorm.weight": np.ones(8, "float32")})
    with pytest.raises(CheckpointError, match="expected one weight of this name"):
        BERT.from_huggingface(folder)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"model_type": "gpt5"}, "model_type: expected one of bert.*, got 'gpt5'"),
        ({"model_type": ["bert"]}, "model_type: expected one of bert"),
        ({"architectures": ["BertLMHeadModel"]}, "architectures: expected one of BertModel, "),
        ({"architectures": "BertModel"}, "architectures: expected one of BertModel, "),
        ({"is_decoder": True}, "is_decoder: expected False, got True"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type: expected 'absolute'"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings: expected True"),
        ({"hidden_act": "gelu_10"}, "hidden_act: expected one of gelu, relu"),
        ({"hidden_act": {"a": 1}}, "hidden_act: expected one of gelu, relu"),
        ({"hidden_size": "8"}, "hidden_size: expected a whole number, got '8'"),
        ({"hidden_size": True}, "hidden_size: expected a whole number, got True"),
        ({"hidden_size": -8}, "hidden_size: expected at least 1, got -8"),
        ({"hidden_size": 2**80}, "hidden_size: expected below 2,147,483,648"),
        ({"hidden_size": 16}, r"word_embeddings.weight: expected the shape \(11, 16\), got \(11, 8\)"),
        ({"vocab_size": 2**31 - 1}, "`vocabulary_size` is 2,147,483,647, and no weight has such an axis"),
        (
            {"max_position_embeddings": 10**6},
            r"position_embeddings.weight: expected the shape \(1000000, 8\)",
        ),
        ({"type_vocab_size": 2**16}, r"token_type_embeddings.weight: expected the shape \(65536, 8\)"),
        ({"intermediate_size": 10**9}, "`intermediate_dim` is 1,000,000,000, and no weight has such an axis"),
        ({"num_hidden_layers": 9_999}, "`num_layers` is 9,999, and there are 39 weights"),
        ({"num_hidden_layers": 3}, r"encoder.layer.2.*: expected a tensor for block_2.*, got none"),
        ({"num_hidden_layers": 1}, "encoder.layer.1.*: expected no such weight"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: expected at least 1, got 0"),
        ({"num_attention_heads": 3}, "expected a configuration of BERT, got `num_heads` must divide"),
        ({"hidden_dropout_prob": 1.5}, r"hidden_dropout_prob: expected a rate in \[0, 1\), got 1.5"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps: expected a number"),
        (
            {"architectures": ["BertForSequenceClassification"], "num_labels": 10**12},
            "num_labels: expected 1 to 100000",
        ),
        (
            {"architectures": ["BertForSequenceClassification"]},
            r"classifier.weight: expected a tensor for head/output/kernel \(8, 2\), got none",
        ),
    ],
)
def test_wrong_configurations(entries, message, folder):
    change_config(folder, **entries)
    with pytest.raises(CheckpointError, match=message):
        convert.from_huggingface(folder)


def without(key):
    return lambda tensors: {name: x for name, x in tensors.items() if name != key}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("encoder.layer.1.output.dense.bias"), "encoder.layer.1.output.dense.bias: .* got none"),
        (lambda x: {**x, "encoder.more": np.ones(3)}, r"encoder.more: expected no such weight, got one of"),
        (
            lambda x: {**x, "pooler.dense.weight": np.ones((8, 9), "float32")},
            r"pooler.dense.weight: expected the shape \(8, 8\), got \(8, 9\)",
        ),
        (
            lambda x: {**x, "pooler.dense.bias": np.full(8, np.nan, "float32")},
            "pooler.dense.bias: expected finite values",
        ),
        (lambda x: {}, "`vocabulary_size` is 11, and no weight has such an axis"),
    ],
)
def test_wrong_weights(change, message, folder):
    change_weights(folder, change)
    with pytest.raises(CheckpointError, match=message):
        convert.from_huggingface(folder)


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_header_changed_anywhere_is_refused_or_changes_nothing(folder, monkeypatch, stride):
    """Every byte, one bit each, of a header; the model itself is made once, for it takes long."""
    whole = (folder / WEIGHTS).read_bytes()
    model = BERT.from_huggingface(folder)
    monkeypatch.setattr(convert.bert.FAMILY.model, "__new__", lambda *_: model)
    monkeypatch.setattr(convert.bert.FAMILY.model, "__init__", lambda *_: None)
    expected = model.get_weights()
    length = int.from_bytes(whole[:8], "little")
    for place in range(0, 8 + length, stride):
        (folder / WEIGHTS).write_bytes(
            whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
        )
        with contextlib.suppress(CheckpointError):
            BERT.from_huggingface(folder)
        for a, b in zip(expected, model.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)


def test_other_families_are_refused(folder):
    with pytest.raises(CheckpointError, match="model_type: expected a ViT, got a BERT"):
        ViT.from_huggingface(folder)
    with pytest.raises(TypeError, match="XCiT is of no known family: bert"):
        XCiT(SMALL).save_huggingface(folder / "xcit")
    with pytest.raises(TypeError, match="Classifier around BERT has no counterpart"):
        convert.save_huggingface(Classifier(BERT(TINY), 2, hidden_dim=3), folder / "classifier")
