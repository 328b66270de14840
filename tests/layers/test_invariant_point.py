"""Frames by hand, and invariant point attention: all frames moved at once, a mirror, one residue alone."""

import math

import numpy as np
import pytest

from keras_tfm.layers import (
    Frames,
    InvariantPointAttention,
    frames_of_matrices,
    frames_of_points,
    frames_of_quaternions,
    rotation_of_quaternion,
)
from keras_tfm.layers.frames import distance_bins, turned
from keras_tfm.layers.residues import ATOMS, LETTERS, residues
from tests import contract
from tests.contract import Case, floats, mask, randomise

INPUTS = {
    "x": floats("T", 8),
    "pair": floats("T", "T", 6),
    "rotation": floats("T", 3, 3),
    "translation": floats("T", 3),
    "mask": mask("T"),
}
BIAS = ("pair_bias/bias",)  # adds the same to all scores
test_contract = contract.check(
    Case(
        "InvariantPointAttention",
        lambda: InvariantPointAttention(2, 3, 2, 3),
        INPUTS,
        attends=True,
        without_effect=BIAS,
    )
)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def random_frames(size, length, seed=0):
    quaternions = drawn(size, length, 4, seed=seed)
    quaternions /= np.linalg.norm(quaternions, axis=-1, keepdims=True)
    return Frames(rotation_of_quaternion(quaternions), 3 * drawn(size, length, 3, seed=seed + 1))


@pytest.fixture(scope="module")
def attention():
    layer = InvariantPointAttention(2, 4, 3, 5)
    layer(drawn(2, 6, 8), drawn(2, 6, 6, 7), *random_frames(2, 6))
    randomise(layer, 1)
    return layer


def test_no_movement_of_all_changes_it(attention):
    x, pair, frames = drawn(2, 6, 8), drawn(2, 6, 6, 7), random_frames(2, 6)
    (rotation,), (shift,) = random_frames(1, 1, seed=7)
    moved = Frames(rotation, 20 * shift).compose(frames)
    expected = attention(x, pair, *frames)
    np.testing.assert_allclose(attention(x, pair, *moved), expected, atol=1e-4)
    mirror = np.array([1, 1, -1], "float32")
    # The mirror image of a frame is left-handed; its last axis turned back makes a frame of it.
    mirrored = Frames(frames.rotation * mirror[:, None] * mirror, frames.translation * mirror)
    for others in (mirrored, random_frames(2, 6, seed=3)):
        assert np.abs(np.asarray(attention(x, pair, *others)) - expected).max() > 1e-2


def test_by_hand(attention):
    x, pair, frames = drawn(1, 4, 8), drawn(1, 4, 4, 7), random_frames(1, 4)
    w = {v.path.removeprefix(f"{attention.name}/"): np.asarray(v, "float64") for v in attention.weights}

    def dense(name, values):
        return values @ w[f"{name}/kernel"] + w[f"{name}/bias"]

    query, key, value = (y.reshape(4, 2, 4) for y in np.split(dense("query_key_value", x)[0], 3, axis=-1))
    local = dense("points", x)[0].reshape(4, 2, 11, 3)
    rotation, translation = (np.asarray(y[0], "float64") for y in frames)
    points = np.einsum("nab,nhpb->nhpa", rotation, local) + translation[:, None, None]
    scores = np.einsum("ihk,jhk->hij", query, key) / math.sqrt(3 * 4)
    scores += dense("pair_bias", pair)[0].transpose(2, 0, 1) / math.sqrt(3)
    gaps = points[:, None, :, :3] - points[None, :, :, 3:6]
    gamma = np.log1p(np.exp(w["point_weights"])) * math.sqrt(2 / (9 * 3)) / math.sqrt(3) / 2
    scores -= (np.square(gaps).sum((-1, -2)) * gamma).transpose(2, 0, 1)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    read = np.einsum("hij,jhpa->ihpa", weights, points[:, :, 6:]) - translation[:, None, None]
    read = np.einsum("nba,nhpb->nhpa", rotation, read)
    parts = [np.einsum("hij,jhk->ihk", weights, value), read[..., 0], read[..., 1], read[..., 2]]
    parts += [np.sqrt(np.square(read).sum(-1) + 1e-8), np.einsum("hij,ijc->ihc", weights, pair[0])]
    expected = dense("output", np.concatenate([part.reshape(4, -1) for part in parts], axis=-1))
    np.testing.assert_allclose(attention(x, pair, *frames)[0], expected, rtol=1e-4, atol=1e-4)


def test_products_beyond_float16():
    rng = np.random.default_rng(0)
    shapes = (1, 3, 4), (1, 3, 3, 5), (1, 3, 3)
    x, pair, shifts = (rng.normal(size=shape).astype("float32") for shape in shapes)
    turns = np.broadcast_to(np.eye(3, dtype="float32"), (1, 3, 3, 3))
    layer = InvariantPointAttention(2, 8, 2, 2, dtype="mixed_float16")
    layer(x, pair, turns, shifts)
    randomise(layer, 1)
    layer.query_key_value.bias.assign(np.full(layer.query_key_value.bias.shape, 120.0))
    assert np.isfinite(layer(x, pair, turns, shifts)).all()


