"""Losses that are sums of means: what they are not asked for."""

import numpy as np
import pytest

from keras_tfm import heads


def test_a_weight_of_examples_is_refused():
    loss, labels, logits = heads.SegmentationLoss(), np.zeros((2, 1, 1), "uint8"), np.zeros((2, 1, 1, 3))
    assert float(loss(labels, logits)) == pytest.approx(np.log(3))
    with pytest.raises(ValueError, match="must be None: a SegmentationLoss divides by counts of its own"):
        loss(labels, logits, sample_weight=np.ones(2))
