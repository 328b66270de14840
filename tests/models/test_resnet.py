"""ResNet and BiT: their published sizes, their maps, where they stride, their checkpoints both ways."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.convert import keymap, resnet, save_huggingface
from keras_tfm.heads import Classifier
from keras_tfm.models import BiT, BiTConfig, ResNet, ResNetConfig, ResNetVD, ResNetVDConfig
from keras_tfm.models.vision.pyramid import Pyramid
from keras_tfm.models.vision.resnet import ResidualNetwork
from tests import contract
from tests.contract import Case, floats
from tests.models.folders import check_both_ways, check_refusal
from tests.parity.references.timm import read_resnet

SMALL = ResNetConfig((13, 16), 1, stem_dim=4, dims=(8, 12), depths=(1, 2))
BASIC = dataclasses.replace(SMALL, dims=(4, 6), block="basic")
SMALL_BIT = BiTConfig((13, 16), 1, stem_dim=4, dims=(16, 24), depths=(1, 2), num_groups=2)
SMALL_VD = ResNetVDConfig((13, 16), 1, stem_dim=8, dims=(8, 12), depths=(1, 2), block="basic")
IMAGES = {"images": floats(13, 16, 1)}

test_contract = contract.check_family(
    # Under a head, which learns where the last ReLU gives nothing.
    Case("Classifier", lambda: Classifier(ResNet(SMALL), 3), IMAGES, convolves=True),
    Case("BiT", lambda: BiT(SMALL_BIT), IMAGES, convolves=True),
)


test_contract_of_vd = pytest.mark.slow(
    contract.check_family(Case("ResNetVD", lambda: Classifier(ResNetVD(SMALL_VD), 3), IMAGES, convolves=True))
)


# He et al. 2016; Kolesnikov et al. 2020.
@pytest.mark.parametrize(
    ("model", "size", "with_1000_classes"),
    [
        (ResNet, "18", 11_689_512),
        (ResNet, "34", 21_797_672),
        (ResNet, "50", 25_557_032),
        (ResNet, "101", 44_549_160),
        (BiT, "50x1", 25_549_352),
        (BiT, "50x3", 217_319_080),
    ],
)
def test_parameters_of_the_published_sizes(model, size, with_1000_classes, no_allocation):
    classifier = Classifier(model.from_size(size), 1000)
    assert contract.num_parameters(classifier.trainable_weights) == with_1000_classes


@pytest.mark.parametrize(
    ("make", "widths"), [(lambda: ResNet(SMALL), (4, 8, 12)), (lambda: BiT(SMALL_BIT), (4, 16, 24))]
)
def test_outputs_and_maps(make, widths):
    model = make()
    outputs = model({"images": np.random.default_rng(0).random((3, 13, 16, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 4, widths[2])  # 13 x 16 -> 7 x 8 -> 4 x 4 -> 2 x 2
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)
    assert [x.shape[1:] for x in model.maps] == [(4, 4, widths[1]), (2, 2, widths[2])]
    assert [x.shape[-1] for x in model.hidden_states["encoder"]] == [*widths[:2], widths[2], widths[2]]
    names = [block.name for block in model.blocks["encoder"]]
    assert names == ["stage_0_block_0", "stage_1_block_0", "stage_1_block_1"]


def test_where_blocks_stride_and_where_they_project():
    blocks = ResNet(dataclasses.replace(SMALL, stem_dim=8)).blocks["encoder"]
    assert [block.shortcut is None for block in blocks] == [True, False, True]
    assert [[layer.stride for layer in block.branch.layers] for block in blocks] == [
        [1, 1, 1],
        [1, 2, 1],  # version 1.5: in the 3 x 3 convolution
        [1, 1, 1],
    ]
    blocks = BiT(dataclasses.replace(SMALL_BIT, stem_dim=16)).blocks["encoder"]
    assert [block.shortcut is None for block in blocks] == [False, False, True]


def test_an_example_of_a_batch_does_not_see_the_others_in_training():
    """BiT has no statistics of batches, a ResNet has."""
    images = np.random.default_rng(0).random((3, 13, 16, 1), "float32")
    for model, is_alone in ((BiT(SMALL_BIT), True), (ResNet(SMALL), False)):
        together, alone = (model({"images": x}, training=True)["pooled_output"] for x in (images, images[:1]))
        assert (np.abs(np.asarray(together)[:1] - np.asarray(alone)).max() < 1e-5) == is_alone


@pytest.mark.parametrize(
    "make",
    [lambda: Classifier(ResNet(BASIC), 5), lambda: BiT(SMALL_BIT)],
)
def test_folders_of_transformers_both_ways(make, tmp_path):
    model = make()
    check_both_ways(model, tmp_path / "folder")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("hidden_sizes", [16, 12], "`dims` is 16, and no weight has such an axis"),
        ("depths", [1, 300], "`depths` is 300, and there are 72 weights"),
        ("layer_type", "other", "layer_type: expected one of basic, bottleneck"),
        ("downsample_in_bottleneck", True, "downsample_in_bottleneck"),
    ],
)
def test_configurations_that_the_weights_do_not_bear_out(name, value, message, tmp_path):
    save_huggingface(ResNet(SMALL), tmp_path / "folder")
    check_refusal(tmp_path / "folder", {name: value}, message)


def test_names_of_timm():
    dims = ResNet.sizes["18"].dims  # which timm's arguments do not say
    model = Classifier(ResNet(ResNetConfig((33, 40), 1, dims=dims, depths=(1, 1, 1, 1), block="basic")), 3)
    weights = keymap.save(model, resnet.timm_rows(model.backbone.config))
    arguments = {"img_size": [33, 40], "in_chans": 1, "layers": [1, 1, 1, 1], "num_classes": 3}
    arguments["block"] = "BasicBlock"
    again, outputs = read_resnet(arguments, weights)
    for a, b in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert outputs["features/stage_1"].shape == (None, 5, 5, 128)
    arguments = {"block": "BasicBlock", "layers": [2, 2, 2, 2], "channels": [64, 128, 256, 512]}
    assert resnet.TIMM.read_config(arguments) == ResNet.sizes["18"]


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match="`dims` and `depths` must have a number for each stage"):
        ResNetConfig(dims=(8, 12), depths=(1,))
    with pytest.raises(ValueError, match="`dims` of bottlenecks must be multiples of 4"):
        ResNetConfig(dims=(8, 10), depths=(1, 1))
    with pytest.raises(
        ValueError, match="`num_groups` must divide `stem_dim` and a quarter of each of `dims`"
    ):
        BiTConfig(num_groups=3)
    five = dataclasses.replace(SMALL_BIT, dims=(16,) * 5, depths=(1,) * 5)
    with pytest.raises(ValueError, match="only four stages; there are 5"):
        save_huggingface(BiT(five), tmp_path / "folder")


@pytest.mark.parametrize(("pyramid", "missing"), [(Pyramid, "stage"), (ResidualNetwork, "block")])
def test_what_has_no_stages_is_no_model(pyramid, missing):
    with pytest.raises(TypeError, match=f"abstract class {pyramid.__name__} with.* {missing}"):
        pyramid(SMALL)


@pytest.mark.parametrize("block", ["basic", "bottleneck"])
def test_a_last_stage_without_a_stride(block, tmp_path):
    """Its map is as large as the one before; transformers has no such network."""
    config = dataclasses.replace(SMALL, block=block, last_stride=1)
    model, usual = ResNet(config), ResNet(dataclasses.replace(config, last_stride=2))
    assert [x.shape[1:3] for x in model.maps] == [(4, 4), (4, 4)]
    assert [x.shape[1:3] for x in usual.maps] == [(4, 4), (2, 2)]
    assert model.count_params() == usual.count_params()
    with pytest.raises(ValueError, match="computes only `last_stride` 2; it is 1"):
        save_huggingface(model, tmp_path / "folder")


@pytest.mark.parametrize("family", [ResNet, ResNetVD])
def test_a_stem_without_pooling(family, tmp_path):
    """Maps are twice as large, by the same weights; transformers has no such network."""
    fields = dataclasses.asdict(SMALL)
    model, usual = (family(family.config_class(**fields | {"stem_stride": x})) for x in (2, 4))
    assert [x.shape[1:3] for x in model.maps] == [(7, 8), (4, 4)]
    assert [x.shape[1:3] for x in usual.maps] == [(4, 4), (2, 2)]
    assert model.count_params() == usual.count_params()
    if family is ResNet:
        with pytest.raises(ValueError, match="computes only `stem_stride` 4; it is 2"):
            save_huggingface(model, tmp_path / "folder")
