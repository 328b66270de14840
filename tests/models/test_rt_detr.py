"""RT-DETR: the published size, which cells become queries, padding, other classes, folders both ways."""

import dataclasses

import numpy as np
import pytest

import keras_tfm
from keras_tfm import heads
from keras_tfm.convert import from_huggingface, save_huggingface
from keras_tfm.models import RTDETR, ResNetVD, ResNetVDConfig, RTDETRConfig
from keras_tfm.models.detection.rt_detr import CellSines
from tests import contract
from tests.contract import Case, floats, mask, randomise
from tests.models.folders import assert_same, check_both_ways, check_refusal

RESNET = {"stem_dim": 8, "dims": (8, 12), "depths": (1, 1), "block": "basic"}
SMALL = RTDETRConfig(
    (36, 28),
    1,
    backbone_config=RESNET,
    num_queries=3,
    dim=16,
    num_decoder_layers=2,
    num_heads=2,
    intermediate_dim=8,
    num_classes=2,
    num_maps=2,
    encoder_dim=8,
    expansion=0.5,
    num_decoder_points=2,
    num_denoising=0,
)
SIDES = SMALL.image_size


def detector(config=SMALL):
    return heads.VarifocalDetector(RTDETR(config), config.num_classes)


test_contract = pytest.mark.slow(
    contract.check_family(
        Case(
            "RTDETR",
            lambda: RTDETR(SMALL),
            {"images": floats(*SIDES, 1), "pixel_mask": mask(*SIDES)},
            convolves=True,
            mixes_padding=True,  # convolutions do
            chooses=True,
            # In training batch normalisation takes away what they add to all cells of a map.
            without_effect=("encoder_block_0/feedforward/norm/beta", "encoder_projection_0/norm/beta"),
        )
    )
)


def test_parameters_of_the_published_size(no_allocation):
    """What is trained, with COCO's 80 classes: the scales and offsets of the backbone's frozen normalisation
    are not, the table of the denoising queries' classes is.
    """
    model = heads.VarifocalDetector(RTDETR.from_size("50", image_size=128), 80)
    assert contract.num_parameters(model.trainable_weights) == 42_891_372


def draw(seed=0, batch_size=2):
    return np.random.default_rng(seed).normal(size=(batch_size, *SIDES, 1)).astype("float32")


@pytest.fixture(scope="module")
def model():
    made = detector()
    randomise(made, 1)
    return made


def test_outputs(model):
    outputs = model.backbone({"images": draw()})
    assert {name: x.shape for name, x in outputs.items()} == {
        "encoder_sequence_output": (2, 63 + 20, 16),  # 36 x 28 -> 9 x 7 -> 5 x 4
        "decoder_sequence_output": (2, 3, 16),
        "decoder_outputs": (2, 2, 3, 16),
        "decoder_boxes": (2, 2, 3, 4),
        "proposals": (2, 3, 2 + 4),
    }
    stacks = {"backbone": 2, "encoder": 1, "decoder": 2}
    assert {stack: len(blocks) for stack, blocks in model.blocks.items()} == stacks
    assert model.predictions.shape == (None, 1 + 2, 3, 2 + 4)
    assert isinstance(model.loss_of_training(), heads.VarifocalSetPredictionLoss)


def test_queries_begin_as_the_cells_of_the_likeliest_classes(model):
    """The cells' scores of all classes, once more by NumPy, and the best of each image."""
    backbone = model.backbone
    scores = backbone.get_layer("proposal_class_head").output
    inputs = {"images": draw(), "pixel_mask": np.ones((2, *SIDES), bool)}
    features = backbone.get_layer("proposal_norm").output
    first = backbone.hidden_states["decoder"][0]
    whole = keras_tfm.Model(backbone.input, [scores, features, first, backbone.output["proposals"]])
    scores, features, first, proposals = (np.asarray(x) for x in whole(inputs))
    best = np.argsort(-scores.max(-1), axis=1)[:, :3]
    for row in range(2):
        chosen = scores[row, best[row]]
        np.testing.assert_allclose(proposals[row, :, :2], chosen, atol=1e-5)
        np.testing.assert_allclose(first[row], features[row, best[row]], atol=1e-5)


def test_queries_that_are_learnt_begin_the_same_for_all_images():
    learnt = RTDETR(dataclasses.replace(SMALL, learns_queries=True))
    assert learnt.get_layer("decoder_queries").table.shape == (3, 16)
    first = keras_tfm.Model(learnt.input, learnt.hidden_states["decoder"][0])
    given = first({"images": draw(), "pixel_mask": np.ones((2, *SIDES), bool)})
    np.testing.assert_array_equal(given[0], given[1])


def test_sines_of_rows_then_of_columns():
    """A grid of 2 x 3: two frequencies, 1 and 1/100."""
    table = np.asarray(CellSines()(np.zeros((1, 2, 3, 8), "float32")))[0]
    for row in range(2):
        for column in range(3):
            angles = [(row, row / 100), (column, column / 100)]
            expected = np.concatenate([f(x) for x in angles for f in (np.sin, np.cos)])
            np.testing.assert_allclose(table[row, column], expected, atol=1e-6)


