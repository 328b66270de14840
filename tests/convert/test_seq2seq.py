"""T5's, BART's and mBART's folders: written and read again, older files, and what is refused."""

import dataclasses
import json

import numpy as np
import pytest

from keras_tfm import convert
from keras_tfm.convert import CheckpointError
from keras_tfm.convert.folder import WEIGHTS
from keras_tfm.heads import Classifier, LanguageModel, SpanFinder
from keras_tfm.models import BART, T5
from keras_tfm.training.safetensors import read_tensors
from keras_tfm.training.weights import write_tensors
from tests.contract import randomise
from tests.models import test_bart, test_t5

MODELS = {
    "t5": lambda: T5(dataclasses.replace(test_t5.TINY, activation="relu", epsilon=1e-3, end_id=3)),
    "t5_v1_1": lambda: T5(dataclasses.replace(test_t5.GATED, activation="gelu_tanh")),
    "bart": lambda: BART(dataclasses.replace(test_bart.TINY, activation_dropout=0.2, start_id=4)),
    "mbart": lambda: BART(test_bart.OTHER),
}


@pytest.fixture(params=MODELS)
def model(request):
    backbone = MODELS[request.param]()
    model = LanguageModel(backbone, use_bias=isinstance(backbone, BART))
    randomise(model, seed=0)
    return model


def entries_of(folder):
    return json.loads((folder / "config.json").read_text())


