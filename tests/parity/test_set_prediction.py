"""Live: the losses of boxes and masks against transformers', on the same predictions."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from transformers import DeformableDetrConfig, DetrConfig, RTDetrConfig
from transformers.loss.loss_deformable_detr import DeformableDetrForObjectDetectionLoss
from transformers.loss.loss_for_object_detection import ForObjectDetectionLoss, dice_loss, sigmoid_focal_loss
from transformers.loss.loss_rt_detr import RTDetrForObjectDetectionLoss

from keras_tfm import heads

pytestmark = pytest.mark.parity


def draw(rng, sizes):
    """Targets of images with so many boxes, padded, and predictions of three blocks, of 3 classes."""
    num_queries = int(rng.integers(1, 9))
    boxes = rng.uniform(0.05, 0.5, (len(sizes), max(sizes), 4))
    labels = rng.integers(0, 3, (len(sizes), max(sizes), 1))
    targets = np.concatenate([labels, boxes], axis=-1).astype("float32")
    targets[np.arange(max(sizes)) >= np.array(sizes)[:, None]] = [-1, 0, 0, 0, 0]
    logits = rng.normal(size=(len(sizes), 3, num_queries, 4))
    predicted = rng.uniform(0.05, 0.5, (len(sizes), 3, num_queries, 4))
    return targets, np.concatenate([logits, predicted], axis=-1).astype("float32")


def theirs(targets, predictions, loss_of=ForObjectDetectionLoss, config_class=DetrConfig):
    """transformers' loss, the blocks before the last as auxiliary ones, and its gradient."""
    tensor = torch.from_numpy(predictions).requires_grad_()
    blocks = tensor.transpose(0, 1)  # (L, B, Q, C + 5)
    images = [x[x[:, 0] >= 0] for x in targets]
    tensors = [torch.from_numpy(x) for x in images]
    labels = [{"class_labels": x[:, 0].long(), "boxes": x[:, 1:]} for x in tensors]
    loss, *_ = loss_of(
        blocks[-1, ..., :-4],
        labels,
        "cpu",
        blocks[-1, ..., -4:],
        config_class(auxiliary_loss=True, num_labels=3, decoder_layers=3),
        outputs_class=blocks[..., :-4],
        outputs_coord=blocks[..., -4:],
    )
    loss.backward()
    return float(loss.detach()), tensor.grad.numpy()


