"""Learning from an own teacher: the loss by hand, the center, what follows what, and what is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.heads import ProjectionHead, SelfDistillation, SelfDistillationLoss
from keras_tfm.models import KVT, ViT
from keras_tfm.training import SGD, MovingAverage

SMALL = {
    "image_size": 8,
    "patch_size": 2,
    "num_channels": 1,
    "num_layers": 1,
    "dim": 8,
    "num_heads": 2,
    "intermediate_dim": 8,
}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def model_of(num_local=2, local_size=4, **changes):
    keras.utils.set_random_seed(1)
    backbone = ViT.from_size("tiny", **SMALL | changes)
    return SelfDistillation(backbone, 6, 12, 4, num_local, local_size)


def crops(count=4):
    generator = np.random.default_rng(0)
    images = generator.normal(size=(count, 2, 8, 8, 1)).astype("float32")
    return {"images": images, "local_images": generator.normal(size=(count, 2, 4, 4, 1)).astype("float32")}


def test_cosines_of_small_vectors_in_float16():
    """Their squares are 0 there."""
    heads = [ProjectionHead(6, 12, 4, dtype=dtype) for dtype in ("float32", "mixed_float16")]
    for head in heads:
        head.build((None, 8))
    for weight, other in zip(heads[1].weights, heads[0].weights, strict=True):
        weight.assign(other)
    x = 0.1 * np.random.default_rng(0).normal(size=(2, 8)).astype("float32")
    expected, found = (np.asarray(head(x), "float32") for head in heads)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_the_loss_by_hand():
    generator = np.random.default_rng(0)
    teacher, student = generator.normal(size=(3, 2, 5)), generator.normal(size=(3, 4, 5))
    said, found = softmax(teacher / 0.5), np.log(softmax(student / 0.2))
    pairs = [(0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (1, 3)]
    expected = -np.mean([(said[:, t] * found[:, s]).sum(-1) for t, s in pairs], axis=0)
    loss = SelfDistillationLoss(0.5, 0.2)
    np.testing.assert_allclose(loss.call(teacher, student), expected, rtol=1e-5)
    np.testing.assert_allclose(loss(teacher, student), expected.mean(), rtol=1e-5)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    np.testing.assert_array_equal(again(teacher, student), loss(teacher, student))


def test_the_head_gives_cosines():
    head = ProjectionHead(5, 7, 3)
    x = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
    y = x
    cosines = np.asarray(head(x))
    for i, dense in enumerate(head.denses):
        kernel, bias = dense.get_weights()
        dense.bias.assign(np.random.default_rng(i).normal(size=bias.shape))
        y = y @ kernel + np.asarray(dense.bias)
        y = np.asarray(keras.activations.gelu(y)) if i < 2 else y
    prototypes = np.asarray(head.prototypes)
    expected = (y / np.linalg.norm(y, axis=-1, keepdims=True)) @ (
        prototypes / np.linalg.norm(prototypes, axis=0)
    )
    np.testing.assert_allclose(head(x), expected, atol=1e-5)
    assert np.abs(np.subtract(cosines, expected)).max() > 1e-3  # the biases count


def test_local_crops_are_read_by_the_same_layers():
    """With the backbone's weights in a model made for the small size, positions interpolated."""
    model = model_of()
    small = model.backbone.with_image_size(4)
    x = crops()
    pooled = small({"images": x["local_images"].reshape(8, 4, 4, 1)})["pooled_output"]
    expected = np.asarray(model.head(pooled)).reshape(4, 2, 6)
    np.testing.assert_allclose(model(x)[:, 2:], expected, atol=1e-5)
    pooled = model.backbone({"images": x["images"][:, 1]})["pooled_output"]
    np.testing.assert_allclose(model(x)[:, 1], model.head(pooled), atol=1e-5)
    np.testing.assert_allclose(model(x)[:, :2], model.teacher(x["images"]), atol=1e-5)  # a copy at first


def test_a_step_moves_the_student_the_center_and_the_teacher():
    model, x = model_of(dropout=0.5), crops()
    center = np.random.default_rng(1).normal(0, 0.1, 6)
    model.center.assign(center)
    said = np.asarray(model.teacher(x["images"]))  # without dropout
    model.compile(SGD(0.5), SelfDistillationLoss(0.1, 0.1))
    before = [np.array(weight) for _, weight in model.followed]
    batches = tf.data.Dataset.from_tensors((x,))
    model.fit(batches, callbacks=[MovingAverage(model.followed, 0.8, 4)], shuffle=False, verbose=0)
    np.testing.assert_allclose(model.center, 0.9 * center + 0.1 * said.mean((0, 1)), atol=1e-6)
    moved = 0
    for old, (average, weight) in zip(before, model.followed, strict=True):
        np.testing.assert_allclose(average, 0.8 * old + 0.2 * np.asarray(weight), rtol=1e-5, atol=1e-6)
        moved += np.abs(old - np.asarray(weight)).max() > 1e-4
    assert moved > len(before) / 2
    expected = SelfDistillationLoss(0.1, 0.1)(
        np.asarray(model.teacher(x["images"])) - np.asarray(model.center), model(x)
    )
    np.testing.assert_allclose(model.evaluate(batches, verbose=0), expected, rtol=1e-5)  # changes nothing


@pytest.mark.slow
def test_the_momentum_rises_to_one():
    model = model_of(0)
    (average, weight), *_ = model.followed
    start = np.array(average)
    weight.assign(weight + 1.0)
    model.compile(SGD(0.0), SelfDistillationLoss())
    data = tf.data.Dataset.from_tensors(({"images": crops()["images"]},)).repeat(3)
    model.fit(data, callbacks=[MovingAverage([(average, weight)], 0.6, 3)], shuffle=False, verbose=0)
    kept = np.prod([1 - 0.4 * (np.cos(np.pi * step / 3) + 1) / 2 for step in range(3)])
    np.testing.assert_allclose(average, start + 1 - kept, rtol=1e-5)
    with pytest.raises(ValueError, match=r"`momentum` must lie in \[0, 1\]; it is 2"):
        MovingAverage([], 2, 1)


def test_models_bound_to_a_size_take_local_crops_of_that_size():
    sizes = {name: value for name, value in SMALL.items() if name != "image_size"}
    backbone = KVT.from_size("Ti", **sizes, image_size=8, k=4)
    with pytest.raises(ValueError, match="KVT has layers for images of one size"):
        SelfDistillation(backbone, 6, 12, 4, 1, 4)
    model = SelfDistillation(backbone, 6, 12, 4, 1)
    assert model.input["local_images"].shape == (None, 1, 8, 8, 1) and model.output.shape == (None, 3, 6)
