"""Denoising queries: their noise, who sees whom, and what a detector makes of them."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import keras_tfm
from keras_tfm import heads
from keras_tfm.models import RTDETR
from keras_tfm.models.detection.denoising import DenoisingMask, DenoisingQueries
from tests.contract import randomise
from tests.models.test_rt_detr import SIDES, SMALL, draw

# Two images: with two objects, and with one.
OBJECTS = np.array(
    [[[0, 0.5, 0.5, 0.2, 0.4], [1, 0.4, 0.6, 0.1, 0.2]], [[1, 0.5, 0.4, 0.3, 0.2], [-1, 0, 0, 0, 0]]],
    "float32",
)


def added(**options):
    """The noisy queries (2, 3, 2, 2, 4) and boxes (2, 3, 2, 2, 4) of three groups: near and far, object by
    object.
    """
    layer = DenoisingQueries(2, 6, seed=1, **options)
    own = np.ones((2, 3, 4), "float32"), np.full((2, 3, 4), 0.5, "float32")
    layer.build((2, 3, 4))
    layer.table.assign(np.arange(3, dtype="float32")[:, None] + np.zeros((3, 4), "float32"))
    queries, boxes = layer(*own, OBJECTS, training=True)
    np.testing.assert_array_equal(queries[:, -3:], own[0])
    np.testing.assert_array_equal(boxes[:, -3:], own[1])
    for x, y in zip(layer(*own, OBJECTS), own, strict=True):
        np.testing.assert_array_equal(x, y)  # not in training
    return (np.asarray(x)[:, :-3].reshape(2, 3, 2, 2, 4) for x in (queries, boxes))


def test_without_noise_queries_are_the_objects():
    queries, boxes = added(label_noise=0.0, box_noise=0.0)
    expected = np.where(OBJECTS[..., 0] < 0, 2, OBJECTS[..., 0])[:, None, None, :, None]
    np.testing.assert_array_equal(queries, np.broadcast_to(expected, queries.shape))
    near = np.clip(OBJECTS[..., 1:], 1e-5, None)[:, None, None]
    np.testing.assert_allclose(boxes, np.broadcast_to(near, boxes.shape), rtol=1e-3)


def test_sides_are_moved_by_less_than_half_of_the_box_or_by_more():
    queries, boxes = added(label_noise=1.0, box_noise=0.5)
    assert len(np.unique(boxes[0, ..., 0].round(5))) == 12  # each for itself
    half = OBJECTS[:, None, None, :, 3:] / 2
    corners = [x + s * y for x, y in ((boxes[..., :2], boxes[..., 2:] / 2),) for s in (-1, 1)]
    own = [OBJECTS[:, None, None, :, 1:3] + s * half for s in (-1, 1)]
    is_object = OBJECTS[..., 0] >= 0
    for a, b in zip(corners, own, strict=True):
        moved = (
            np.abs(a - b)[:, :, :, is_object[0] & is_object[1]] / half[:, :, :, is_object[0] & is_object[1]]
        )
        assert (moved[:, :, 0] <= 0.5 + 1e-3).all()
        assert (moved[:, :, 1] >= 0.5 - 1e-3).all() and (moved[:, :, 1] <= 1 + 1e-3).all()
    labels = queries[0, ..., 0]
    assert set(np.unique(labels)) == {0, 1} and (labels[:, :, 0] != 0).any()  # some have another class
    assert (queries[1, :, :, 1] == 2).all()  # where there is no object


def test_groups_see_themselves_and_the_models_own_queries_which_do_not_see_them():
    seen = np.asarray(DenoisingMask(2)(np.zeros((1, 2 * 4 + 2, 3)), OBJECTS[:1]))[0]
    expected = np.zeros((10, 10), bool)
    expected[:4, :4] = expected[4:8, 4:8] = True
    expected[:, 8:] = True
    np.testing.assert_array_equal(seen, expected)


def test_without_objects_all_queries_see_each_other():
    mask = DenoisingMask(3)(np.zeros((1, 3, 8), "float32"), np.zeros((1, 0, 5), "float32"))
    np.testing.assert_array_equal(mask, np.ones((1, 3, 3), bool))


@pytest.mark.slow
def test_the_noise_is_compiled_by_xla():
    """Its batches and numbers of objects may be unknown before."""
    layer = DenoisingQueries(2, 6)
    layer.build((None, 3, 4))
    signature = [tf.TensorSpec((None, 3, 4)), tf.TensorSpec((None, 3, 4)), tf.TensorSpec((None, None, 5))]
    compiled = tf.function(
        lambda *inputs: layer(*inputs, training=True), signature, jit_compile=True, autograph=False
    )
    queries, boxes = compiled(np.ones((2, 3, 4), "float32"), np.full((2, 3, 4), 0.5, "float32"), OBJECTS)
    assert queries.shape == boxes.shape == (2, 3 * 2 * 2 + 3, 4)
    assert np.isfinite(boxes).all()


@pytest.fixture(scope="module")
def model():
    made = heads.VarifocalDetector(RTDETR(dataclasses.replace(SMALL, num_denoising=5)), 2)
    randomise(made, 1)
    return made


def test_a_learner_gives_the_models_predictions_and_those_of_noisy_queries(model):
    """The model's predictions are the same in training, where predictions of noisy queries, of two groups,
    follow them: only these depend on the objects.
    """
    assert model.takes_objects and not heads.VarifocalDetector(RTDETR(SMALL), 2).takes_objects
    learner, plain = model.learner(), keras_tfm.Model(model.input, model.predictions)
    inputs = {"images": draw(), "pixel_mask": np.ones((2, *SIDES), bool)}
    loss, loss_of_plain = model.loss_of_training(), heads.VarifocalSetPredictionLoss()
    for training in (False, True):
        given = [
            np.asarray(learner({**inputs, "objects": x}, training=training))
            for x in (OBJECTS, OBJECTS[:, ::-1].copy())
        ]
        expected = np.asarray(plain(inputs, training=training)).reshape(2, 9, 6)
        assert given[0].shape == (2, 3 * 3 + training * 2 * 2 * 2 * 2, 6)
        for x in given:
            np.testing.assert_allclose(x[:, :9], expected, rtol=1e-4, atol=1e-5)
        if not training:
            plain_loss = float(loss_of_plain(OBJECTS, expected.reshape(2, 3, 3, 6)))
            assert float(loss(OBJECTS, given[0])) == pytest.approx(plain_loss, rel=1e-5)
    assert np.abs(given[0][:, 9:] - given[1][:, 9:]).max() > 1e-3
    means = loss.means(OBJECTS, given[0])
    assert [float(count) for _, count in means] == [3, 3, 6, 6]
    plain_means = loss_of_plain.means(OBJECTS, given[0][:, :9].reshape(2, 3, 3, 6))
    np.testing.assert_allclose(
        [float(x) for x, _ in means[:2]], [float(x) for x, _ in plain_means], rtol=1e-5
    )
    again = type(loss).from_config(loss.get_config())
    assert float(again(OBJECTS, given[0])) == pytest.approx(float(loss(OBJECTS, given[0])))
