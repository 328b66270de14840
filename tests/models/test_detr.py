"""DETR: the published sizes, padding, what is frozen, auxiliary outputs, other backbones, folders."""

import dataclasses
import json

import numpy as np
import pytest

import keras_tfm
from keras_tfm import heads, models
from keras_tfm.convert import save_huggingface
from keras_tfm.layers.resizing import resize_nearest
from keras_tfm.models import DETR, DETRConfig
from keras_tfm.models.detection.backbones import BACKBONES
from keras_tfm.private.keras import shapes_alone
from tests import contract
from tests.contract import Case, floats, mask, randomise
from tests.models.folders import check_both_ways, check_refusal

RESNET = {"stem_dim": 4, "dims": (8, 8), "depths": (1, 1), "block": "basic"}
SMALL = DETRConfig(
    (20, 24), 1, backbone_config=RESNET, num_queries=3, dim=8, num_layers=1, num_heads=2, intermediate_dim=8
)
INPUTS = {"images": floats(20, 24, 1), "pixel_mask": mask(20, 24)}


def detector(config=SMALL, num_classes=2):
    return heads.ObjectDetector(DETR(config), num_classes)


# The first decoder block's queries are zeros: whatever they attend to has one value, a bias.
WITHOUT_EFFECT = tuple(
    f"decoder_block_0/attention/branch/attention/projections/{name}"
    for name in ("query/kernel", "query/bias", "key/kernel", "value/kernel")
)

test_contract = contract.check_family(
    Case(
        "ObjectDetector",
        detector,
        INPUTS,
        attends=True,
        convolves=True,
        mixes_padding=True,  # the backbone's convolutions do
        without_effect=WITHOUT_EFFECT,
    )
)


# zoo: with COCO's 91 labels; without the scales and offsets of batch normalisation, which are frozen.
@pytest.mark.parametrize(("size", "expected"), [("50", 41_524_768), ("101", 60_464_672)])
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    model = heads.ObjectDetector(DETR.from_size(size, image_size=64), 91)
    assert contract.num_parameters(model.trainable_weights) == expected


def test_cell_detr(no_allocation):
    """Prangemeier et al. 2020: as in their code 12 queries see 8 x 8 cells, by 8 heads of 128 dimensions."""
    model = heads.PanopticDetector(DETR.from_size("cell"), 2, num_maps=3)
    assert model.input["images"].shape == (None, 128, 128, 1)
    assert model.backbone.output["encoder_sequence_output"].shape == (None, 64, 128)
    assert model.backbone.output["decoder_outputs"].shape == (None, 2, 12, 128)
    assert model.output["masks"].shape == (None, 12, 32, 32)
    assert {stack: len(blocks) for stack, blocks in model.blocks.items()} == {
        "backbone": 3, "encoder": 3, "decoder": 2,
    }  # fmt: skip


def draw(seed=0, batch_size=2):
    return np.random.default_rng(seed).normal(size=(batch_size, 20, 24, 1)).astype("float32")


def test_outputs():
    model = DETR(SMALL)
    randomise(model, 1)
    outputs = model({"images": draw()})
    assert {name: x.shape for name, x in outputs.items()} == {
        "encoder_sequence_output": (2, 9, 8),  # 20 x 24 -> 10 x 12 -> 5 x 6 -> 3 x 3
        "decoder_sequence_output": (2, 3, 8),
        "decoder_outputs": (2, 1, 3, 8),
    }
    assert {stack: len(blocks) for stack, blocks in model.blocks.items()} == {
        "backbone": 2,
        "encoder": 1,
        "decoder": 1,
    }
    assert [len(states) for states in model.hidden_states.values()] == [3, 2, 2]
    assert [x.shape[1:] for x in model.maps] == [(5, 6, 8), (3, 3, 8)]


def test_every_decoder_block_is_an_output_through_the_one_norm():
    model = heads.ObjectDetector(DETR(dataclasses.replace(SMALL, num_decoder_layers=3)), 2)
    randomise(model, 1)
    norm = model.backbone.get_layer("decoder_norm")
    states = model.backbone.hidden_states["decoder"][1:]
    whole = keras_tfm.Model(model.input, [model.predictions, *map(norm, states)])
    predictions, *normed = whole({"images": draw(), "pixel_mask": np.ones((2, 20, 24), bool)})
    assert predictions.shape == (2, 3, 3, 2 + 5)
    for i, x in enumerate(normed):
        np.testing.assert_allclose(predictions[:, i, :, :3], model.get_layer("class_head")(x), atol=1e-5)
        boxes = model.get_layer("box_head")(x)
        np.testing.assert_allclose(predictions[:, i, :, 3:], boxes, atol=1e-5)
    last = model({"images": draw()})
    np.testing.assert_allclose(last["logits"], predictions[:, -1, :, :3], atol=1e-6)
    np.testing.assert_allclose(last["boxes"], predictions[:, -1, :, 3:], atol=1e-6)


def test_the_content_of_padded_cells_changes_nothing():
    """The backbone sees padded pixels, as theirs does; the Transformer does not see padded cells."""
    model = detector(dataclasses.replace(SMALL, image_size=(20, 64)))
    randomise(model, 1)
    shown = np.ones((2, 20, 64), bool)
    shown[:, :, 8:] = False  # all cells but the first column
    images = np.random.default_rng(0).normal(size=(2, 20, 64, 1)).astype("float32")
    other = images.copy()
    other[:, :, 63] = 9.0  # beyond what the convolutions of the cells that are shown see
    a, b, c = (
        model({"images": x, "pixel_mask": y})["boxes"]
        for x, y in ((images, shown), (other, shown), (images, np.ones_like(shown)))
    )
    np.testing.assert_allclose(a, b, atol=1e-6)
    assert np.abs(np.asarray(a) - np.asarray(c)).max() > 1e-3
    np.testing.assert_allclose(model({"images": images})["boxes"], c, atol=1e-6)  # True if nothing is said


