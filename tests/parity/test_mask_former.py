"""Live: MaskFormer against transformers', around a Swin and a ResNet: outputs, the loss, what is made of the
outputs, folders both ways.
"""

import copy
import os

import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers

from keras_tfm import convert, heads
from keras_tfm.tasks.segmentation.segments import panoptic_segments
from tests.parity.images import (
    answer,
    check_again,
    check_outputs,
    check_way_back,
    draw_images,
    draw_weights,
    ours_of,
)

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (transformers.MaskFormerModel, transformers.MaskFormerForInstanceSegmentation)
STAGES = ["stage1", "stage2", "stage3", "stage4"]
NAMES = {
    "mask_features": "pixel_decoder_last_hidden_state",
    "decoder_sequence_output": "transformer_decoder_last_hidden_state",
    "logits": "class_queries_logits",
    "masks": "masks_queries_logits",
}


def draw_backbone(rng, kind, num_stages):
    """The configuration of a ResNet of so many stages, or of a Swin, whose last maps may be smaller than its
    window.
    """
    channels = int(rng.integers(1, 4))
    if kind == "resnet":
        return transformers.ResNetConfig(
            num_channels=channels,
            embedding_size=int(rng.integers(1, 9)),
            hidden_sizes=[4 * int(x) for x in rng.integers(1, 9, num_stages)],
            depths=[int(x) for x in rng.integers(1, 3, num_stages)],
            layer_type=str(rng.choice(["basic", "bottleneck"])),
            out_features=STAGES[:num_stages],
        )
    patch_size = int(rng.integers(2, 4))
    return transformers.SwinConfig(
        image_size=[int(patch_size * x) for x in rng.integers(9, 25, 2)],
        patch_size=patch_size,
        num_channels=channels,
        embed_dim=4 * int(rng.integers(1, 4)),
        depths=[int(x) for x in rng.integers(1, 3, 4)],
        num_heads=[int(x) for x in rng.choice([1, 2, 4], 4)],
        window_size=int(rng.integers(1, 5)),
        mlp_ratio=float(rng.choice([1.0, 2.5])),
        out_features=STAGES,
    )


def with_images(rng, config):
    """A configuration that says which images its backbone takes."""
    backbone = config.backbone_config
    sides = [int(x) for x in rng.integers(40, 100, 2)]
    config.image_size = backbone.image_size if backbone.model_type == "swin" else sides
    config.num_channels = backbone.num_channels
    return config


def draw_config(rng, backbone):
    """One of their configurations; their pyramid needs two maps."""
    heads_, backbone_config = (
        int(rng.choice([1, 2, 4])),
        draw_backbone(rng, backbone, int(rng.integers(2, 5))),
    )
    decoder = transformers.DetrConfig(
        num_queries=int(rng.integers(1, 9)),
        d_model=16 * int(rng.integers(1, 3)),
        decoder_layers=int(rng.integers(1, 4)),
        decoder_attention_heads=heads_,
        encoder_attention_heads=heads_,
        decoder_ffn_dim=int(rng.integers(1, 40)),
        activation_function=str(rng.choice(["relu", "gelu"])),
    )
    config = transformers.MaskFormerConfig(
        backbone_config=backbone_config,
        decoder_config=decoder,
        fpn_feature_size=32 * int(rng.integers(1, 3)),
        mask_feature_size=int(rng.integers(1, 20)),
        num_labels=int(rng.integers(1, 6)),
    )
    return with_images(rng, config)


def outputs_of(model, images):
    """What theirs gives, by our names."""
    with torch.no_grad():
        given = answer(model, images)
    heads_ = ("logits", "masks")
    names = [name for name in NAMES if (name in heads_) == ("class_queries_logits" in given)]
    found = {name: given[NAMES[name]].numpy() for name in names}
    if "mask_features" in found:
        found["mask_features"] = found["mask_features"].transpose(0, 2, 3, 1)
    return found


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("backbone", ["swin", "resnet"])
@pytest.mark.alike("kind")
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, backbone, seed, tmp_path):
    rng = np.random.default_rng(seed)
    config = draw_config(rng, backbone)
    theirs = kind(config).eval()
    draw_weights(rng, theirs)
    images = draw_images(rng, config)
    ours = ours_of(theirs, tmp_path)
    outputs, in_float32 = ours({"images": images}), outputs_of(theirs, images)
    check_outputs(outputs, outputs_of(copy.deepcopy(theirs).double(), images), in_float32)
    back = check_way_back(theirs, ours, tmp_path, without=("model.layernorm.weight", "model.layernorm.bias"))
    check_again(outputs_of(back, images), in_float32)
    again = convert.from_huggingface(tmp_path / "ours")
    assert again.get_config() == ours.get_config()


