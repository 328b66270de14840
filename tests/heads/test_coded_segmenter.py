"""ISTR's head and loss by hand: crops and pastes, costs and losses of two objects, stages, the code's
weights.
"""

import keras
import numpy as np
import pytest

from keras_tfm.heads import CodedSegmenter, CodedSetLoss, FocalSetPredictionLoss, MaskCodec
from keras_tfm.heads.coded_segmenter import cropped, pasted, smooth_distance
from keras_tfm.models import ISTR
from tests import contract
from tests.contract import Case, floats

SMALL = {"dim": 8, "num_heads": 2, "intermediate_dim": 8, "dynamic_dim": 4, "code_dim": 3, "num_queries": 4}
TINY = SMALL | {
    "image_size": 16,
    "num_channels": 1,
    "num_layers": 3,
    "region_size": 2,
    "mask_region_size": 4,
    "backbone_config": {"stem_dim": 4, "dims": [4], "depths": [1], "block": "basic"},
}
LEFT = np.array([[1, 1, 0, 0]] * 4)
CORNER = np.array([[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1]])
BOXES = np.array([[0.25, 0.5, 0.5, 1], [0.75, 0.75, 0.5, 0.5]])
CROPS = np.array([np.ones((4, 4)), np.kron([[0, 1], [1, 1]], np.ones((2, 2)))])

test_contract = contract.check(Case("MaskCodec", lambda: MaskCodec(4, 3), {"codes": floats("T", 3)}))


def steps(side=4):
    """Masks whose first rows, or last columns, are full."""
    rows = np.tril(np.ones((side, side)))[:, :, None] * np.ones(side)
    return np.concatenate([rows, rows.transpose(0, 2, 1)[:, :, ::-1]])


@pytest.fixture(scope="module")
def codec():
    codec = MaskCodec(side=4, code_dim=3)
    codec.fit(np.concatenate([steps(), CROPS]))
    return codec


def predictions_of(codec, classes, boxes, crops, num_blocks=1):
    """(1, L, Q, 2 + K + 4) of these classes, surely, boxes and masks in them."""
    logits = 99.0 * (2 * np.eye(3)[classes][:, :2] - 1)  # the class 2 is none
    parts = [logits, np.asarray(codec.encode(np.asarray(crops))), boxes]
    rows = np.concatenate(parts, axis=-1).astype("float32")
    return np.tile(rows[None, None], (1, num_blocks, 1, 1))


def test_masks_are_cut_out_and_pasted():
    masks = np.zeros((1, 2, 6, 8))
    masks[0, 0, 1:5, 2:6], masks[0, 1, :, 3:] = LEFT, 1
    corners = np.array([[[2.0, 1, 6, 5], [0, 0, 8, 6]]])
    found = np.asarray(cropped(masks, corners, 4))
    np.testing.assert_array_equal(found[0, 0], LEFT)
    np.testing.assert_array_equal(found[0, 1], [[0, 1, 1, 1]] * 4)  # the centre 3.0 is between 0 and 1
    boxes = np.array([[0.5, 0.5, 4 / 8, 4 / 6], [0.5, 0.5, 1, 1]])
    again = np.asarray(pasted(found[0], boxes, (6, 8)))
    np.testing.assert_allclose(again[0], masks[0, 0], atol=1e-6)
    assert again[1, 0].tolist() == pytest.approx([0, 0.25, 0.75, 1, 1, 1, 1, 1])  # cells are two pixels wide
    outside = np.asarray(pasted(np.ones((1, 2, 2)), np.array([[0.0, 0.5, 0.5, 2.0]]), (2, 4)))
    np.testing.assert_array_equal(outside[0], [[1, 0, 0, 0]] * 2)


def test_a_codec_gives_masks_back_and_keeps_its_numbers(codec):
    masks = steps()[:3]
    few = MaskCodec(side=4, code_dim=9)
    assert not few.is_fitted
    few.fit(masks)
    codes = np.asarray(few.encode(masks))
    assert few.is_fitted and not codes[:, 2:].any()  # three masks differ in two directions
    few.fit(masks[:1])
    assert few.is_fitted and not np.asarray(few.encode(masks)).any()
    few.fit(masks)
    np.testing.assert_array_equal(np.asarray(few(codes)) > 0, masks > 0)
    assert not few.trainable_weights and len(few.weights) == 3
    with pytest.raises(ValueError, match=r"`codes` must be \(..., 3\); they are \(1, 4\)"):
        MaskCodec(side=4, code_dim=3)(np.zeros((1, 4)))