@pytest.mark.parametrize("seed", range(5))
def test_the_loss_and_its_gradient(seed):
    rng = np.random.default_rng(seed)
    sizes = [*(int(n) for n in rng.integers(0, 6, 3)), 1]
    targets, predictions = draw(rng, sizes)
    variable = tf.Variable(predictions)
    with tf.GradientTape() as tape:
        loss = heads.SetPredictionLoss()(targets, variable)
    expected, gradient = theirs(targets, predictions)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(tape.gradient(loss, variable), gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_focal_loss_and_its_gradient(seed):
    rng = np.random.default_rng(seed)
    sizes = [*(int(n) for n in rng.integers(0, 6, 3)), 1]
    targets, predictions = draw(rng, sizes)
    targets, predictions = targets, np.delete(predictions, 3, axis=-1)  # 3 classes, and none for no object
    variable = tf.Variable(predictions)
    with tf.GradientTape() as tape:
        loss = heads.FocalSetPredictionLoss((1.0, 5.0, 2.0))(targets, variable)
    expected, gradient = theirs(
        targets, predictions, DeformableDetrForObjectDetectionLoss, DeformableDetrConfig
    )
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(tape.gradient(loss, variable), gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_varifocal_loss_and_its_gradient(seed):
    """Their first block is the chosen cells, which they are given apart."""
    rng = np.random.default_rng(seed)
    sizes = [*(int(n) for n in rng.integers(0, 6, 3)), 1]
    targets, predictions = draw(rng, sizes)
    predictions = np.delete(predictions, 3, axis=-1)  # 3 classes, and none for no object
    variable = tf.Variable(predictions)
    with tf.GradientTape() as tape:
        loss = heads.VarifocalSetPredictionLoss()(targets, variable)
    expected, gradient = theirs(targets, predictions, of_blocks_and_proposals, RTDetrConfig)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(tape.gradient(loss, variable), gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_of_denoising_queries_and_its_gradient(seed):
    """Two groups, of a block of chosen cells and two of a decoder."""
    rng = np.random.default_rng(seed)
    sizes = [*(int(n) for n in rng.integers(0, 6, 3)), 1]
    targets, predictions = draw(rng, sizes)
    predictions = np.delete(predictions, 3, axis=-1)  # (B, 3, Q, 3 + 4)
    num_queries, most = predictions.shape[2], max(sizes)
    noisy = rng.uniform(0.05, 0.5, (4, 2, 4 * most, 7)).astype("float32")
    told = np.concatenate([x.reshape(4, -1, 7) for x in (predictions, noisy)], axis=1)
    variable = tf.Variable(told)
    with tf.GradientTape() as tape:
        loss = heads.DenoisingSetPredictionLoss(3, num_queries)(targets, variable)

    tensor = torch.from_numpy(told).requires_grad_()
    first = tensor[:, :num_queries]
    own = tensor[:, num_queries : 3 * num_queries].reshape(4, 2, num_queries, 7)
    both = torch.cat([tensor[:, 3 * num_queries :].reshape(noisy.shape), own], dim=2)
    images = [torch.from_numpy(x[x[:, 0] >= 0]) for x in targets]
    places = [torch.cat([2 * most * group + torch.arange(n) for group in range(2)]) for n in sizes]
    expected, *_ = RTDetrForObjectDetectionLoss(
        both[:, -1, :, :-4],
        [{"class_labels": x[:, 0].long(), "boxes": x[:, 1:]} for x in images],
        "cpu",
        both[:, -1, :, -4:],
        RTDetrConfig(num_labels=3),
        outputs_class=both[..., :-4],
        outputs_coord=both[..., -4:],
        enc_topk_logits=first[..., :-4],
        enc_topk_bboxes=first[..., -4:],
        denoising_meta_values={
            "dn_positive_idx": places,
            "dn_num_group": 2,
            "dn_num_split": [4 * most, num_queries],
        },
    )
    expected.backward()
    assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-5)
    np.testing.assert_allclose(tape.gradient(loss, variable), tensor.grad.numpy(), rtol=1e-4, atol=1e-6)


def of_blocks_and_proposals(logits, labels, device, boxes, config, outputs_class, outputs_coord):
    """RT-DETR's loss; it takes examples before blocks, and the first of the blocks by itself."""
    first, *_ = zip(outputs_class, outputs_coord, strict=True)
    blocks = {"outputs_class": outputs_class[1:], "outputs_coord": outputs_coord[1:]}
    blocks = {name: x.transpose(0, 1) for name, x in blocks.items()}
    chosen = dict(zip(("enc_topk_logits", "enc_topk_bboxes"), first, strict=True))
    return RTDetrForObjectDetectionLoss(logits, labels, device, boxes, config, **blocks, **chosen)


def test_images_without_boxes_are_background():
    targets, predictions = draw(np.random.default_rng(7), [1, 1])
    targets = targets[:, :0]
    background = np.full(predictions.shape[:3], 3)
    expected = keras.ops.sparse_categorical_crossentropy(background, predictions[..., :-4], from_logits=True)
    loss = heads.SetPredictionLoss()(targets, predictions)
    assert float(loss) == pytest.approx(3 * float(keras.ops.mean(expected)), rel=1e-6)


def test_the_losses_of_masks():
    rng = np.random.default_rng(0)
    logits = rng.normal(scale=4, size=(5, 30)).astype("float32")
    targets = rng.integers(0, 2, (5, 30)).astype("float32")
    for ours, theirs in ((heads.focal_loss, sigmoid_focal_loss), (heads.dice_loss, dice_loss)):
        expected = theirs(torch.from_numpy(logits), torch.from_numpy(targets), 1)
        assert float(keras.ops.sum(ours(targets, logits))) == pytest.approx(float(expected), rel=1e-5)
