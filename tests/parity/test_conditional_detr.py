"""Live: Conditional DETR against transformers', around its ResNet: outputs, padding, folders both ways."""

import os

import numpy as np
import pytest
import transformers
from transformers.models.conditional_detr.modeling_conditional_detr import ConditionalDetrFrozenBatchNorm2d

from tests.parity.images import assert_same_weights, draw_images
from tests.parity.test_detr import assert_detectors_agree, draw_config, draw_model, is_shown

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (transformers.ConditionalDetrModel, transformers.ConditionalDetrForObjectDetection)


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.alike("kind")
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    config = draw_config(rng, None, transformers.ConditionalDetrConfig)
    config.decoder_layers += 1  # a single block does not use all that theirs has
    theirs = draw_model(rng, kind, config, ConditionalDetrFrozenBatchNorm2d)
    back = assert_detectors_agree(theirs, draw_images(rng, theirs.config), rng, tmp_path, is_shown)
    assert_same_weights(theirs, back)
