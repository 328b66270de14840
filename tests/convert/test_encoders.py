"""Encoders' folders: written and read again with every head, and what a family alone refuses."""

import dataclasses
import json

import numpy as np
import pytest

from keras_tfm import convert
from keras_tfm.convert import CheckpointError
from keras_tfm.convert.folder import WEIGHTS
from keras_tfm.heads import Classifier, MaskedLM, MultipleChoice, SpanFinder, TokenTagger
from keras_tfm.models import ALBERT, ESM2, DeBERTa, DistilBERT, Recurrent, RoBERTa
from keras_tfm.training.safetensors import read_tensors
from keras_tfm.training.weights import write_tensors
from tests.contract import randomise
from tests.models import test_albert, test_deberta, test_distilbert, test_esm2, test_roberta
from tests.models.folders import change_config, check_both_ways

ROBERTA = dataclasses.replace(test_roberta.TINY, num_segments=2, pad_id=3, activation="relu", epsilon=1e-4)
DISTILBERT = dataclasses.replace(test_distilbert.TINY, dropout=0.3, activation="gelu_quick")
ALBERT_CONFIG = dataclasses.replace(test_albert.TINY, dropout=0.3, activation="silu")
WITHOUT_POOLER = dataclasses.replace(ALBERT_CONFIG, pooler=False)
V1 = dataclasses.replace(test_deberta.ALL, dropout=0.1, epsilon=1e-3)
V2 = dataclasses.replace(test_deberta.V2, convolution_activation="gelu_quick", num_segments=1)
TWO_LAYERS = {"hidden_dim": 8, "dropout": 0.3}
MODELS = {
    "RobertaModel": lambda: RoBERTa(dataclasses.replace(ROBERTA, pooler=True)),
    "RobertaForMaskedLM": lambda: MaskedLM(RoBERTa(ROBERTA), activation="gelu"),
    "RobertaForSequenceClassification": lambda: Classifier(
        RoBERTa(ROBERTA), 3, **TWO_LAYERS, input_dropout=0.3
    ),
    "RobertaForTokenClassification": lambda: TokenTagger(RoBERTa(ROBERTA), 5, dropout=0.0),
    "RobertaForQuestionAnswering": lambda: SpanFinder(RoBERTa(ROBERTA)),
    "RobertaForMultipleChoice": lambda: MultipleChoice(
        RoBERTa(dataclasses.replace(ROBERTA, pooler=True)), dropout=ROBERTA.dropout
    ),
    "AlbertModel": lambda: ALBERT(ALBERT_CONFIG),
    "AlbertForPreTraining": lambda: MaskedLM(ALBERT(ALBERT_CONFIG), next_sentence=True, dropout=0.3),
    "AlbertForMaskedLM": lambda: MaskedLM(ALBERT(WITHOUT_POOLER)),
    "AlbertForSequenceClassification": lambda: Classifier(ALBERT(ALBERT_CONFIG), 3, dropout=0.0),
    "AlbertForTokenClassification": lambda: TokenTagger(ALBERT(WITHOUT_POOLER), 5, dropout=0.3),
    "AlbertForQuestionAnswering": lambda: SpanFinder(ALBERT(WITHOUT_POOLER)),
    "AlbertForMultipleChoice": lambda: MultipleChoice(ALBERT(ALBERT_CONFIG), dropout=0.2),
    "DebertaModel": lambda: DeBERTa(V1),
    "DebertaForMaskedLM": lambda: MaskedLM(DeBERTa(V1)),
    "DebertaForSequenceClassification": lambda: Classifier(
        DeBERTa(V1), 3, **TWO_LAYERS, activation="gelu", input_dropout=0.1
    ),
    "DebertaForTokenClassification": lambda: TokenTagger(DeBERTa(V1), 5, dropout=0.1),
    "DebertaForQuestionAnswering": lambda: SpanFinder(DeBERTa(V1)),
    "DebertaV2Model": lambda: DeBERTa(V2),
    "DebertaV2ForMaskedLM": lambda: MaskedLM(DeBERTa(V2)),
    "DebertaV2ForSequenceClassification": lambda: Classifier(
        DeBERTa(V2), 3, **TWO_LAYERS, activation="gelu_tanh", input_dropout=0.1
    ),
    "DebertaV2ForTokenClassification": lambda: TokenTagger(DeBERTa(V2), 5, dropout=0.1),
    "DebertaV2ForQuestionAnswering": lambda: SpanFinder(DeBERTa(V2)),
    "DebertaV2ForMultipleChoice": lambda: MultipleChoice(
        DeBERTa(V2), **TWO_LAYERS, activation="gelu", input_dropout=0.1
    ),
    "DistilBertModel": lambda: DistilBERT(DISTILBERT),
    "DistilBertForMaskedLM": lambda: MaskedLM(DistilBERT(DISTILBERT)),
    "DistilBertForSequenceClassification": lambda: Classifier(
        DistilBERT(DISTILBERT), 3, **TWO_LAYERS, activation="relu"
    ),
    "DistilBertForMultipleChoice": lambda: MultipleChoice(
        DistilBERT(DISTILBERT), **TWO_LAYERS, activation="relu"
    ),
    "DistilBertForTokenClassification": lambda: TokenTagger(DistilBERT(DISTILBERT), 5, dropout=0.3),
    "DistilBertForQuestionAnswering": lambda: SpanFinder(DistilBERT(DISTILBERT), dropout=0.4),
}


