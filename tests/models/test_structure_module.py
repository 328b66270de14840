"""The structure module: atoms of residues by their bonds, the frames they hang on, numbers of no residue."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.layers import (
    InvariantPointAttention,
    frames_of_points,
    frames_of_quaternions,
    identity_frames,
)
from keras_tfm.layers.residues import LETTERS, residues
from keras_tfm.models import StructureModule
from keras_tfm.models.proteins.structure import group_frames
from tests import contract
from tests.contract import Case, floats, ids, mask, randomise

INPUTS = {
    "single": floats("T", 8),
    "pair": floats("T", "T", 6),
    "numbers": ids("T", 21),
    "mask": mask("T"),
}


def module(num_layers=2):
    return StructureModule(num_layers, InvariantPointAttention(2, 3, 2, 3), 1, 5, 1)


BIAS = ("attention/pair_bias/bias", "pair_norm/beta")  # the same for all scores; the norm's in part
test_contract = contract.check_family(
    # All but the states are float32.
    Case("StructureModule", module, INPUTS, attends=True, chooses=True, without_effect=BIAS),
)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.fixture(scope="module")
def outputs():
    layer, numbers = module(), np.arange(21)[None]
    layer(drawn(1, 21, 8), drawn(1, 21, 21, 6), numbers)
    randomise(layer, 1)
    outputs = layer(drawn(1, 21, 8), drawn(1, 21, 21, 6), numbers)
    return {name: np.asarray(x) for name, x in outputs.items()}


def test_backbones_are_rigid(outputs):
    """N, CA, C and CB lie in each frame as in the table, whatever the frame and the angles."""
    frames, tables = frames_of_quaternions(outputs["frames"]), residues()
    local = frames.with_axes(1).invert_apply(outputs["positions"])
    for place in (0, 1, 2):
        expected = np.broadcast_to(tables.positions[:20, place], local[:, :, :20, place].shape)
        np.testing.assert_allclose(local[:, :, :20, place], expected, atol=1e-4)
    atoms = [outputs["positions"][:, :, :20, place] for place in (0, 1, 2)]
    again = frames_of_points(*atoms)
    np.testing.assert_allclose(again.rotation, frames.rotation[:, :, :20], atol=1e-4)


def test_side_chains_keep_their_bonds(outputs):
    def length(letter, first, second):
        number = LETTERS.index(letter)
        names = residues().atoms[number]
        places = outputs["positions"][0, :, number]
        return np.linalg.norm(places[:, names.index(first)] - places[:, names.index(second)], axis=-1)

    for letter, first, second, expected in (
        ("R", "CZ", "NH1", 1.33),
        ("R", "CG", "CD", 1.52),
        ("K", "CE", "NZ", 1.49),
        ("M", "SD", "CE", 1.79),
        ("W", "CD1", "NE1", 1.38),
        ("C", "CB", "SG", 1.81),
        ("A", "C", "O", 1.23),
    ):
        np.testing.assert_allclose(length(letter, first, second), expected, atol=0.03)


def test_residues_without_atoms(outputs):
    exists = residues().exists.astype(bool)
    assert (outputs["positions"][0][:, ~exists] == 0).all()
    assert (np.abs(outputs["positions"][0][:, exists]).sum(-1) > 0).all()


def test_numbers_outside_the_table_are_refused():
    with pytest.raises(ValueError, match=r"`numbers` must lie in \[0, 21\); one of them is 21"):
        module()(drawn(1, 2, 8), drawn(1, 2, 2, 6), np.array([[0, 21]]))


@pytest.mark.slow
def test_numbers_outside_the_table_are_nan_where_nothing_can_raise():
    frames, angles = identity_frames((1, 2)), drawn(1, 2, 7, 2)
    graph = tf.function(lambda numbers: group_frames(frames, angles, numbers), jit_compile=True)
    translation = np.asarray(graph(tf.constant([[0, 21]])).translation)
    assert np.isfinite(translation[:, 0]).all() and np.isnan(translation[:, 1]).all()


def test_rotations_pass_no_gradient_to_the_layer_before():
    """The last layer's quaternion is its own update after a constant."""
    layer, x, pair, numbers = module(), drawn(1, 4, 8), drawn(1, 4, 4, 6), np.zeros((1, 4), "int32")
    layer(x, pair, numbers)
    randomise(layer, 1)
    updates = []
    update = layer.frame_update.call
    layer.frame_update.call = lambda x: updates.append(update(tf.stop_gradient(x))) or updates[-1]
    with tf.GradientTape() as tape:
        frames = layer(x, pair, numbers)["frames"]
        last = tf.reduce_sum(frames[:, -1, :, :4] * drawn(1, 4, 4, seed=3))
    first, second = tape.gradient(last, updates, unconnected_gradients="zero")
    assert np.abs(second).max() > 1e-3 and np.abs(first).max() == 0


def test_a_new_module_stays_at_the_origin():
    outputs = module()(drawn(1, 3, 8), drawn(1, 3, 3, 6), np.array([[0, 1, 2]]))
    expected = np.broadcast_to([1, 0, 0, 0, 0, 0, 0], (1, 2, 3, 7))
    np.testing.assert_array_equal(outputs["frames"], expected)
    lengths = np.linalg.norm(outputs["angles"], axis=-1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)
