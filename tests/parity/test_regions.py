"""Live: RoIAlign against torchvision's, outputs and gradients, of boxes at most a cell outside of the maps.

Further away torchvision's compiled operators give 0, and its sister in Python, which stands in for them
where they are missing, does not. Ours is 0: tests/layers/test_regions.py.
"""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import torch
import torchvision

from keras_tfm.layers import roi_align

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(("size", "scale", "ratio"), [((3, 2), 1.0, 2), (7, 1 / 4, 1), (2, 1 / 16, 3)])
def test_roi_align(size, scale, ratio, aligned):
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(2, 9, 12, 5)).astype("float32")
    corners = rng.uniform(-0.4, (11, 8), (2, 20, 2, 2)) / scale
    corners.sort(axis=2)
    boxes = corners.reshape(2, 20, 4).astype("float32")
    theirs = torch.from_numpy(maps.transpose(0, 3, 1, 2).copy()).requires_grad_()
    # torchvision wants the boxes as lists, and its sides as a pair.
    pair = (size, size) if isinstance(size, int) else size
    regions = [torch.from_numpy(x) for x in boxes]
    # Without its compiled operators torchvision has the same in Python, which it would compile.
    with mock.patch("torch.compile", lambda function, **_: function):
        expected = torchvision.ops.roi_align(theirs, regions, pair, scale, ratio, aligned)
    weights = rng.normal(size=(2, 20, *pair, 5)).astype("float32")
    torch.sum(
        expected * torch.from_numpy(weights.reshape(40, *pair, 5).transpose(0, 3, 1, 2).copy())
    ).backward()
    ours = tf.constant(maps)
    with tf.GradientTape() as tape:
        tape.watch(ours)
        y = roi_align(ours, boxes, size, scale, ratio, aligned)
        loss = tf.reduce_sum(y * weights)
    shape = (2, 20, 5, *pair)
    np.testing.assert_allclose(
        y, expected.detach().numpy().reshape(shape).transpose(0, 1, 3, 4, 2), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(
        tape.gradient(loss, ours), theirs.grad.numpy().transpose(0, 2, 3, 1), rtol=1e-4, atol=2e-5
    )
