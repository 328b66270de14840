"""Live: SegFormer, its encoder, classifier and segmenter, against transformers': outputs, maps, gradients,
folders both ways.
"""

import os

import numpy as np
import pytest
import transformers

from keras_tfm.convert import mit
from keras_tfm.heads import SegmentationLoss
from tests.parity.encoders import ACTIVATIONS
from tests.parity.images import answer, assert_close, check_way_back, draw_model, ours_of
from tests.parity.pyramids import check_gradients, check_maps

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (
    transformers.SegformerModel,
    transformers.SegformerForImageClassification,
    transformers.SegformerForSemanticSegmentation,
)


def draw_config(rng, num_labels=2):
    """Images of any size; of each map theirs leaves out, as ours, what is no whole cell of a reduced one."""
    num_stages = int(rng.integers(1, 4))
    heads = rng.choice([1, 2, 4], num_stages)
    strides = rng.integers(1, 4, num_stages)
    return transformers.SegformerConfig(
        image_size=[int(np.prod(strides) * side) for side in rng.integers(3, 7, 2)],
        num_channels=int(rng.integers(1, 4)),
        num_encoder_blocks=num_stages,
        hidden_sizes=[int(4 * n) for n in rng.integers(1, 4, num_stages)],
        depths=[int(n) for n in rng.integers(1, 3, num_stages)],
        num_attention_heads=[int(n) for n in heads],
        patch_sizes=[int(n) for n in strides + rng.integers(0, 4, num_stages)],
        strides=[int(n) for n in strides],
        sr_ratios=[int(n) for n in rng.integers(1, 4, num_stages)],
        mlp_ratios=[int(n) for n in rng.integers(1, 5, num_stages)],
        hidden_dropout_prob=0.1,
        drop_path_rate=0.2,
        hidden_act=str(rng.choice(ACTIVATIONS)),
        decoder_hidden_size=int(4 * rng.integers(1, 4)),
        classifier_dropout_prob=0.2,
        num_labels=num_labels,
    )


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs, images = draw_model(rng, kind, draw_config(rng, int(rng.integers(2, 6))))
    ours = ours_of(theirs, tmp_path)
    outputs, expected = ours({"images": images}), answer(theirs, images)
    if kind is KINDS[0]:
        assert_close(outputs["sequence_output"], expected.last_hidden_state.flatten(2).transpose(1, 2))
    elif kind is KINDS[1]:
        assert_close(outputs, expected.logits)
    else:
        assert_close(outputs, expected.logits.permute(0, 2, 3, 1))
        assert (ours.dim, ours.dropout) == (theirs.config.decoder_hidden_size, 0.2)
    check_way_back(theirs, ours, tmp_path, mit.FAMILY)


@pytest.mark.parametrize("seed", CONFIGS)
def test_the_maps_of_every_stage(seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs, images = draw_model(rng, KINDS[0], draw_config(rng))
    norms = [stage.layer_norm for stage in theirs.stages]
    check_maps(ours_of(theirs, tmp_path), theirs, norms, images)


@pytest.mark.parametrize("seed", CONFIGS)
def test_gradients_of_classification(seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs, images = draw_model(rng, KINDS[1], draw_config(rng, 3))
    ours = ours_of(theirs, tmp_path)
    check_gradients(theirs, ours, mit.FAMILY, images, rng.integers(0, 3, len(images)), tmp_path)


@pytest.mark.parametrize("seed", CONFIGS)
def test_gradients_of_segmentation(seed, tmp_path):
    """Labels have the images' size, some are ignored; every statistic is as it was read."""
    rng = np.random.default_rng(seed)
    theirs, images = draw_model(rng, KINDS[2], draw_config(rng, 4))
    ours = ours_of(theirs, tmp_path)
    labels = np.where(rng.random(images.shape[:3]) < 0.2, 255, rng.integers(0, 4, images.shape[:3]))
    check_gradients(theirs, ours, mit.FAMILY, images, labels, tmp_path, SegmentationLoss())
