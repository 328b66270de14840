"""Live: Mask2Former against transformers', around a Swin and a ResNet: outputs, the loss at the same points,
folders both ways.
"""

import copy
import os

import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers

from keras_tfm import convert, heads
from tests.parity.images import (
    answer,
    check_again,
    check_outputs,
    check_way_back,
    draw_images,
    draw_weights,
    ours_of,
)
from tests.parity.test_mask_former import draw_backbone, draw_segments, masks_of, segments_of, with_images

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (transformers.Mask2FormerModel, transformers.Mask2FormerForUniversalSegmentation)


def draw_config(rng, backbone):
    backbone_config, num_heads = draw_backbone(rng, backbone, 4), int(rng.choice([1, 2, 4]))
    config = transformers.Mask2FormerConfig(
        backbone_config=backbone_config,
        feature_size=32 * int(rng.integers(1, 3)),
        mask_feature_size=int(rng.integers(1, 20)),
        hidden_dim=32 * int(rng.integers(1, 3)),
        encoder_feedforward_dim=int(rng.integers(1, 40)),
        dim_feedforward=int(rng.integers(1, 40)),
        encoder_layers=int(rng.integers(1, 3)),
        decoder_layers=int(rng.integers(4, 8)),
        num_attention_heads=num_heads,
        num_queries=int(rng.integers(1, 6)),
        activation_function=str(rng.choice(["relu", "gelu"])),
        num_labels=int(rng.integers(1, 6)),
    )
    return with_images(rng, config)


def outputs_of(model, images):
    """What theirs gives, by our names."""
    with torch.no_grad():
        if not hasattr(model, "model"):
            given = answer(model, images, output_hidden_states=True)
            states = torch.stack(given.transformer_decoder_intermediate_states)  # (1 + L, Q, B, D)
            return {
                "mask_features": given.pixel_decoder_last_hidden_state.permute(0, 2, 3, 1).numpy(),
                "decoder_outputs": states.permute(2, 0, 1, 3).numpy(),
            }
        given = answer(model, images, output_auxiliary_logits=True)
    names = "class_queries_logits", "masks_queries_logits"
    blocks = [[block[name] for name in names] for block in (*given.auxiliary_logits, given)]
    joined = [torch.cat([logits, masks.flatten(2)], -1) for logits, masks in blocks]
    return {
        "logits": given.class_queries_logits.numpy(),
        "masks": given.masks_queries_logits.numpy(),
        "predictions": torch.stack(joined, 1).numpy(),
    }


def draw_certain_images(rng, config, model):
    """Images in which no cell lies so near to the edge of a mask that rounding could decide."""
    backbone = getattr(model, "model", model)
    for _ in range(30):
        images = draw_images(rng, config)
        with torch.no_grad():
            given = answer(backbone, images, output_hidden_states=True)
        sizes = [level.shape[-2:] for level in given.pixel_decoder_hidden_states]
        nearest, largest = np.inf, 0.0
        for i, masks in enumerate(given.masks_queries_logits[:-1]):
            small = torch.nn.functional.interpolate(masks, sizes[i % 3], mode="bilinear").abs()
            nearest, largest = min(nearest, float(small.min())), max(largest, float(small.max()))
        if nearest > 2e-5 * largest:
            return images
    raise AssertionError("30 images have cells at the edges of masks.")


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("backbone", ["swin", "resnet"])
@pytest.mark.alike("kind")
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, backbone, seed, tmp_path):
    rng = np.random.default_rng(seed)
    config = draw_config(rng, backbone)
    theirs = kind(config).eval()
    draw_weights(rng, theirs)
    exact = copy.deepcopy(theirs).double()
    images = draw_certain_images(rng, config, exact)
    ours = ours_of(theirs, tmp_path)
    outputs, in_float32 = ours({"images": images}), outputs_of(theirs, images)
    if kind is KINDS[1]:
        outputs["predictions"] = ours.learner()({"images": images})
    check_outputs(outputs, outputs_of(exact, images), in_float32)
    back = check_way_back(theirs, ours, tmp_path, without=("swin.layernorm.weight", "swin.layernorm.bias"))
    check_again(outputs_of(back, images), in_float32)
    again = convert.from_huggingface(tmp_path / "ours")
    assert again.get_config() == ours.get_config()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_semantic", [False, True])
def test_the_loss_and_its_gradient_at_the_same_points(is_semantic, seed, monkeypatch):
    rng = np.random.default_rng(seed)
    num_classes, num_queries, num_blocks, num_points = 4, int(rng.integers(1, 9)), 3, 20
    grid, size, batch = (4, 5), (13, 11), 3
    targets = draw_segments(rng, [int(x) for x in rng.integers(1, 6, batch)], size, num_classes)
    if is_semantic:
        targets[..., 1] = targets[..., 0]
    logits = rng.normal(size=(batch, num_blocks, num_queries, num_classes + 1)).astype("float32")
    masks = rng.normal(scale=3, size=(batch, num_blocks, num_queries, *grid)).astype("float32")
    joined = np.concatenate([logits, masks.reshape(*masks.shape[:3], -1)], axis=-1)
    counts = num_points, 3 * num_points + num_points - int(0.75 * num_points)
    matching, learning = (rng.random((batch, num_blocks, n, 2), dtype="float32") for n in counts)

    theirs = transformers.models.mask2former.modeling_mask2former
    config = transformers.Mask2FormerConfig(num_labels=num_classes, train_num_points=num_points)
    criterion = theirs.Mask2FormerLoss(config, {})
    segments, classes = segments_of(targets)
    matched = [min(num_queries, len(x)) for x in classes]
    drawn = []
    for block in range(num_blocks):
        drawn += [matching[image : image + 1, block] for image in range(batch)]
        repeated = np.repeat(learning[:, block], matched, axis=0)
        drawn += [repeated[:, : 3 * num_points], repeated[:, 3 * num_points :]]

    def rand(*shape, device=None):
        points = drawn.pop(0)
        assert points.shape == shape
        return torch.from_numpy(np.ascontiguousarray(points))

    monkeypatch.setattr(torch, "rand", rand)
    tensor = torch.from_numpy(joined).requires_grad_()
    expected = 0
    for block in tensor.transpose(0, 1):
        predicted = block[..., num_classes + 1 :].reshape(batch, num_queries, *grid)
        losses = criterion(predicted, block[..., : num_classes + 1], segments, classes)
        expected += 2 * losses["loss_cross_entropy"] + 5 * losses["loss_mask"] + 5 * losses["loss_dice"]
    expected.backward()
    assert not drawn

    variable = tf.Variable(joined)
    loss = heads.PointMaskSetLoss(grid, num_points=num_points)
    points = {n: x.reshape(-1, n, 2) for n, x in zip(counts, (matching, learning), strict=True)}
    monkeypatch.setattr(loss, "draw", lambda _, count: points[count])
    with tf.GradientTape() as tape:
        ours = loss(targets[..., 0] if is_semantic else masks_of(targets), variable)
    assert float(ours) == pytest.approx(float(expected.detach()), rel=1e-5)
    np.testing.assert_allclose(tape.gradient(ours, variable), tensor.grad.numpy(), rtol=1e-4, atol=1e-6)
