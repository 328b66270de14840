"""Folders of CLIP and SigLIP without transformers: round trips, older files, what is refused."""

import dataclasses
import json

import numpy as np
import pytest

from keras_tfm.convert import CheckpointError, from_huggingface, save_huggingface
from keras_tfm.heads import Contrastive
from keras_tfm.models import CLIP, SigLIP
from tests import contract
from tests.models import test_clip, test_siglip


def contrastive(make, config, **arguments):
    model = Contrastive(make(config), **arguments)
    contract.randomise(model, seed=0)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip") / "saved"
    save_huggingface(contrastive(CLIP, test_clip.SMALL), folder)
    return folder


def changed(folder, tmp_path, change):
    """A folder of the same weights whose config.json `change` has changed."""
    entries = json.loads((folder / "config.json").read_text())
    change(entries)
    (tmp_path / "config.json").write_text(json.dumps(entries))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    return tmp_path


def state_alone(entries, side, **values):
    """Let one tower alone state these `values`: for the other transformers takes its defaults."""
    for name in values:
        for tower in ("text_config", "vision_config"):
            entries[tower].pop(name)
    entries[f"{side}_config"] |= values


def test_clip_comes_back(folder):
    model = from_huggingface(folder)
    assert type(model) is Contrastive and model.backbone.config == test_clip.SMALL
    for a, b in zip(model.weights, contrastive(CLIP, test_clip.SMALL).weights, strict=True):
        np.testing.assert_array_equal(a, b, a.path)
    assert type(CLIP.from_huggingface(folder)) is CLIP


def test_siglip_comes_back(tmp_path):
    model = contrastive(SigLIP, test_siglip.SMALL, logit_bias=-10.0)
    save_huggingface(model, tmp_path / "saved")
    back = from_huggingface(tmp_path / "saved")
    assert back.backbone.config == test_siglip.SMALL
    for a, b in zip(back.weights, model.weights, strict=True):
        np.testing.assert_array_equal(a, b, a.path)


def test_the_width_of_siglip_s_vectors_is_the_texts_where_it_is_missing(tmp_path):
    """As in the folders of 2024, whose sizes but B are not as wide as the default."""
    config = dataclasses.replace(test_siglip.SMALL, text_dim=8, num_text_heads=2)
    save_huggingface(contrastive(SigLIP, config, logit_bias=-10.0), tmp_path / "saved")
    for place, change in enumerate(
        (
            lambda entries: entries["text_config"].pop("projection_size"),
            lambda entries: entries["text_config"].update(projection_size=None),
        )
    ):
        (tmp_path / str(place)).mkdir()
        older = changed(tmp_path / "saved", tmp_path / str(place), change)
        assert from_huggingface(older).backbone.config == config


def test_the_end_of_older_configurations_is_the_last_token(folder, tmp_path):
    older = changed(folder, tmp_path, lambda entries: entries["text_config"].update(eos_token_id=2))
    assert from_huggingface(older).backbone.config.end_id == 10
    model = CLIP(dataclasses.replace(test_clip.SMALL, end_id=2))
    with pytest.raises(ValueError, match="`end_id` cannot be 2"):
        save_huggingface(model, tmp_path / "saved")


def test_the_older_entry_of_a_tower_wins(folder, tmp_path):
    def change(entries):
        entries["text_config_dict"] = entries["text_config"]
        entries["text_config"] = {**entries["text_config"], "hidden_size": 1}
        entries["vision_config_dict"] = None

    assert from_huggingface(changed(folder, tmp_path, change)).backbone.config == test_clip.SMALL


@pytest.mark.parametrize("side", ["text", "vision"])
def test_a_tower_that_states_the_default_is_as_the_other(side, folder, tmp_path):
    def change(entries):
        state_alone(entries, side, hidden_act="quick_gelu", layer_norm_eps=1e-5, attention_dropout=0.0)

    config = from_huggingface(changed(folder, tmp_path, change)).backbone.config
    assert config == dataclasses.replace(test_clip.SMALL, activation="gelu_quick", epsilon=1e-5)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda entries: entries["text_config"].update(layer_norm_eps=0.25), "text_config.layer_norm_eps"),
        (lambda entries: state_alone(entries, "text", hidden_act="gelu"), "text_config.hidden_act"),
        (lambda entries: state_alone(entries, "vision", hidden_act="gelu"), "text_config.hidden_act"),
        (lambda entries: state_alone(entries, "vision", layer_norm_eps=0.25), "text_config.layer_norm_eps"),
        (lambda entries: entries["text_config"].update(vocab_size=12), "token_embedding.weight"),
        (lambda entries: entries.update(projection_dim=5), "visual_projection.weight"),
        (lambda entries: entries.update(vision_config=[1]), "vision_config"),
        (lambda entries: entries["text_config"].update(eos_token_id=-1), "text_config.eos_token_id"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(change, named, folder, tmp_path):
    with pytest.raises(CheckpointError, match=named):
        from_huggingface(changed(folder, tmp_path, change))
