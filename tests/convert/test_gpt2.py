"""GPT-2's folders: written and read again, older files, and what is refused."""

import dataclasses
import json

import numpy as np
import pytest

from keras_tfm import convert
from keras_tfm.convert import CheckpointError
from keras_tfm.convert.folder import WEIGHTS
from keras_tfm.heads import LanguageModel
from keras_tfm.models import GPT2
from keras_tfm.training.safetensors import read_tensors
from keras_tfm.training.weights import write_tensors
from tests.contract import randomise
from tests.models.test_gpt2 import TINY

CONFIG = dataclasses.replace(TINY, dropout=0.2, attention_dropout=0.3, embedding_dropout=0.4, epsilon=1e-3)


@pytest.fixture
def model():
    model = LanguageModel(GPT2(CONFIG))
    randomise(model, seed=0)
    return model


@pytest.mark.parametrize("intermediate_dim", [None, 7])
@pytest.mark.parametrize("with_head", [True, False])
def test_round_trip(with_head, intermediate_dim, tmp_path):
    model = GPT2(dataclasses.replace(CONFIG, intermediate_dim=intermediate_dim))
    model = LanguageModel(model) if with_head else model
    randomise(model, seed=0)
    convert.save_huggingface(model, tmp_path / "model")
    entries = json.loads((tmp_path / "model" / "config.json").read_text())
    assert entries["architectures"] == ["GPT2LMHeadModel" if with_head else "GPT2Model"]
    assert entries["activation_function"] == "gelu_new" and entries["n_inner"] == intermediate_dim
    other = convert.from_huggingface(tmp_path / "model")
    assert other.get_config() == model.get_config()
    for a, b in zip(model.trainable_weights, other.trainable_weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_older_files(model, tmp_path):
    """Names without their prefix, the tied table twice, and the masks that were once kept as buffers."""
    convert.save_huggingface(model, tmp_path / "model")
    path = tmp_path / "model" / WEIGHTS
    tensors = {key.removeprefix("transformer."): np.array(x) for key, x in read_tensors(path)[0].items()}
    masks = {"h.0.attn.bias": np.tri(12, dtype="float32"), "h.0.attn.masked_bias": np.float32([-1e4])}
    write_tensors(tensors | masks | {"lm_head.weight": tensors["wte.weight"]}, path)
    for a, b in zip(
        model.trainable_weights, convert.from_huggingface(tmp_path / "model").trainable_weights, strict=True
    ):
        np.testing.assert_array_equal(a, b)
    write_tensors(tensors | {"lm_head.weight": tensors["wte.weight"] + 1}, path)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight"):
        convert.from_huggingface(tmp_path / "model")


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("scale_attn_by_inverse_layer_idx", True),
        ("add_cross_attention", True),
        ("n_inner", "many"),
        ("n_inner", 7.5),
        ("n_head", 4),
        ("n_positions", 13),
        ("activation_function", "exec"),
    ],
)
def test_what_we_do_not_compute_is_refused(model, tmp_path, entry, value):
    convert.save_huggingface(model, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {entry: value}))
    with pytest.raises(CheckpointError):
        convert.from_huggingface(tmp_path / "model")


def test_what_they_do_not_compute_is_refused(tmp_path):
    model = GPT2(dataclasses.replace(CONFIG, normalize_first=False))
    with pytest.raises(ValueError, match="GPT2Model computes only `normalize_first` True; it is False"):
        convert.save_huggingface(model, tmp_path / "model")
