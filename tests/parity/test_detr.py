"""Live: DETR against transformers', around its own ResNet and timm's: outputs, padding, folders both ways."""

import copy
import os

import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers
from transformers.models.detr.modeling_detr import DetrFrozenBatchNorm2d

from keras_tfm import convert, heads
from tests.parity.images import (
    assert_same_weights,
    check_again,
    check_outputs,
    draw_images,
    draw_weights,
    read_back,
)

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (transformers.DetrModel, transformers.DetrForObjectDetection)
PANOPTIC = transformers.DetrForSegmentation
NAMES = {
    "encoder_sequence_output": "encoder_last_hidden_state",
    "decoder_sequence_output": "last_hidden_state",
}


def draw_config(rng, backbone, config_class=transformers.DetrConfig):
    """One of their configurations, with a small ResNet or one by timm's name."""
    heads, decoder_heads = (int(x) for x in rng.choice([1, 2, 4], 2))
    widths = [4 * int(x) for x in rng.integers(1, 9, int(rng.integers(1, 5)))]
    channels = int(rng.integers(1, 4))
    if backbone is None:
        backbone = transformers.ResNetConfig(
            num_channels=channels,
            embedding_size=int(rng.integers(1, 9)),
            hidden_sizes=widths,
            depths=[int(x) for x in rng.integers(1, 3, len(widths))],
            layer_type=str(rng.choice(["basic", "bottleneck"])),
            out_features=[f"stage{len(widths)}"],
        )
    return config_class(
        backbone_config=backbone if isinstance(backbone, transformers.ResNetConfig) else None,
        backbone=backbone if isinstance(backbone, str) else None,
        image_size=[int(side) for side in rng.integers(40, 100, 2)],
        num_channels=channels,
        num_queries=int(rng.integers(1, 9)),
        d_model=16 * int(rng.integers(1, 3)),
        encoder_layers=int(rng.integers(1, 4)),
        encoder_attention_heads=heads,
        encoder_ffn_dim=int(rng.integers(1, 40)),
        decoder_layers=int(rng.integers(1, 4)),
        decoder_attention_heads=decoder_heads,
        decoder_ffn_dim=int(rng.integers(1, 40)),
        activation_function=str(rng.choice(["relu", "gelu"])),
        num_labels=int(rng.integers(1, 6)),
    )


def draw_model(rng, kind, config, frozen_norm=DetrFrozenBatchNorm2d):
    """A model of theirs with every weight at random, the frozen normalisation's too."""
    model = kind(config).eval()
    draw_weights(rng, model)
    for module in model.modules():
        if isinstance(module, frozen_norm):
            module.weight.normal_(1, 0.3)
            module.bias.normal_(0, 0.3)
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 1.5)
    return model


def draw_mask(rng, height, width):
    """The pixels of two images, of which the second is padded below and on the right."""
    mask = np.ones((2, height, width), bool)
    mask[1, int(rng.integers(1, height + 1)) :] = False
    mask[1, :, int(rng.integers(1, width + 1)) :] = False
    return mask


def outputs_of(model, images, mask):
    """What theirs gives, by our names."""
    dtype = next(model.parameters()).dtype
    with torch.no_grad():
        given = model(
            pixel_values=torch.from_numpy(images).permute(0, 3, 1, 2).to(dtype),
            pixel_mask=torch.from_numpy(mask.astype("int64")),
        )
    names = {"logits": "logits", "boxes": "pred_boxes"} if "logits" in given else NAMES
    if "pred_masks" in given:
        names = {**names, "masks": "pred_masks"}
    return {ours: getattr(given, theirs).numpy() for ours, theirs in names.items()}


def check(kind, config, rng, folder):
    """Outputs beside theirs, with padding and without, and the way back."""
    theirs = draw_model(rng, kind, config)
    return theirs, assert_detectors_agree(theirs, draw_images(rng, theirs.config), rng, folder, is_shown)


def assert_detectors_agree(theirs, images, rng, folder, is_shown):
    """Ours and theirs agree as `check` says; returns theirs of what ours wrote."""
    theirs.save_pretrained(folder / "theirs", max_shard_size=["5GB", "20KB"][rng.integers(2)])
    ours, exact = convert.from_huggingface(folder / "theirs"), copy.deepcopy(theirs).double()
    mask = draw_mask(rng, *images.shape[1:3])
    for inputs in ({"images": images}, {"images": images, "pixel_mask": mask}):
        shown = inputs.get("pixel_mask", np.ones_like(mask))
        outputs, expected = ours(inputs), outputs_of(exact, images, shown)
        in_float32 = outputs_of(theirs, images, shown)
        if (name := "encoder_sequence_output") in expected:  # what stands for padding is nobody's
            cells = is_shown(ours, shown)[..., None]
            for found in (outputs, expected, in_float32):
                found[name] = np.asarray(found[name]) * cells
        check_outputs(outputs, expected, in_float32)
    back = read_back(theirs, ours, folder)
    check_again(outputs_of(back, images, mask), outputs_of(theirs, images, mask))
    return back


