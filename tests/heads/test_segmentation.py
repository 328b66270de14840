"""Decoders of maps, by the contract and by hand; the loss of labelled pixels."""

import keras
import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from keras_tfm import heads
from keras_tfm.layers.resizing import resize_between_corners, resize_bilinear
from keras_tfm.models import MiT, MiTConfig, ViT, ViTConfig
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = MiTConfig(
    image_size=(12, 20),
    num_channels=1,
    dims=(4, 6),
    depths=(1, 1),
    num_heads=(1, 2),
    patch_sizes=(3, 3),
    strides=(2, 2),
    reductions=(2, 1),
    mlp_ratios=(2, 2),
)
PLAIN = ViTConfig(
    image_size=(8, 12), patch_size=4, num_channels=1, num_layers=5, dim=8, num_heads=2, intermediate_dim=8
)


def segmenter(decoder, config=SMALL):
    model = MiT if config is SMALL else ViT
    return heads.SemanticSegmenter(model(config), 3, decoder, dim=6)


test_contract = contract.check(
    *(
        Case(
            f"SemanticSegmenter {decoder}",
            lambda decoder=decoder, config=config: segmenter(decoder, config),
            {"images": floats(*config.image_size, 1)},
            attends=True,
            convolves=True,
            without_effect=without_effect,  # a batch norm takes it out again
        )
        for decoder, config, without_effect in (
            ("mlp", SMALL, ("stage_1_norm/beta", "projection_0/bias", "projection_1/bias")),
            ("mla", PLAIN, tuple(f"first_{i}/layer_0/beta" for i in range(4))),
        )
    )
)


@pytest.mark.parametrize(
    ("decoder", "config", "size"),
    [
        ("mlp", SMALL, (6, 10)),
        pytest.param("naive", SMALL, (3, 5), marks=pytest.mark.slow),
        pytest.param("pup", SMALL, (12, 20), marks=pytest.mark.slow),
        pytest.param("mla", SMALL, (12, 20), marks=pytest.mark.slow),
        pytest.param("mlp", PLAIN, (2, 3), marks=pytest.mark.slow),
        pytest.param("naive", PLAIN, (2, 3), marks=pytest.mark.slow),
        pytest.param("pup", PLAIN, (8, 12), marks=pytest.mark.slow),
        pytest.param("mla", PLAIN, (8, 12), marks=pytest.mark.slow),
    ],
)
def test_the_size_of_logits(decoder, config, size):
    model = segmenter(decoder, config)
    assert model.output.shape == (None, *size, 3)
    clone = type(model).from_config(model.get_config())
    assert clone.head_arguments == {"num_classes": 3, "decoder": decoder, "dim": 6, "dropout": 0.1}


def test_the_decoder_is_segformers_unless_another_is_named():
    model = heads.SemanticSegmenter(MiT(SMALL), 3)
    assert model.head_arguments == {"num_classes": 3, "decoder": "mlp", "dim": 256, "dropout": 0.1}


def test_resizing_is_linear_between_centres():
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 1)).astype("float32")
    rows, columns = ((np.arange(n) + 0.5) * side / n - 0.5 for n, side in ((7, 3), (9, 4)))
    grid = np.meshgrid(rows, columns, indexing="ij")
    expected = map_coordinates(x[0, ..., 0], grid, order=1, mode="nearest")
    np.testing.assert_allclose(resize_bilinear(x, (7, 9))[0, ..., 0], expected, atol=1e-6)


def test_resizing_between_corners():
    """Places are evenly spaced from the first cell's centre to the last one's."""
    x = np.random.default_rng(0).normal(size=(2, 4, 5, 3)).astype("float32")
    y = np.asarray(resize_between_corners(x, (8, 9)))
    assert y.shape == (2, 8, 9, 3)
    places = np.meshgrid(np.linspace(0, 3, 8), np.linspace(0, 4, 9), indexing="ij")
    np.testing.assert_allclose(y[1, ..., 2], map_coordinates(x[1, ..., 2], places, order=1), atol=1e-6)
    np.testing.assert_array_equal(y[:, [0, 0, -1, -1], [0, -1, 0, -1]], x[:, [0, 0, -1, -1], [0, -1, 0, -1]])