@pytest.mark.slow  # tests/parity asks the library itself, of random models
@pytest.mark.parametrize("architecture", MODELS)
def test_round_trip(architecture, tmp_path):
    model = MODELS[architecture]()
    check_both_ways(model, tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["architectures"] == [architecture]


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
        ({"max_position_embeddings": 1}, "max_position_embeddings: expected at least 1, got -1"),
        ({"max_position_embeddings": 40}, r"position_embeddings.weight: expected the shape \(40, 8\)"),
        ({"pad_token_id": None}, "pad_token_id: expected a whole number, got None"),
        ({"pad_token_id": 30}, "max_position_embeddings: expected at least 1, got -13"),
    ],
)
def test_wrong_configurations_of_roberta(entries, message, tmp_path):
    RoBERTa(test_roberta.TINY).save_huggingface(tmp_path / "model")
    change_config(tmp_path / "model", **entries)
    with pytest.raises(CheckpointError, match=message):
        convert.from_huggingface(tmp_path / "model")


@pytest.mark.parametrize("value", ["mish", ["gelu"]])
@pytest.mark.parametrize("entry", ["pooler_hidden_act", "conv_act", "hidden_act"])
def test_an_activation_that_is_not_known_is_refused_by_its_entry(entry, value, tmp_path):
    convert.save_huggingface(MODELS["DebertaV2ForSequenceClassification"](), tmp_path / "model")
    change_config(tmp_path / "model", **{entry: value})
    with pytest.raises(CheckpointError, match=f"config.json: {entry}: expected one of gelu, relu, .*, got"):
        convert.from_huggingface(tmp_path / "model")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: MaskedLM(RoBERTa(ROBERTA)),
            "MaskedLM around RoBERTa has no counterpart",
        ),  # relu in the head
        (lambda: Classifier(RoBERTa(ROBERTA), 3), "Classifier around RoBERTa has no counterpart"),
        (  # it reads the pooler, which theirs has not
            lambda: Classifier(RoBERTa(dataclasses.replace(ROBERTA, pooler=True)), 3, **TWO_LAYERS),
            "Classifier around RoBERTa has no counterpart",
        ),
        (
            lambda: Classifier(ESM2(dataclasses.replace(test_esm2.SMALL, pooler=True)), 3, hidden_dim=8),
            "Classifier around ESM2 has no counterpart",
        ),
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


@pytest.mark.parametrize(
    "make",
    [
        lambda: RoBERTa(dataclasses.replace(ROBERTA, activation="elu")),
        lambda: DeBERTa(dataclasses.replace(V2, convolution_activation="elu")),
        lambda: Classifier(DeBERTa(V2), 3, **TWO_LAYERS, activation="elu"),
    ],
    ids=["block", "convolution", "head"],
)
def test_an_activation_without_a_name_there_is_not_written(make, tmp_path):
    with pytest.raises(ValueError, match="transformers has no name for the activation 'elu', only for gelu"):
        convert.save_huggingface(make(), tmp_path / "model")


def test_the_arguments_of_a_new_head_are_those_of_the_backbone_s_family():
    arguments, _ = convert.head_arguments(DeBERTa(V2), MultipleChoice, {})
    assert arguments["hidden_dim"] == V2.dim
    backbone = Recurrent.from_size("tiny", vocabulary_size=11)  # of no family
    assert convert.head_arguments(backbone, Classifier, {}) == ({}, {})


