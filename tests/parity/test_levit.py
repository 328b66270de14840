"""Live: LeViT against transformers': outputs, stages, gradients, folders both ways."""

import copy
import os

import numpy as np
import pytest
import torch
import transformers

from keras_tfm import convert
from keras_tfm.convert.levit import FAMILY
from tests.parity.images import answer, check_outputs, check_way_back, draw_weights, ours_of
from tests.parity.pyramids import check_gradients

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (
    transformers.LevitModel,
    transformers.LevitForImageClassification,
    transformers.LevitForImageClassificationWithTeacher,
)


def draw_model(rng, kind):
    """A model of theirs of three stages, and square images for it: it takes no others."""
    key_dim = int(rng.integers(2, 6))
    step = int(np.lcm(8, key_dim))
    config = transformers.LevitConfig(
        image_size=16 * int(rng.integers(1, 6)),
        num_channels=int(rng.integers(1, 4)),
        hidden_sizes=[step * int(x) for x in rng.integers(1, 3, 3)],
        depths=[int(x) for x in rng.integers(1, 3, 3)],
        num_attention_heads=[int(x) for x in rng.integers(1, 4, 3)],
        key_dim=[key_dim] * 3,
        attention_ratio=[2, 2, 2],
        mlp_ratio=[2, 2, 2],
        num_labels=int(rng.integers(2, 6)),  # one would be a regression to them
    )
    model = kind(config).eval()
    draw_weights(rng, model)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):  # so that states stay small
            module.weight.data *= module.in_features**-0.5 / 0.3
    shape = (3, config.image_size, config.image_size, config.num_channels)
    return model, rng.normal(size=shape).astype("float32")


def outputs_of(model, images):
    """{our name: theirs}, of a `model` in float32 or in float64."""
    theirs = answer(model, images, output_hidden_states=True)
    outputs = {"sequence_output": theirs.hidden_states[-1]}
    if (logits := getattr(theirs, "logits", None)) is not None:
        outputs["logits"] = logits
    return {name: x.detach().numpy() for name, x in outputs.items()}


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs, images = draw_model(rng, kind)
    ours = ours_of(theirs, tmp_path)
    backbone = getattr(ours, "backbone", ours)
    assert backbone.config.distilled == (kind is KINDS[2])
    actual = {"sequence_output": backbone(images)["sequence_output"]}
    if ours is not backbone:
        actual["logits"] = ours({"images": images})
    exact = outputs_of(copy.deepcopy(theirs).double(), images)
    check_outputs(actual, exact, outputs_of(theirs, images))
    if ours is not backbone:
        check_way_back(theirs, ours, tmp_path, FAMILY)
        return
    # The norm of ours belongs to a classifier of theirs.
    convert.save_huggingface(ours, tmp_path / "ours")
    back, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    beside = report.pop("unexpected_keys")
    assert not any(report.values()) and all(key.startswith("classifier.batch_norm.") for key in beside)
    state = back.state_dict()
    assert all(torch.equal(x, state[name]) for name, x in theirs.state_dict().items())


@pytest.mark.parametrize("seed", CONFIGS)
def test_gradients(seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs, images = draw_model(rng, KINDS[1])
    ours = ours_of(theirs, tmp_path)
    labels = rng.integers(0, theirs.config.num_labels, len(images))
    check_gradients(theirs, ours, FAMILY, images, labels, tmp_path)