def test_a_residue_alone_and_one_that_sees_none(attention):
    one = attention(drawn(1, 1, 8), drawn(1, 1, 1, 7), *random_frames(1, 1))
    hidden = attention(drawn(1, 3, 8), drawn(1, 3, 3, 7), *random_frames(1, 3), mask=np.zeros((1, 3), "bool"))
    assert np.isfinite(one).all() and np.isfinite(hidden).all()


def test_a_new_layer_weighs_points_by_one():
    layer = InvariantPointAttention(2, 3)
    np.testing.assert_array_equal(layer(drawn(1, 4, 8), drawn(1, 4, 4, 6), *random_frames(1, 4)), 0)
    np.testing.assert_allclose(np.log1p(np.exp(layer.point_weights)), 1, rtol=1e-6)
    with pytest.raises(ValueError, match="`num_value_points` must be at least 1; it is 0"):
        InvariantPointAttention(2, 3, 4, 0)


def test_frames_compose_and_invert():
    first, second, points = random_frames(1, 4), random_frames(1, 4, seed=5), drawn(1, 4, 3, seed=9)
    both = first.compose(second).apply(points)
    np.testing.assert_allclose(both, first.apply(second.apply(points)), atol=1e-5)
    np.testing.assert_allclose(first.invert_apply(first.apply(points)), points, atol=1e-5)
    again = frames_of_matrices(first.matrices())
    np.testing.assert_array_equal(again.rotation, first.rotation)
    np.testing.assert_array_equal(again.translation, first.translation)


def test_a_frame_of_three_points():
    points = drawn(3, 2, 3)
    frames = frames_of_points(*points)
    x, y = (np.asarray(frames.invert_apply(points[i])) for i in (2, 0))
    np.testing.assert_allclose(frames.invert_apply(points[1]), 0, atol=1e-6)
    np.testing.assert_allclose(x[:, 1:], 0, atol=1e-6)
    np.testing.assert_allclose(y[:, 2], 0, atol=1e-6)
    assert (x[:, 0] > 0).all() and (y[:, 1] > 0).all()
    np.testing.assert_allclose(np.linalg.det(frames.rotation), 1, rtol=1e-5)
    assert np.isfinite(frames_of_points(points[0], points[0], points[0]).rotation).all()


def test_quaternions():
    half = math.sqrt(0.5)
    quarter = rotation_of_quaternion(np.array([half, 0, 0, half], "float32"))  # about z
    np.testing.assert_allclose(quarter, [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-6)
    start = drawn(5, 4)
    start /= np.linalg.norm(start, axis=-1, keepdims=True)
    vector = drawn(5, 3, seed=1)
    update = np.concatenate([np.ones((5, 1)), vector], axis=-1)
    update /= np.linalg.norm(update, axis=-1, keepdims=True)
    expected = np.asarray(rotation_of_quaternion(start)) @ np.asarray(rotation_of_quaternion(update))
    product = turned(start, vector)
    np.testing.assert_allclose(rotation_of_quaternion(product), expected, atol=1e-5)
    numbers = np.concatenate([start, vector], axis=-1)
    np.testing.assert_array_equal(frames_of_quaternions(numbers).translation, vector)


def test_bins_of_distances():
    line = np.array([[[0, 0, 0], [3, 0, 0], [4.5, 0, 0]]], "float32")
    bins = np.asarray(distance_bins(line, 2.0, 4.0, 4))  # edges 2, 3, 4
    assert bins.tolist() == [[[0, 1, 3], [1, 0, 0], [3, 0, 0]]]


def test_tables_of_residues():
    tables = residues()
    assert LETTERS == "ARNDCQEGHILKMFPSTWYV" and len(ATOMS) == 37
    assert tables.exists.sum(1).tolist() == [
        5,
        11,
        8,
        8,
        6,
        9,
        9,
        4,
        10,
        8,
        8,
        9,
        8,
        11,
        7,
        6,
        7,
        14,
        12,
        7,
        0,
    ]
    assert tables.chi_exists.sum(1).tolist() == [
        0,
        4,
        2,
        2,
        1,
        3,
        3,
        0,
        2,
        2,
        2,
        4,
        3,
        2,
        2,
        1,
        1,
        2,
        2,
        1,
        0,
    ]
    assert np.argwhere(tables.half_turns).tolist() == [[3, 1], [6, 2], [13, 1], [18, 1]]
    exists = tables.exists[:-1].astype(bool)
    assert (tables.groups[:-1][exists] <= 7).all()
    lengths = np.linalg.norm(tables.positions[:-1, 0] - tables.positions[:-1, 1], axis=-1)
    assert (abs(lengths - 1.46) < 0.02).all()  # N to CA
    rotations = tables.frames[:-1, :4, :3, :3]
    np.testing.assert_allclose(
        rotations @ rotations.swapaxes(-1, -2), np.tile(np.eye(3), (20, 4, 1, 1)), atol=1e-6
    )
    assert {name for atoms in tables.atoms for name in atoms} == {*ATOMS} - {"OXT"}
