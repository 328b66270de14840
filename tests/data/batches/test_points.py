"""Batches of clouds: which points are shown, and how they are changed."""

import numpy as np
import pytest

from keras_tfm.data import PointAugmentation, PointBatches, PointClouds
from keras_tfm.serving.point_files import sampled

POINTS = np.random.default_rng(0).normal(size=(4, 50, 3)).astype("float32")


def test_validation_shows_what_is_answered():
    clouds = PointClouds([np.arange(3.0 * size).reshape(size, 3) for size in (3, 7, 20)])
    batches = PointBatches(clouds, [2, 0, 1], lambda points: points, batch_size=2, num_points=7)
    found = list(batches.dataset())
    assert [labels.numpy().tolist() for _, labels in found] == [[2, 0], [1]]
    points = np.concatenate([inputs["points"] for inputs, _ in found])
    np.testing.assert_array_equal(points, [sampled(cloud, 7) for cloud in clouds])


def test_each_epoch_shows_other_points_of_a_cloud():
    clouds = PointClouds([np.arange(3.0 * size).reshape(size, 3) for size in (4, 40)])
    batches = PointBatches(clouds, [0, 1], lambda points: points, 2, num_points=8, seed=1)
    shown = {0: [], 1: []}
    for inputs, labels in batches.epochs().take(20):
        for points, label in zip(inputs["points"].numpy(), labels.numpy(), strict=True):
            shown[int(label)].append(points[:, 0] // 3)
            assert all((row in clouds[int(label)].tolist()) for row in points.tolist())
    assert all(np.bincount(rows.astype(int)).tolist() == [2] * 4 for rows in shown[0])
    assert all(len(set(rows)) == 8 for rows in shown[1])
    assert len({tuple(sorted(rows)) for rows in shown[1]}) > 8
    (again,) = PointBatches(clouds, [0, 1], lambda x: x, 2, num_points=8, seed=1).dataset(19)
    np.testing.assert_array_equal(again[0]["points"], inputs["points"])


@pytest.mark.parametrize("turns", ["none", "vertical", "all"])
@pytest.mark.parametrize("vertical", [0, 1, 2])
def test_clouds_are_turned(turns, vertical):
    change = PointAugmentation(turns, jitter=0.0, scaling=0.0, vertical="xyz"[vertical])
    turned = change(POINTS, (1, 2)).numpy()
    products = [np.einsum("bnc,bmc->bnm", x, x) for x in (POINTS, turned)]
    np.testing.assert_allclose(*products, atol=1e-5)  # lengths and angles stay
    volumes = [np.linalg.det(x[:, :3]) for x in (POINTS, turned)]
    np.testing.assert_allclose(*volumes, atol=1e-5)  # nothing is mirrored
    stays = np.abs(turned - POINTS).max(axis=(0, 1)) < 1e-5
    assert stays.tolist() == [
        turns == "none" or (turns == "vertical" and axis == vertical) for axis in range(3)
    ]
    if turns != "none":  # each in its own way
        angles = [
            np.arccos(np.clip((x * y).sum() / (x * x).sum(), -1, 1))
            for x, y in zip(POINTS, turned, strict=True)
        ]
        assert len(set(np.round(angles, 3))) == 4


def test_clouds_are_scaled_and_shaken():
    scaled = PointAugmentation("none", jitter=0.0, scaling=0.5)(POINTS, (3, 4)).numpy()
    factors = scaled / POINTS
    np.testing.assert_allclose(factors, factors[:, :1, :1] * np.ones_like(factors), rtol=1e-4)
    assert (
        len(set(np.round(factors[:, 0, 0], 4))) == 4 and (factors >= 1 / 1.5).all() and (factors <= 1.5).all()
    )
    shaken = PointAugmentation("none", jitter=0.1, scaling=0.0)(POINTS, (3, 4)).numpy() - POINTS
    assert 0.08 < shaken.std() < 0.12 and abs(shaken.mean()) < 0.02
    np.testing.assert_array_equal(PointAugmentation("none", 0.0, 0.0)(POINTS, (3, 4)), POINTS)