def test_another_epsilon_is_not_distilberts(tmp_path):
    with pytest.raises(ValueError, match="DistilBertModel computes only `epsilon` 1e-12; it is 1e-05"):
        DistilBERT(dataclasses.replace(DISTILBERT, epsilon=1e-5)).save_huggingface(tmp_path / "model")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"num_hidden_groups": 9_999}, "`num_groups` is 9,999, and there are 41 weights"),
        ({"num_hidden_groups": 10**9}, "num_hidden_groups: expected at most 10,000, got 1000000000"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: expected at most 256, got 1000000000"),
        ({"num_hidden_groups": 0}, "num_hidden_groups: expected at least 1, got 0"),
        ({"num_hidden_groups": 1}, "albert_layer_groups.1.* expected no such weight"),
        ({"embedding_size": 7}, "`embedding_dim` is 7, and no weight has such an axis"),
    ],
)
def test_wrong_configurations_of_albert(entries, message, tmp_path):
    ALBERT(test_albert.TINY).save_huggingface(tmp_path / "model")
    change_config(tmp_path / "model", **entries)
    with pytest.raises(CheckpointError, match=message):
        convert.from_huggingface(tmp_path / "model")


def test_a_few_blocks_are_many_layers(tmp_path):
    config = dataclasses.replace(test_albert.TINY, num_layers=60, num_groups=1, group_size=1)
    ALBERT(config).save_huggingface(tmp_path / "model")
    assert ALBERT.from_huggingface(tmp_path / "model").config == config


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"pos_att_type": []}, "pos_att_type: expected a value of its kind"),
        ({"relative_attention": False}, "pos_att_type: expected a value of its kind"),
        ({"pos_att_type": "c2c"}, "expected a configuration of DeBERTa, got `terms` must be 'c2p'"),
        ({"norm_rel_ebd": "batch_norm"}, "norm_rel_ebd: expected a value of its kind, got 'batch_norm'"),
        ({"conv_act": "mish"}, "conv_act: expected one of gelu, relu, .*, got 'mish'"),
        ({"conv_groups": 2}, "conv_groups: expected 1, got 2"),
        ({"conv_kernel_size": 4}, "`convolution` must be odd, or 0 for none; it is 4"),
        ({"conv_kernel_size": 0}, "encoder.conv.LayerNorm.bias: expected no such weight"),
        ({"position_buckets": 6}, r"encoder.rel_embeddings.weight: expected the shape \(12, 8\)"),
        ({"position_buckets": 2**15}, "`num_buckets` must be 0, or even"),
        (
            {"position_buckets": 4, "max_relative_positions": 3},
            "`num_buckets` must be 0, or even, .* = 4; it is 4",
        ),
        ({"max_relative_positions": 2**30}, "max_relative_positions: expected at most 1,048,576"),
        (
            {"type_vocab_size": 2**16},
            r"token_type_embeddings.weight: expected a tensor for .* \(65536, 8\), got none",
        ),
        ({"max_relative_positions": 9, "position_buckets": -1}, r"rel_embeddings.weight: .* \(18, 8\)"),
        ({"share_att_key": False}, r"pos_key_proj.weight: expected a tensor for .*, got none"),
        ({"position_biased_input": True}, "position_embeddings.weight: .* got none"),
    ],
)
def test_wrong_configurations_of_deberta(entries, message, tmp_path):
    DeBERTa(test_deberta.V2).save_huggingface(tmp_path / "model")
    change_config(tmp_path / "model", **entries)
    with pytest.raises(CheckpointError, match=message):
        convert.from_huggingface(tmp_path / "model")


def test_older_names_of_debertas_terms_and_the_newer_form_of_its_head(tmp_path):
    model = MaskedLM(DeBERTa(test_deberta.V2))
    randomise(model, seed=0)
    convert.save_huggingface(model, tmp_path / "model")
    change_config(tmp_path / "model", pos_att_type="p2c|c2p", legacy=False)
    path = tmp_path / "model" / WEIGHTS
    names = {
        "cls.predictions.transform.dense": "lm_predictions.lm_head.dense",
        "cls.predictions.transform.LayerNorm": "lm_predictions.lm_head.LayerNorm",
        "cls.predictions.bias": "lm_predictions.lm_head.bias",
    }
    tensors = {key: np.array(x) for key, x in read_tensors(path)[0].items()}
    for old, new in names.items():
        tensors = {key.replace(old, new): x for key, x in tensors.items()}
    # what the released files hold besides
    tensors |= {
        "mask_predictions.dense.weight": np.ones((8, 8), "float32"),
        "deberta.embeddings.position_embeddings.weight": np.ones((16, 8), "float32"),
    }
    write_tensors(tensors, path)
    for a, b in zip(
        model.trainable_weights, convert.from_huggingface(tmp_path / "model").trainable_weights, strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_a_deberta_of_neither_version_is_not_written(tmp_path):
    model = DeBERTa(dataclasses.replace(test_deberta.V2, key_bias=False))
    with pytest.raises(ValueError, match="DebertaModel computes only `num_buckets` 0; it is 4"):
        model.save_huggingface(tmp_path / "model")