def test_cells_are_shown_as_torch_interpolates():
    torch_like = resize_nearest(np.arange(7)[None, :, None] * np.ones((1, 7, 3)), (3, 2))
    np.testing.assert_array_equal(torch_like[0], [[0, 0], [2, 2], [4, 4]])


def test_batch_normalisation_is_frozen():
    model, free = detector(), detector(dataclasses.replace(SMALL, frozen_norms=False))
    frozen = {weight.path for weight in model.non_trainable_weights}
    assert {path.rpartition("/")[2] for path in frozen if "norm/" in path} == {
        "gamma",
        "beta",
        "moving_mean",
        "moving_variance",
    }
    assert len(free.trainable_weights) > len(model.trainable_weights)
    before = [weight.numpy() for weight in model.non_trainable_weights if "moving" in weight.path]
    model({"images": draw()}, training=True)
    after = [weight.numpy() for weight in model.non_trainable_weights if "moving" in weight.path]
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "MiT" else pytest.mark.slow) for name in BACKBONES]
)
def test_any_backbone_with_maps(name):
    tiny = models.tiny_config(BACKBONES[name])
    fields = {x: y for x, y in dataclasses.asdict(tiny).items() if x not in ("image_size", "num_channels")}
    config = dataclasses.replace(SMALL, image_size=32, num_channels=3, backbone=name, backbone_config=fields)
    with shapes_alone():
        model = DETR(config)
    assert model.output["decoder_sequence_output"].shape == (None, 3, 8)
    assert DETRConfig.from_json(json.loads(json.dumps(dataclasses.asdict(config)))) == config


def test_a_detector_around_a_backbone_that_has_learnt():
    backbone = models.ResNet(SMALL.of_backbone)
    randomise(backbone, 1)
    model = DETR.around(backbone, num_queries=3, dim=8, num_layers=1, num_heads=2, intermediate_dim=8)
    assert model.config == SMALL
    images = draw()
    expected = keras_tfm.Model(backbone.input, backbone.maps)({"images": images})
    mask = np.ones((2, 20, 24), bool)
    maps = keras_tfm.Model(model.input, model.maps)({"images": images, "pixel_mask": mask})
    for x, y in zip(maps, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_a_detector_computes_as_its_backbone():
    backbone = models.ResNet(SMALL.of_backbone, dtype="mixed_bfloat16")
    model = DETR.around(backbone, num_queries=3, dim=8, num_layers=1, num_heads=2, intermediate_dim=8)
    assert {layer.compute_dtype for layer in model.blocks["decoder"]} == {"bfloat16"}


def test_a_backbone_with_positions_for_another_size():
    backbone = models.PiT(models.tiny_config(models.PiT))
    side = backbone.config.image_size
    with pytest.raises(ValueError, match=f"`image_size` must be the backbone's, {side}; it is {2 * side}"):
        DETR.around(backbone, image_size=2 * side, num_queries=3, dim=8, num_layers=1, num_heads=2)


def test_folders_of_transformers_both_ways(tmp_path):
    model = detector()
    check_both_ways(model, tmp_path / "folder")
    entries = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert entries["backbone_config"]["hidden_sizes"] == [8, 8]
    swin = dataclasses.asdict(models.tiny_config(models.Swin))
    del swin["image_size"], swin["num_channels"]
    config = dataclasses.replace(SMALL, image_size=32, backbone="Swin", backbone_config=swin)
    with pytest.raises(ValueError, match="DetrModel computes only `backbone` 'ResNet'; it is 'Swin'"):
        save_huggingface(DETR(config), tmp_path / "swin")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_queries", 4, "query_position_embeddings.weight"),
        ("encoder_layers", 9_000, "`num_layers` is 9,000, and there are"),
        ("position_embedding_type", "learned", "position_embedding_type"),
        ("dilation", True, "dilation"),
        ("auxiliary_loss", True, "auxiliary_loss: expected False, got True"),
        ("backbone_config", {"model_type": "swin"}, "backbone_config"),
        ("backbone_config", {"model_type": "timm_backbone", "backbone": "resnet26d"}, "backbone_config"),
        ("backbone_config", {"model_type": "resnet", "hidden_sizes": [8, 8], "depths": [1, 1],
                             "out_features": ["stage1"]}, "backbone_config"),
        ("backbone_config", {"model_type": "resnet", "hidden_sizes": [8, 12], "depths": [1, 1],
                             "embedding_size": 4, "layer_type": "basic"}, "`dims` is 12, and no weight has"),
        ("backbone_config", 7, "backbone_config"),
    ],
)  # fmt: skip
def test_configurations_that_the_weights_do_not_bear_out(name, value, message, tmp_path):
    save_huggingface(DETR(SMALL), tmp_path / "folder")
    check_refusal(tmp_path / "folder", {name: value}, message)


def test_refusals():
    with pytest.raises(ValueError, match=r"`backbone` must be one of BiT, .*; it is 'ViT'"):
        DETRConfig(backbone="ViT")
    with pytest.raises(ValueError, match="`dim` must be a multiple of 4"):
        DETRConfig(dim=6, num_heads=2)
    with pytest.raises(ValueError, match="`backbone_config` must leave image_size to the detector's own"):
        DETRConfig(backbone_config={"image_size": 32})
    with pytest.raises(ValueError, match="ResNetConfig has no wings"):
        DETRConfig(backbone_config={"wings": 2})
    with pytest.raises(ValueError, match="`num_classes` must be at least 1; it is 0"):
        detector(num_classes=0)