def assert_equal(a, b):
    assert a.get_config() == b.get_config()
    for mine, theirs in zip(a.weights, b.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_round_trip(model, tmp_path):
    for one, name in ((model, "head"), (model.backbone, "backbone")):
        convert.save_huggingface(one, tmp_path / name)
        assert_equal(convert.from_huggingface(tmp_path / name), one)
    kind = entries_of(tmp_path / "head")["architectures"]
    backbone = type(model.backbone).from_huggingface(tmp_path / "head")  # the head is left behind
    assert_equal(backbone, model.backbone)
    mbart = model.backbone.config.__dict__.get("normalize_first")
    prefix = "T5" if isinstance(model.backbone, T5) else "MBart" if mbart else "Bart"
    assert kind == [f"{prefix}ForConditionalGeneration"]


def test_a_head_without_weights_of_its_own_comes_around_a_bare_model(tmp_path):
    """facebook/bart-base names BartModel."""
    for name in ("bart", "mbart", "t5"):
        backbone = MODELS[name]()
        convert.save_huggingface(backbone, tmp_path / name)
        model = convert.from_huggingface(tmp_path / name, LanguageModel)
        assert_equal(model, LanguageModel(backbone, use_bias=name != "t5"))


def test_mbart_s_folders_may_have_no_start(tmp_path):
    """As transformers 5 writes them, where a target begins with the token of its language."""
    convert.save_huggingface(MODELS["mbart"](), tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(entries_of(tmp_path / "model") | {"decoder_start_token_id": None}))
    assert convert.from_huggingface(tmp_path / "model").config.start_id == 2


def test_older_files(model, tmp_path):
    """The tied table under its other names, without the bias that is zero."""
    convert.save_huggingface(model, tmp_path / "model")
    path = tmp_path / "model" / WEIGHTS
    tensors = {key: np.array(x) for key, x in read_tensors(path)[0].items()}
    (shared,) = [key for key in tensors if key.endswith("shared.weight")]
    table = tensors.pop(shared)
    for name in ("encoder", "decoder"):
        tensors[shared.replace("shared", f"{name}.embed_tokens")] = table
    bias = tensors.pop("final_logits_bias", None)
    write_tensors(tensors, path)
    if bias is not None:
        model.head.bias.assign(np.zeros(11))
    assert_equal(convert.from_huggingface(tmp_path / "model"), model)
    write_tensors(tensors | {shared: table + 1}, path)
    with pytest.raises(CheckpointError, match="embed_tokens"):
        convert.from_huggingface(tmp_path / "model")


def test_an_output_that_is_another_is_refused_where_it_is_tied(tmp_path):
    model = LanguageModel(MODELS["t5"]())
    convert.save_huggingface(model, tmp_path / "model")
    path = tmp_path / "model" / WEIGHTS
    tensors = {key: np.array(x) for key, x in read_tensors(path)[0].items()}
    write_tensors(tensors | {"lm_head.weight": tensors["shared.weight"] + 1}, path)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight"):
        convert.from_huggingface(tmp_path / "model")
    entries = entries_of(tmp_path / "model") | {"tie_word_embeddings": False}
    (tmp_path / "model" / "config.json").write_text(json.dumps(entries))
    assert not convert.from_huggingface(tmp_path / "model").tied


def test_version_5_says_otherwise_that_it_is_tied(tmp_path):
    model = LanguageModel(MODELS["t5_v1_1"]())
    convert.save_huggingface(model, tmp_path / "model")
    entries = entries_of(tmp_path / "model")
    assert entries["feed_forward_proj"] == "gated-gelu" and entries["tie_word_embeddings"] is False
    entries |= {"tie_word_embeddings": True, "scale_decoder_outputs": False}
    (tmp_path / "model" / "config.json").write_text(json.dumps(entries))
    assert_equal(convert.from_huggingface(tmp_path / "model"), model)


def test_of_several_ends_the_model_keeps_the_first(model, tmp_path):
    convert.save_huggingface(model, tmp_path / "model")
    path, end_id = tmp_path / "model" / "config.json", model.backbone.config.end_id
    path.write_text(json.dumps(entries_of(tmp_path / "model") | {"eos_token_id": [end_id, 5]}))
    assert convert.from_huggingface(tmp_path / "model").backbone.config == model.backbone.config


@pytest.mark.parametrize(
    ("name", "entry", "value"),
    [
        ("bart", "eos_token_id", []),
        ("t5", "feed_forward_proj", "gated-exec"),
        ("t5", "feed_forward_proj", 3),
        ("t5", "is_encoder_decoder", False),
        ("t5", "d_kv", 5),
        ("t5", "num_decoder_layers", 2),
        ("t5", "num_decoder_layers", 10**9),
        ("bart", "tie_word_embeddings", False),
        ("bart", "decoder_ffn_dim", 10**9),
        ("bart", "decoder_layers", 2),
        ("bart", "max_position_embeddings", 13),
        ("bart", "encoder_attention_heads", 4),
        ("mbart", "activation_function", "exec"),
    ],
)
def test_what_we_do_not_compute_is_refused(name, entry, value, tmp_path):
    backbone = MODELS[name]()
    convert.save_huggingface(LanguageModel(backbone, use_bias=isinstance(backbone, BART)), tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(entries_of(tmp_path / "model") | {entry: value}))
    with pytest.raises(CheckpointError):
        convert.from_huggingface(tmp_path / "model")


def test_what_they_do_not_compute_is_refused(tmp_path):
    model = BART(dataclasses.replace(test_bart.TINY, epsilon=1e-3))
    with pytest.raises(ValueError, match=r"BartModel computes only `epsilon` 1e-05; it is 0\.001"):
        convert.save_huggingface(model, tmp_path / "model")
    with pytest.raises(ValueError, match="no gate with the exact GELU"):
        convert.save_huggingface(T5(test_t5.GATED), tmp_path / "model")
    with pytest.raises(ValueError, match="no name for the activation 'elu'"):
        convert.save_huggingface(T5(dataclasses.replace(test_t5.GATED, activation="elu")), tmp_path / "model")


@pytest.mark.parametrize("name", ["bart", "mbart"])
def test_heads_that_read_a_text(name, tmp_path):
    """The decoder reads it once more; the classifier's vector stands at the last end, and is NaN without."""
    backbone = MODELS[name]()
    models = Classifier(backbone, 3, backbone.config.dim, 0.1, "tanh", 0.1), SpanFinder(MODELS[name]())
    end_id, start_id = backbone.config.end_id, backbone.config.start_id
    rows = np.array([[5, end_id, 6, end_id, 7], [5, 6, 7, 8, end_id], [5, 6, 7, 8, 9]], "int32")
    for i, model in enumerate(models):
        randomise(model, seed=0)
        convert.save_huggingface(model, tmp_path / str(i))
        kept = convert.from_huggingface(tmp_path / str(i))
        assert_equal(kept, model)
        states = model.backbone(
            {"token_ids": rows, "decoder_token_ids": np.insert(rows[:, :-1], 0, start_id, axis=1)}
        )["decoder_sequence_output"]
        answers = kept({"token_ids": rows})
        if i:
            logits = model.get_layer("head")(states)
            np.testing.assert_array_equal(np.stack([answers["start"], answers["end"]], -1), logits)
        else:
            pooled = np.stack([states[0, 3], states[1, 4]])
            np.testing.assert_allclose(answers[:2], model.head(pooled), rtol=1e-5, atol=1e-6)
            assert np.isnan(answers[2]).all()