def test_costs_of_two_objects(codec):
    """A query's codes are the objects': a cosine of 1, or what both codes have."""
    codes = np.asarray(codec.encode(CROPS))
    predictions = predictions_of(codec, [0, 1], BOXES, CROPS)[0]
    targets = np.concatenate([[[0.0], [1.0]], BOXES, codes], axis=1)[None].astype("float32")
    loss = CodedSetLoss(2, codec)
    costs = np.asarray(loss.pair_costs(targets, predictions))
    focal = FocalSetPredictionLoss(weights=(2.0, 5.0, 2.0))
    objects = np.concatenate([predictions[..., :2], predictions[..., -4:]], axis=-1)
    plain = np.asarray(focal.pair_costs(targets[..., :5], objects))
    cosine = codes[0] @ codes[1] / np.linalg.norm(codes[0]) / np.linalg.norm(codes[1])
    expected = plain - (np.array([[1, cosine], [cosine, 1]]) + 1) / 2
    np.testing.assert_allclose(costs[0], expected[0], rtol=1e-4)
    alike = CodedSetLoss(2, codec, code_cost=0.0)
    np.testing.assert_allclose(alike.pair_costs(targets, predictions), plain, rtol=1e-5)


def test_what_is_right_costs_no_code_and_what_is_wrong_by_hand(codec):
    targets = np.stack([LEFT * 1, CORNER * 2, 0 * LEFT])[None]
    loss = CodedSetLoss(2, codec)
    right = predictions_of(codec, [0, 1, 2], [*BOXES, [0.5] * 4], [*CROPS, CROPS[0]], num_blocks=2)
    (classes, objects), (boxes, _), (codes, count) = loss.means(targets, right)
    assert float(count) == float(objects) == 2 and float(classes) == pytest.approx(0, abs=1e-4)
    assert float(boxes) == pytest.approx(0, abs=1e-4)
    no_dice = CodedSetLoss(2, codec, code_weights=(1.0, 0.0))
    assert float(no_dice(targets, right)) == pytest.approx(0, abs=1e-4)
    assert float(no_dice(targets, right[:, :, [2, 0, 1]])) == pytest.approx(0, abs=1e-4)  # a set

    moved = right.copy()
    moved[:, :, 0, 2:5] += [0.5, 0.0, 3.0]  # of the first object's code
    assert float(no_dice(targets, moved)) == pytest.approx(2 * (0.125 + 2.5) / 3 / 2, rel=1e-4)  # L = 2, of 2
    assert float(smooth_distance(np.zeros(3), np.array([0.5, 0.0, -3.0]))) == pytest.approx(2.625 / 3)

    probabilities = 1 / (1 + np.exp(-np.asarray(codec(codec.encode(CROPS)))))
    dice = 1 - (2 * (probabilities * CROPS).sum((1, 2)) + 1) / (
        probabilities.sum((1, 2)) + CROPS.sum((1, 2)) + 1
    )
    assert float(codes) == pytest.approx(5 * 2 * dice.sum(), rel=1e-3)
    assert np.isfinite(float(loss(0 * targets, right)))  # no object at all
    clone = keras.losses.deserialize(keras.losses.serialize(no_dice))
    assert clone.get_config() == no_dice.get_config()


def test_the_head_joins_stages_and_keeps_its_code():
    keras.utils.set_random_seed(0)
    model = CodedSegmenter(ISTR.from_size("tiny", **TINY), num_classes=2)
    images = np.random.default_rng(0).normal(size=(2, 16, 16, 1)).astype("float32")
    learner = model.learner()
    predictions, outputs = np.asarray(learner({"images": images})), model({"images": images})
    assert predictions.shape == (2, 3, 4, 2 + 3 + 4)
    np.testing.assert_allclose(outputs["logits"], predictions[:, 1:, :, :2].mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(outputs["boxes"], predictions[:, -1, :, -4:], atol=1e-6)
    targets = np.stack([np.kron(x, np.ones((4, 4))) for x in (LEFT, CORNER * 2)])[None].repeat(2, 0)
    with pytest.raises(ValueError, match="masks: expected some"):
        model.fit_codes([0 * targets])
    model.fit_codes([targets])
    components = np.asarray(model.codec.components)
    model.fit_codes([targets[:, ::-1, ::-1]])  # there is a code
    np.testing.assert_array_equal(model.codec.components, components)
    assert {id(x) for x in model.weights} == {id(x) for x in learner.weights}
    masks = model.codec(predictions[:, -1, :, 2:5])
    np.testing.assert_allclose(model({"images": images})["masks"], masks, atol=1e-4)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    again.set_weights(model.get_weights())
    np.testing.assert_allclose(again({"images": images})["masks"], masks, atol=1e-4)