def test_mlp_decoder_fuses_as_the_paper_has_it():
    """Project, resize, put side by side, the last first, and multiply: not the order of ours."""
    rng = np.random.default_rng(0)
    maps = [rng.normal(size=(2, *size)).astype("float32") for size in ((6, 8, 3), (3, 4, 5))]
    decoder = heads.MLPDecoder(4)
    y = decoder(maps)
    parts = [resize_bilinear(p(x), (6, 8)) for p, x in zip(decoder.projections, maps, strict=True)]
    expected = np.concatenate(parts[::-1], -1) @ decoder.fuse.kernel.numpy() / np.sqrt(1 + 1e-5)
    np.testing.assert_allclose(y, np.maximum(expected, 0), atol=1e-5)
    decoder.fuse.quantize("int8")  # the kernel is whole then
    assert np.abs(decoder(maps) - y).max() < 0.05


def test_multi_level_decoder_adds_from_the_last_map_to_the_first():
    rng = np.random.default_rng(0)
    large, small = (rng.normal(size=(2, *size)).astype("float32") for size in ((4, 6, 3), (2, 3, 5)))
    decoder = heads.MultiLevelDecoder(4, scale=2)
    y = decoder([large, small])
    (first, last), (first_small, last_small) = decoder.levels
    assert [x.shape[-1] for x in (first(large), last(first(large)))] == [4, 2]
    total = first_small(small)
    parts = [last(first(large) + resize_bilinear(total, (4, 6))), last_small(total)]
    expected = np.concatenate([resize_bilinear(part, (8, 12)) for part in parts], axis=-1)
    np.testing.assert_allclose(y, expected, atol=1e-5)


@pytest.mark.parametrize("num_steps", [0, 2])
def test_progressive_decoder_convolves_and_doubles(num_steps):
    x = np.random.default_rng(0).normal(size=(2, 2, 3, 5)).astype("float32")
    decoder = heads.ProgressiveDecoder(4, num_steps)
    y = decoder([np.zeros((2, 4, 6, 3)), x])
    expected = decoder.norm(x)
    for step, convolution in enumerate(decoder.convolutions, 1):
        expected = resize_bilinear(convolution(expected), (2 * 2**step, 3 * 2**step))
    np.testing.assert_allclose(y, expected, atol=1e-6)


def test_maps_of_a_plain_model_are_its_patches():
    model = ViT(PLAIN)
    randomise(model, 1)
    maps = heads.map_decoders.maps_of(model)
    states = [model.hidden_states["encoder"][i] for i in (1, 2, 3)] + [model.output["sequence_output"]]
    images = np.random.default_rng(0).normal(size=(1, 8, 12, 1))
    values = keras.Model(model.input, [*maps, *states])({"images": images})
    for x, state in zip(values[:4], values[4:], strict=True):
        np.testing.assert_array_equal(x, np.reshape(state[:, 1:], (1, 2, 3, 8)))  # the class token is first


def test_the_loss_is_a_mean_over_labelled_pixels():
    logits = np.zeros((2, 1, 2, 3), "float32")
    logits[0, 0, 0] = [2, 0, 0]
    labels = np.array([[[0, 255]], [[255, 1]]], "uint8")
    right = -np.log(np.exp(2) / (np.exp(2) + 2))
    loss = heads.SegmentationLoss()
    assert float(loss(labels, logits)) == pytest.approx((right + np.log(3)) / 2, rel=1e-6)
    assert float(loss(np.full((2, 1, 2), 255), logits)) == 0
    ((total, count),) = loss.means(labels, logits)
    assert float(count) == 2 and float(total) == pytest.approx(right + np.log(3), rel=1e-6)
    clone = keras.losses.deserialize(keras.losses.serialize(heads.SegmentationLoss(7)))
    assert clone.ignored == 7
    wide = np.repeat(np.repeat(labels, 2, 1), 2, 2)  # logits are resized to the labels
    resized = np.asarray(resize_bilinear(logits, (2, 4)))
    assert float(loss(wide, logits)) == pytest.approx(float(loss(wide, resized)), rel=1e-6)


def test_refusals():
    with pytest.raises(
        ValueError, match="`decoder` must be one of mlp, naive, pup, mla, linear; it is 'fpn'"
    ):
        segmenter("fpn")
    with pytest.raises(ValueError, match="`num_classes` must be at least 2"):
        heads.SemanticSegmenter(MiT(SMALL), 1)
    with pytest.raises(ValueError, match="`dim` must be even"):
        heads.MultiLevelDecoder(3)
    with pytest.raises(ValueError, match="`scale` at least 1; they are 4 and 0"):
        heads.MultiLevelDecoder(4, 0)
    with pytest.raises(ValueError, match="`num_steps` must be at least 0; it is -1"):
        heads.ProgressiveDecoder(4, -1)
    for decoder in (heads.MLPDecoder, heads.NaiveDecoder, heads.ProgressiveDecoder, heads.MultiLevelDecoder):
        with pytest.raises(ValueError, match="`dim` must be at least 1; it is 0"):
            decoder(0)