def test_boxes_are_parts_of_the_image_without_its_padding(model):
    """An image and the same one beside padding: what is in the padding changes nothing but borders."""
    shown = np.ones((2, *SIDES), bool)
    shown[:, :, 16:] = False
    images = draw()
    for name in ("boxes", "logits"):
        a, b = (model({"images": images, "pixel_mask": x})[name] for x in (shown, np.ones_like(shown)))
        assert np.isfinite(a).all() and np.abs(np.asarray(a) - np.asarray(b)).max() > 1e-3  # it is read
    hidden = model({"images": images, "pixel_mask": np.zeros_like(shown)})
    assert np.isfinite(hidden["boxes"]).all()


def test_other_classes_keep_all_other_weights(model):
    backbone = model.backbone
    assert backbone.with_classes(2) is backbone
    other = heads.detector_around(backbone, 5)
    assert isinstance(other, heads.VarifocalDetector) and other.backbone.config.num_classes == 5
    changed = [
        new.path
        for new, old in zip(other.backbone.weights, backbone.weights, strict=True)
        if new.shape != old.shape or not np.array_equal(new, old)
    ]
    assert changed == ["proposal_class_head/kernel", "proposal_class_head/bias"]
    with pytest.raises(ValueError, match="`num_classes` must be 2, as the backbone has them; it is 5"):
        heads.VarifocalDetector(backbone, 5)


def test_folders_of_transformers_both_ways(model, folder):
    assert_same(from_huggingface(folder), model)


@pytest.mark.slow
def test_a_folder_of_learnt_queries(tmp_path):
    """And of fusions as wide as the maps, which have one convolution less."""
    model = detector(dataclasses.replace(SMALL, learns_queries=True, expansion=1.0, num_denoising=10))
    check_both_ways(model, tmp_path / "folder")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("normalize_before", True, "normalize_before"),
        ("eval_size", [640, 640], "eval_size"),
        ("encode_proj_layers", [0, 1], "encode_proj_layers"),
        ("encode_proj_layers", [2], "backbone_config"),
        ("id2label", {"0": "a", "1": "b", "2": "c"}, "enc_score_head.weight"),
        ("activation_function", "mish", "activation_function"),
        ("backbone_config", {"model_type": "resnet", "hidden_sizes": [8, 12], "depths": [1, 1],
                             "embedding_size": 8, "layer_type": "basic",
                             "out_features": ["stage1", "stage2"]}, "backbone_config"),
        ("backbone_config", {"hidden_sizes": [8, 8], "depths": [1, 1], "embedding_size": 8,
                             "layer_type": "basic", "out_features": ["stage1", "stage2"]}, "backbone_config"),
    ],
)  # fmt: skip
def test_configurations_that_the_weights_do_not_bear_out(name, value, message, folder):
    check_refusal(folder, {name: value}, message)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "folder"
    save_huggingface(model, folder)
    return folder


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match=r"`encoder_dim` must be a multiple of four, .* it is 10"):
        RTDETRConfig(encoder_dim=10)
    with pytest.raises(ValueError, match=r"`expansion` must leave a width of at least 1; it is 0\.001"):
        RTDETRConfig(expansion=0.001)
    with pytest.raises(ValueError, match="`num_maps` must be at most 2; it is 3"):
        RTDETR(dataclasses.replace(SMALL, num_maps=3))
    with pytest.raises(ValueError, match="`num_queries` must be at most 83, the cells of all levels"):
        RTDETR(dataclasses.replace(SMALL, num_queries=84))
    with pytest.raises(ValueError, match="`stem_dim` must be even; it is 3"):
        ResNetVDConfig(stem_dim=3)
    config = dataclasses.replace(SMALL, backbone_config={**RESNET, "stem_dim": 4})
    with pytest.raises(ValueError, match=r"`stem_dim` is 4 and `dims` are \(8, 12\)"):
        save_huggingface(RTDETR(config), tmp_path / "other")


def test_shortcuts_of_a_resnet_vd_average_before_they_project():
    """A map of odd sides: the last cells are means of fewer cells, all that there are."""
    model = ResNetVD(ResNetVDConfig((20, 12), 1, **RESNET))
    randomise(model, 1)
    _, block = model.blocks["encoder"]
    x = np.random.default_rng(0).normal(size=(2, 5, 3, 8)).astype("float32")
    means = np.zeros((2, 3, 2, 8), "float32")
    for row in range(3):
        for column in range(2):
            part = x[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            means[:, row, column] = part.mean(axis=(1, 2))
    pooling, projection = block.shortcut.layers
    np.testing.assert_allclose(pooling(x), means, atol=1e-6)
    np.testing.assert_allclose(block.shortcut(x), projection(means), atol=1e-5)
    assert projection.stride == 1
    first, _ = model.blocks["encoder"]
    assert first.shortcut.stride == 1  # it keeps the width, and projects nevertheless
