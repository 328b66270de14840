"""Losses and scores of structures: moved and mirrored, hidden residues, confidences by hand."""

import numpy as np
import pytest
from keras import ops

from keras_tfm import heads
from keras_tfm.heads.structure import SymmetricPairs
from keras_tfm.layers import Frames, frames_of_points, rotation_of_quaternion
from tests import contract
from tests.contract import Case, floats, randomise

test_contract = contract.check(
    Case("SymmetricPairs", lambda: SymmetricPairs(3, 0.5), {"pair": floats("T", "T", 4)})
)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def chain(seed=0, size=1, length=6):
    """The backbones (B, N) of random chains, as frames, and all their atoms (B, 3 N, 3)."""
    atoms = 4 * drawn(3, size, length, 3, seed=seed)
    return frames_of_points(*atoms), np.moveaxis(atoms, 0, 2).reshape(size, -1, 3)


def error(first, second, mask=None, **options):
    frames, points = first
    count = points.shape[1] // 3
    mask = np.ones((len(points), count)) if mask is None else mask
    masks = mask, np.repeat(mask, 3, axis=1)
    return np.asarray(
        heads.frame_aligned_error(frames, second[0], masks[0], points, second[1], masks[1], **options)
    )


def moved(structure, seed=5):
    quaternion = drawn(4, seed=seed)
    rotation = rotation_of_quaternion(quaternion / np.linalg.norm(quaternion))
    all_of_them = Frames(rotation, 30 * drawn(3, seed=seed + 1))
    frames, points = structure
    return all_of_them.compose(frames), np.asarray(all_of_them.apply(points))


def mirrored(structure):
    atoms = structure[1].reshape(len(structure[1]), -1, 3, 3) * np.array([1, 1, -1], "float32")
    return frames_of_points(*np.moveaxis(atoms, 2, 0)), atoms.reshape(structure[1].shape)


def test_no_movement_of_all_changes_the_error():
    truth, other = chain(), chain(seed=3)
    expected = error(other, truth)
    np.testing.assert_allclose(error(moved(other), truth), expected, atol=1e-4)
    np.testing.assert_allclose(error(moved(truth), truth), 0.001, atol=1e-4)  # the root of epsilon, over 10
    np.testing.assert_allclose(error(moved(other), moved(truth, seed=8)), expected, atol=1e-4)


def test_a_mirror_image_has_an_error():
    """Its distances are all right: a loss of distances alone would not see it."""
    truth = chain()
    image = mirrored(truth)
    assert error(image, truth) > 0.1
    scores = heads.local_distance_score(image[1], truth[1], np.ones((1, 18)))
    np.testing.assert_allclose(scores, 1, atol=1e-6)


def test_errors_by_hand():
    frames, points = chain(length=3)
    other_frames, other = chain(seed=3, length=3)
    total = []
    for i in range(3):
        inside = [
            (p[0] - np.asarray(f.translation)[0, i]) @ np.asarray(f.rotation)[0, i]
            for f, p in ((frames, points), (other_frames, other))
        ]
        distances = np.sqrt(np.square(inside[0] - inside[1]).sum(-1) + 1e-4)
        total.append(np.minimum(distances, 5) / 10)
    structures = (frames, points), (other_frames, other)
    np.testing.assert_allclose(error(*structures, clamp=5.0), np.mean(total), rtol=1e-4)
    assert error(*structures, clamp=None) > error(*structures, clamp=5.0)


def test_hidden_residues_change_nothing():
    truth, other = chain(), chain(seed=3)
    mask = np.array([[1.0, 1, 0, 1, 1, 0]])
    expected = error(other, truth, mask)
    points = other[1].copy()
    points[:, 6:9], points[:, 15:] = 99, -99
    changed = Frames(other[0].rotation, other[0].translation + 50 * (1 - mask[..., None]).astype("float32"))
    np.testing.assert_allclose(error((changed, points), truth, mask), expected, rtol=1e-5)
    assert error(other, truth, 0 * mask) == 0


def test_examples_that_are_not_clamped():
    frames, true = np.zeros((2, 1, 3, 7), "float32"), np.tile(np.eye(4, dtype="float32"), (2, 3, 1, 1))
    frames[..., 0], frames[:, 0, 1, 4] = 1, 100
    clamped = np.asarray(heads.backbone_error(frames, true, np.ones((2, 3)), np.array([1, 0])))
    # of nine distances four are 100
    np.testing.assert_allclose(clamped, [4 / 9, 40 / 9], rtol=1e-2)