def draw_segments(rng, sizes, grid, num_classes):
    """Classes and numbers of segments at each pixel, (B, H, W, 2), of images with so many segments."""
    targets = np.full((len(sizes), *grid, 2), 255)
    for target, size in zip(targets, sizes, strict=True):
        numbers = rng.integers(-1, size, grid)
        classes = rng.integers(0, num_classes, max(size, 1))
        target[..., 1] = np.where(numbers < 0, 255, numbers)
        target[..., 0] = np.where(numbers < 0, 255, classes[numbers])
    return targets


def segments_of(targets):
    """The masks (M, H, W) and the classes (M,) of the segments of each of the `targets` (B, H, W, 2)."""
    present = [[x for x in np.unique(target[..., 1]) if x != 255] for target in targets]
    segments = [
        torch.stack([torch.from_numpy(target[..., 1] == x).float() for x in numbers])
        for target, numbers in zip(targets, present, strict=True)
    ]
    classes = [
        torch.tensor([int(target[..., 0][target[..., 1] == x][0]) for x in numbers])
        for target, numbers in zip(targets, present, strict=True)
    ]
    return segments, classes


def masks_of(targets, count=6):
    """The same `targets` as sets of masks, (B, `count`, H, W)."""
    is_inside = targets[:, None, ..., 1] == np.arange(count)[:, None, None]
    return np.where(is_inside, 1 + targets[:, None, ..., 0], 0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_semantic", [False, True])
def test_the_loss_and_its_gradient(is_semantic, seed):
    rng = np.random.default_rng(seed)
    num_classes, num_queries, num_blocks = 4, int(rng.integers(1, 9)), 3
    grid, size = (4, 5), (13, 11)
    targets = draw_segments(rng, [int(x) for x in rng.integers(1, 6, 3)], size, num_classes)
    if is_semantic:
        targets[..., 1] = targets[..., 0]
    logits = rng.normal(size=(3, num_blocks, num_queries, num_classes + 1)).astype("float32")
    masks = rng.normal(scale=3, size=(3, num_blocks, num_queries, *grid)).astype("float32")
    joined = np.concatenate([logits, masks.reshape(*masks.shape[:3], -1)], axis=-1)

    theirs = transformers.models.maskformer.modeling_maskformer
    matcher = theirs.MaskFormerHungarianMatcher(1.0, cost_dice=1.0, cost_mask=20.0)
    criterion = theirs.MaskFormerLoss(num_classes, matcher, {}, 0.1)
    segments, classes = segments_of(targets)
    tensor = torch.from_numpy(joined).requires_grad_()
    expected = 0
    for block in tensor.transpose(0, 1):
        predicted = block[..., num_classes + 1 :].reshape(3, num_queries, *grid)
        losses = criterion(predicted, block[..., : num_classes + 1], segments, classes)
        expected += losses["loss_cross_entropy"] + 20 * losses["loss_mask"] + losses["loss_dice"]
    expected.backward()

    variable = tf.Variable(joined)
    loss = heads.MaskSetLoss(grid)
    with tf.GradientTape() as tape:
        ours = loss(targets[..., 0] if is_semantic else masks_of(targets), variable)
    assert float(ours) == pytest.approx(float(expected.detach()), rel=1e-5)
    np.testing.assert_allclose(tape.gradient(ours, variable), tensor.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_classes_of_pixels_and_panoptic_segments(seed):
    """What is made of the outputs, at another size than theirs."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=4, size=(1, 6, 4)).astype("float32")
    masks = rng.normal(scale=4, size=(1, 6, 3, 4)).astype("float32")
    outputs = transformers.models.maskformer.modeling_maskformer.MaskFormerForInstanceSegmentationOutput(
        class_queries_logits=torch.from_numpy(logits), masks_queries_logits=torch.from_numpy(masks)
    )
    processor = transformers.MaskFormerImageProcessor()
    (expected,) = processor.post_process_semantic_segmentation(outputs, target_sizes=[(9, 10)])
    scores = tf.image.resize(heads.class_maps(logits, masks), (9, 10))
    np.testing.assert_array_equal(np.argmax(scores[0], -1), expected.numpy())
    (expected,) = processor.post_process_panoptic_segmentation(
        outputs, threshold=0.4, label_ids_to_fuse={0}, target_sizes=[(9, 10)]
    )
    numbers, segments = panoptic_segments(logits[0], masks[0], (9, 10), threshold=0.4, fused={0})
    theirs = {x["id"]: x["label_id"] for x in expected["segments_info"]}
    ours = {x["id"]: x["class"] for x in segments}
    named = np.vectorize(lambda number, names: names.get(number, -1), excluded=[1], otypes=[int])
    np.testing.assert_array_equal(named(numbers, ours), named(expected["segmentation"].numpy(), theirs))
