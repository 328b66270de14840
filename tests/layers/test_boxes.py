"""Corrections of boxes and the suppression of boxes that better ones cover, against the definitions."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.layers.boxes import NonMaximumSuppression, box_iou, centred, corners_of, correction_of, moved


def draw(rng, *shape):
    return rng.uniform(0.1, 0.9, (*shape, 4)).astype("float32")


@given(st.integers(0, 2**32 - 1))
def test_a_correction_moves_a_box_to_the_other(seed):
    boxes, others = draw(np.random.default_rng(seed), 2, 5)
    weights = (10.0, 10.0, 5.0, 5.0)
    np.testing.assert_allclose(
        moved(boxes, correction_of(boxes, others, weights), weights), others, atol=1e-4
    )
    np.testing.assert_allclose(centred(corners_of(boxes)), boxes, atol=1e-6)


def test_a_correction_by_hand():
    box, other = np.array([0.5, 0.5, 0.2, 0.4]), np.array([0.6, 0.3, 0.4, 0.4])
    found = correction_of(box, other, (10.0, 10.0, 5.0, 5.0))
    np.testing.assert_allclose(found, [5.0, -5.0, 5 * np.log(2), 0.0], atol=1e-6)
    assert np.isfinite(correction_of(box * 0, other, (1.0,) * 4)).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_a_box_is_dropped_that_a_better_one_covers(seed, count):
    rng = np.random.default_rng(seed)
    boxes, mask, classes = draw(rng, 2, count), rng.random((2, count)) < 0.8, rng.integers(0, 2, (2, count))
    found = np.asarray(NonMaximumSuppression(0.3)(boxes, mask, classes))
    overlaps = np.asarray(box_iou(boxes[:, :, None], boxes[:, None])) > 0.3
    for row in range(2):
        stays: list = []
        for i in np.flatnonzero(mask[row]):
            if not any(overlaps[row, i, j] and classes[row, i] == classes[row, j] for j in stays):
                stays.append(i)
        assert np.flatnonzero(found[row]).tolist() == stays
    alone = np.asarray(NonMaximumSuppression(0.3)(boxes, mask))
    assert not np.any(alone & ~mask) and alone.sum() <= mask.sum()