def test_half_turns_change_nothing_where_they_may():
    angles = np.zeros((1, 1, 2, 7, 2), "float32")
    angles[..., 1] = 1
    chi, mask = -angles[:, 0, :, 3:], np.ones((1, 2, 4))
    flags = np.zeros((1, 2, 4))
    flags[0, 1] = 1
    loss = heads.torsion_loss(angles, 3 * angles, chi, mask, flags, np.ones((1, 2)), norm_weight=0.0)
    np.testing.assert_allclose(loss, 0.5 * 4 * 0.5, rtol=1e-3)  # half of the angles, squared 2
    norms = heads.torsion_loss(angles, 3 * angles, -chi, mask, 0 * flags, np.ones((1, 2)), 0.1, 0.0)
    np.testing.assert_allclose(norms, 0.1 * 2, rtol=1e-3)


def test_distance_scores_by_hand():
    truth = np.array([[[0, 0, 0], [4, 0, 0], [8, 0, 0], [40, 0, 0]]], "float32")
    found = np.array([[[0, 0, 0], [4.7, 0, 0], [8, 0, 0], [40, 0, 0]]], "float32")
    scores = np.asarray(heads.local_distance_score(found, truth, np.ones((1, 4))))[0]
    # off by 0.7: within 1, 2 and 4; the last residue has no neighbour
    np.testing.assert_allclose(scores, [(0.75 + 1) / 2, 0.75, (1 + 0.75) / 2, 1], rtol=1e-5)
    hidden = heads.local_distance_score(found, truth, np.array([[1, 0, 1, 1]]))
    np.testing.assert_allclose(np.asarray(hidden)[0, [0, 2]], 1, rtol=1e-5)


def test_cross_entropies():
    places = np.array([[[0, 0, 0], [3, 0, 0], [30, 0, 0]]], "float32")
    mask = np.array([[1, 1, 0]])
    even = np.zeros((1, 3, 3, 8), "float32")
    np.testing.assert_allclose(heads.distogram_loss(even, places, mask), np.log(8), rtol=1e-5)
    sure = np.zeros((1, 3, 3, 8), "float32")
    sure[0, [0, 1, 0, 1], [0, 1, 1, 0], [0, 0, 1, 1]] = 50
    np.testing.assert_allclose(heads.distogram_loss(sure, places, mask), 0, atol=1e-5)
    loss = heads.confidence_loss(np.zeros((1, 3, 5)), places, places, mask, np.array([2.0]))
    np.testing.assert_allclose(loss, np.log(5), rtol=1e-5)
    assert float(heads.confidence_loss(np.zeros((1, 3, 5)), places, places, mask, np.array([5.0]))[0]) == 0
    hidden = np.array([[[1, 0, 0]]])
    loss = heads.masked_msa_loss(np.zeros((1, 1, 3, 23)), np.zeros((1, 1, 3)), hidden)
    np.testing.assert_allclose(loss, np.log(23), rtol=1e-5)


def test_expected_scores():
    logits = np.full((1, 20, 20, 64), -50, "float32")
    logits[..., 0] = 50
    scale = 1.24 * 5 ** (1 / 3) - 1.8
    np.testing.assert_allclose(heads.expected_tm(logits), 1 / (1 + (0.25 / scale) ** 2), rtol=1e-4)
    np.testing.assert_allclose(heads.expected_aligned_error(logits), 31 / 62 / 2, rtol=1e-4)
    worst = np.roll(logits, -1, axis=-1)
    assert float(heads.expected_tm(worst)[0]) < 0.01
    mixed = np.concatenate([logits, worst], axis=2)  # columns of padding
    mixed = np.concatenate([mixed, np.concatenate([worst, worst], axis=2)], axis=1)
    seen = np.arange(40)[None] < 20
    np.testing.assert_allclose(heads.expected_tm(mixed, seen), heads.expected_tm(logits), rtol=1e-5)
    confident = np.array([-50.0, -50, 50])
    np.testing.assert_allclose(heads.expected_score(confident), 5 / 6, rtol=1e-5)


def test_logits_of_pairs_are_symmetric_and_a_bias_counts_twice():
    layer, x = SymmetricPairs(3), drawn(1, 4, 4, 5)
    layer(x)
    randomise(layer, 1)
    y = np.asarray(layer(x))
    np.testing.assert_allclose(y, y.swapaxes(1, 2), atol=1e-6)
    bias = np.asarray(layer.projection.bias)
    np.testing.assert_allclose(layer(0 * x)[0, 0, 0], 2 * bias, rtol=1e-5)


@pytest.mark.parametrize("size", [1, 2])
def test_gradients_are_finite_at_the_truth(size):
    import tensorflow as tf

    frames, points = chain(size=size, length=1)
    points = tf.Variable(points)
    with tf.GradientTape() as tape:
        loss = ops.sum(error_of(frames, points))
    assert np.isfinite(tape.gradient(loss, points)).all()


def error_of(frames, points):
    size, count = points.shape[:2]
    masks = np.ones((size, count // 3)), np.ones((size, count))
    truth = ops.stop_gradient(points)
    return heads.frame_aligned_error(frames, frames, masks[0], points, truth, masks[1])