def is_shown(model, mask):
    """The cells of the encoder that are no padding, (B, N)."""
    from keras_tfm.layers.resizing import resize_nearest

    grid = getattr(model, "backbone", model).maps[-1].shape[1:3]
    return np.asarray(resize_nearest(mask, grid)).reshape(len(mask), -1)


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.alike("kind")
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs, back = check(kind, draw_config(rng, None), rng, tmp_path)
    assert_same_weights(theirs, back)
    for name in (
        *(["num_labels"] if kind is KINDS[1] else []),
        "num_queries",
        "d_model",
        "encoder_layers",
        "decoder_layers",
        "decoder_ffn_dim",
    ):
        assert getattr(back.config, name) == getattr(theirs.config, name)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_a_backbone_of_timm(name, tmp_path):
    rng = np.random.default_rng(0)
    check(KINDS[1], draw_config(rng, name), rng, tmp_path)


@pytest.mark.parametrize("seed", CONFIGS)
def test_masks(seed, tmp_path):
    """Theirs needs the maps of four stages, and widths that its groups divide."""
    rng = np.random.default_rng(seed)
    config = draw_config(rng, None)
    network = config.backbone_config
    network.hidden_sizes = [4 * int(x) for x in rng.integers(1, 9, 4)]
    network.depths = [int(x) for x in rng.integers(1, 3, 4)]
    network.stage_names = ["stem", *(f"stage{i + 1}" for i in range(4))]
    network.out_features = network.stage_names[1:]
    config.d_model, config.encoder_attention_heads = int(rng.choice([16, 32, 64])), 8
    assert_same_weights(*check(PANOPTIC, config, rng, tmp_path))


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("seed", CONFIGS)
def test_the_loss_of_masks_and_its_gradient(seed, is_padded):
    """The loss of all blocks; images may stand on a canvas, whose padding theirs does not see."""
    rng = np.random.default_rng(seed)
    num_classes, num_queries, num_blocks, count = 3, int(rng.integers(4, 9)), int(rng.integers(1, 4)), 4
    grid, size = (4, 5), (9, 11)
    shown = (7, 8) if is_padded else size
    targets, labels = np.zeros((2, count, *size), "int32"), []
    if is_padded:
        targets[:, :, shown[0] :] = targets[:, :, :, shown[1] :] = 255
    for target in targets:
        kept = int(rng.integers(1, count + 1))
        classes, boxes = rng.integers(0, num_classes, kept), []
        for mask, label in zip(target, classes, strict=False):
            drawn = np.zeros(
                shown, bool
            )  # where boxes are unlike, it is certain which query learns which mask
            first, sides = ([int(rng.integers(1, side // 2)) for side in shown] for _ in range(2))
            part = drawn[tuple(slice(x, x + n) for x, n in zip(first, sides, strict=True))]
            part[:] = rng.random(part.shape) < 0.5
            part[0, 0] = part[-1, -1] = True
            mask[: shown[0], : shown[1]][drawn] = 1 + label
            rows, columns = np.nonzero(drawn)
            ends = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            left, right = (ends[i] / shown[1] for i in (0, 2))
            top, bottom = (ends[i] / shown[0] for i in (1, 3))
            boxes.append([(left + right) / 2, (top + bottom) / 2, right - left, bottom - top])
        masks = torch.from_numpy((target[:kept] == 1 + classes[:, None, None]).astype("float32"))
        labels.append(
            {
                "class_labels": torch.from_numpy(classes),
                "boxes": torch.tensor(boxes, dtype=torch.float32),
                "masks": masks,
            }
        )
    logits = rng.normal(size=(2, num_blocks, num_queries, num_classes + 1))
    boxes = rng.uniform(0.1, 0.9, (2, num_blocks, num_queries, 4))
    masks = rng.normal(scale=3, size=(2, num_queries, *grid))
    theirs = [torch.tensor(x, dtype=torch.float32, requires_grad=True) for x in (logits, boxes, masks)]
    config = transformers.DetrConfig(
        num_labels=num_classes, auxiliary_loss=num_blocks > 1, decoder_layers=num_blocks
    )
    expected, *_ = transformers.loss.loss_for_object_detection.ForSegmentationLoss(
        theirs[0][:, -1],
        labels,
        "cpu",
        theirs[1][:, -1],
        theirs[2],
        config,
        theirs[0].transpose(0, 1),
        theirs[1].transpose(0, 1),
    )
    expected.backward()
    cells = masks.reshape(2, num_queries, -1)
    objects = np.moveaxis(np.concatenate([logits, boxes], axis=-1), 1, 2).reshape(2, num_queries, -1)
    variable = tf.Variable(np.concatenate([objects, cells], axis=-1).astype("float32"))
    loss = heads.PanopticSetLoss(grid, num_classes)
    with tf.GradientTape() as tape:
        ours = loss(targets, variable)
    assert float(ours) == pytest.approx(float(expected.detach()), rel=1e-5)
    gradient = tape.gradient(ours, variable).numpy()
    of_objects = gradient[..., : -grid[0] * grid[1]].reshape(2, num_queries, num_blocks, -1)
    of_logits, of_boxes = (np.moveaxis(of_objects, 2, 1)[..., part] for part in (np.s_[:-4], np.s_[-4:]))
    of_masks = gradient[..., -grid[0] * grid[1] :].reshape(masks.shape)
    for found, theirs_ in zip((of_logits, of_boxes, of_masks), theirs, strict=True):
        np.testing.assert_allclose(found, theirs_.grad.numpy(), rtol=1e-4, atol=1e-6)
