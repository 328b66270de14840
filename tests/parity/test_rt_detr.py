"""Live: RT-DETR against transformers', around its own ResNet-vd: outputs, its loss, folders both ways."""

import copy
import os

import numpy as np
import pytest
import torch
import transformers
from transformers.models.rt_detr.modeling_rt_detr import RTDetrFrozenBatchNorm2d

from keras_tfm import convert, heads, tasks
from tests.parity.images import check_again, check_outputs, check_way_back
from tests.parity.test_detr import draw_model

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KIND = transformers.RTDetrForObjectDetection
PROPOSALS = ("enc_topk_logits", "enc_topk_bboxes")


def draw_config(rng):
    """One of their configurations, with a small ResNet-vd, and the size of images for it."""
    count = int(rng.integers(2, 5))
    layer_type = str(rng.choice(["basic", "bottleneck"]))
    widths = [4 * int(x) for x in rng.permutation(np.arange(1, 9))[:count]]
    stem = 2 * int(rng.integers(1, 5)) if layer_type == "bottleneck" else widths[0]
    num_maps = int(rng.integers(1, count + 1))
    backbone = transformers.RTDetrResNetConfig(
        num_channels=int(rng.integers(1, 4)),
        embedding_size=stem,
        hidden_sizes=widths,
        depths=[int(x) for x in rng.integers(1, 3, count)],
        layer_type=layer_type,
        out_indices=list(range(count + 1 - num_maps, count + 1)),
    )
    num_heads, decoder_heads = (int(x) for x in rng.choice([1, 2, 4], 2))
    width = 16 * int(rng.integers(1, 3))
    # Theirs joins maps of which each has half of the sides of the one before it.
    sides = [2 ** (count + 1) * int(x) for x in rng.integers(2, 4, 2)]
    return transformers.RTDetrConfig(
        backbone_config=backbone,
        encoder_hidden_dim=width,
        encoder_in_channels=widths[-num_maps:],
        feat_strides=[2 ** (2 + i) for i in range(count)][-num_maps:],
        encoder_layers=int(rng.integers(1, 3)),
        encoder_attention_heads=num_heads,
        encoder_ffn_dim=int(rng.integers(1, 40)),
        encode_proj_layers=[num_maps - 1],
        encoder_activation_function=str(rng.choice(["relu", "gelu"])),
        activation_function=str(rng.choice(["relu", "silu"])),
        hidden_expansion=float(rng.choice([0.5, 1.0, 1.5])),
        d_model=16 * int(rng.integers(1, 3)),
        num_queries=int(rng.integers(1, 5)),
        decoder_in_channels=[width] * num_maps,
        decoder_ffn_dim=int(rng.integers(1, 40)),
        num_feature_levels=num_maps,
        decoder_n_points=int(rng.integers(1, 5)),
        decoder_layers=int(rng.integers(1, 4)),
        decoder_attention_heads=decoder_heads,
        decoder_activation_function=str(rng.choice(["relu", "gelu"])),
        learn_initial_query=False,  # with True theirs fails: it takes a layer for its weight
        num_denoising=int(rng.choice([0, 10])),
        num_labels=int(rng.integers(1, 6)),
        image_size=sides,
    )


def draw_pair(rng, folder):
    """A random model of theirs, ours of its folder, and two images."""
    theirs = draw_model(rng, KIND, draw_config(rng), RTDetrFrozenBatchNorm2d)
    theirs.save_pretrained(folder / "theirs", max_shard_size=["5GB", "20KB"][rng.integers(2)])
    shape = (2, *theirs.config.image_size, theirs.config.backbone_config.num_channels)
    return theirs, convert.from_huggingface(folder / "theirs"), rng.normal(size=shape).astype("float32")


def outputs_of(model, images):
    """What theirs gives, by our names, the proposals and all blocks too."""
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).to(next(model.parameters()).dtype)
    with torch.no_grad():
        given = model(pixel_values=pixels)
    proposals = torch.cat([given[name] for name in PROPOSALS], dim=-1)
    return {
        "logits": given.logits.numpy(),
        "boxes": given.pred_boxes.numpy(),
        "proposals": proposals.numpy(),
        "decoder_outputs": given.intermediate_hidden_states.numpy(),
        "decoder_boxes": given.intermediate_reference_points.numpy(),
    }


@pytest.mark.parametrize("seed", CONFIGS)
def test_both_directions(seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs, ours, images = draw_pair(rng, tmp_path)
    outputs = ours({"images": images}) | ours.backbone({"images": images})
    expected, in_float32 = outputs_of(copy.deepcopy(theirs).double(), images), outputs_of(theirs, images)
    check_outputs(outputs, expected, in_float32)
    back = check_way_back(theirs, ours, tmp_path)
    check_again(outputs_of(back, images), in_float32)
    for name in ("num_labels", "num_queries", "encoder_hidden_dim", "hidden_expansion", "num_denoising"):
        assert getattr(back.config, name) == getattr(theirs.config, name)


@pytest.mark.parametrize("seed", CONFIGS)
def test_the_loss_of_a_model(seed, tmp_path):
    """The loss of all blocks and of the proposals, on the same images and objects."""
    rng = np.random.default_rng(seed)
    theirs, ours, images = draw_pair(rng, tmp_path)
    counts = [1, min(2, theirs.config.num_queries)]
    boxes = rng.uniform(0.1, 0.4, (2, max(counts), 4)).astype("float32")
    labels = rng.integers(0, theirs.config.num_labels, (2, max(counts), 1))
    targets = np.concatenate([labels, boxes], axis=-1).astype("float32")
    targets[np.arange(max(counts)) >= np.array(counts)[:, None]] = [-1, 0, 0, 0, 0]
    given = [
        {"class_labels": torch.from_numpy(x[:n, 0]).long(), "boxes": torch.from_numpy(x[:n, 1:])}
        for x, n in zip(targets, counts, strict=True)
    ]
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    with torch.no_grad():
        expected = float(theirs(pixel_values=pixels, labels=given).loss)
    task = tasks.Detector(ours, [str(i) for i in range(ours.num_classes)])
    learner = task.learner(task.training)
    inputs = {"images": images, "pixel_mask": np.ones(images.shape[:3], bool), "objects": targets}
    outputs = learner({name: inputs[name] for name in learner.input})  # not in training: no noisy queries
    loss = task.objective(task.training)["loss"](targets, outputs)
    assert isinstance(ours, heads.VarifocalDetector)
    assert float(loss) == pytest.approx(expected, rel=1e-4)


def test_what_the_preprocessor_makes_of_an_image(tmp_path):
    """The task reads and writes their preprocessor_config.json."""
    rng = np.random.default_rng(0)
    config = draw_config(rng)
    config.backbone_config.num_channels = 3
    theirs = draw_model(rng, KIND, config, RTDetrFrozenBatchNorm2d)
    theirs.save_pretrained(tmp_path / "theirs")
    height, width = config.image_size
    size = {"height": height, "width": width}
    processor = transformers.RTDetrImageProcessor(size=size)
    processor.save_pretrained(tmp_path / "theirs")
    task = tasks.Detector.from_huggingface(tmp_path / "theirs")
    task.save_huggingface(tmp_path / "ours")
    image = rng.integers(0, 256, (height, width, 3), "uint8")
    ours = task.model_inputs(image[None])["images"][0]
    for read in (processor, transformers.RTDetrImageProcessor.from_pretrained(tmp_path / "ours")):
        expected = read(image, return_tensors="np")["pixel_values"][0].transpose(1, 2, 0)
        np.testing.assert_allclose(ours, expected, atol=1e-6)
