"""VideoMAE: its sizes, the tubes that it hides and learns, its encoder, its folders."""

import dataclasses
import math

import keras
import numpy as np
import pytest

from keras_tfm.heads import Classifier, MaskedVideoAutoencoder, patch_loss
from keras_tfm.models import VideoMAE, VideoMAEConfig
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models.folders import check_both_ways, check_refusal

SMALL = VideoMAEConfig(
    image_size=(4, 6),
    patch_size=2,
    num_channels=1,
    num_layers=1,
    dim=8,
    num_heads=2,
    intermediate_dim=12,
    num_frames=4,
)
FIRST = dataclasses.replace(SMALL, pooling="first")
DECODER = {"num_layers": 1, "dim": 12, "num_heads": 3, "intermediate_dim": 10}
VIDEOS = {"videos": floats(4, 4, 6, 1)}


def autoencoder(config=FIRST, **options):
    return MaskedVideoAutoencoder(VideoMAE(config), **{"mask_ratio": 0.7, **DECODER, **options})


test_contract = contract.check_family(
    Case("VideoMAE", lambda: VideoMAE(SMALL), VIDEOS, attends=True),
    Case("MaskedVideoAutoencoder", autoencoder, {**VIDEOS, "noise": floats(6)}, attends=True),
)


# transformers' counts: with a classifier of 400 classes, and of the pre-training model.
@pytest.mark.parametrize(
    ("size", "classifier", "whole"),
    [("S/16", 22_033_936, 24_029_376), ("B/16", 86_534_800, 94_210_944)],
)
def test_parameters_of_the_published_sizes(size, classifier, whole, no_allocation):
    def count(model):
        return sum(math.prod(weight.shape) for weight in model.weights if "float" in weight.dtype)

    assert count(Classifier(VideoMAE.from_size(size), 400, norm_epsilon=1e-5)) == classifier
    decoder = {"dim": 192, "num_heads": 3, "intermediate_dim": 768} if size == "S/16" else {}
    assert count(MaskedVideoAutoencoder(VideoMAE.from_size(size, pooling="first"), **decoder)) == whole


def draw():
    rng = np.random.default_rng(0)
    return rng.random((3, 4, 4, 6, 1), "float32"), rng.random((3, 6), "float32")


def test_outputs():
    for config in (SMALL, FIRST):
        outputs = VideoMAE(config)({"videos": draw()[0]})
        states = np.asarray(outputs["sequence_output"])
        assert states.shape == (3, 12, 8)
        pooled = states.mean(1) if config is SMALL else states[:, 0]
        np.testing.assert_allclose(outputs["pooled_output"], pooled, atol=1e-6)


def test_keys_have_no_bias():
    names = {
        weight.path.rpartition("/")[2] for weight in VideoMAE(SMALL).blocks["encoder"][0].attention.weights
    }
    assert {"query_bias", "value_bias"} <= names and "key_bias" not in names


def tube(place):
    """A place's pixels in all frames."""
    row, column = divmod(place, 3)
    return np.s_[0, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]


def test_tubes_are_hidden_and_do_not_matter():
    model = autoencoder()
    randomise(model, 1)
    videos, noise = draw()
    inputs, targets, weights = model.examples(videos, noise)
    hidden = np.asarray(weights).reshape(3, 2, 6)
    np.testing.assert_array_equal(hidden[:, 0], hidden[:, 1])  # the same places at both moments
    assert np.all(hidden.sum(-1) == 4)  # 0.7 of 6, rounded down
    np.testing.assert_array_equal(hidden[:, 0], np.argsort(np.argsort(noise)) >= 2)
    expected = np.asarray(model(inputs))
    assert expected.shape == targets.shape == (3, 12, 8)
    videos[tube(int(np.argmax(noise[0])))] = 9
    np.testing.assert_array_equal(model({"videos": videos, "noise": noise}), expected)
    videos[tube(int(np.argmin(noise[0])))] = 9
    assert np.abs(np.asarray(model({"videos": videos, "noise": noise})) - expected)[0].min() > 0


def test_a_tenth_is_visible_as_in_the_authors_code():
    """176 of 196 places are hidden: 20 at each of 8 moments are read."""
    backbone = VideoMAE.from_size("B/16", num_layers=1, dim=8, num_heads=1, intermediate_dim=8)
    model = MaskedVideoAutoencoder(backbone, num_layers=1, dim=8, num_heads=1, intermediate_dim=8)
    assert model.get_layer("decoder_embedding").output.shape == (None, 160, 8)


def test_targets_are_pixels_normalised_by_channel():
    config = dataclasses.replace(FIRST, num_channels=2)
    model = autoencoder(config, mean=(0.4, 0.5), std=(0.2, 0.3))
    videos = np.random.default_rng(0).normal(size=(1, 4, 4, 6, 2)).astype("float32")
    _, targets, _ = model.examples(videos, np.arange(6.0)[None])
    block = videos[0, 2:, 2:, 4:] * np.float32([0.2, 0.3]) + np.float32([0.4, 0.5])  # the last tubelet
    block = block.reshape(8, 2)
    expected = (block - block.mean(0)) / (block.std(0, ddof=1) + 1e-6)
    np.testing.assert_allclose(targets[0, -1], expected.ravel(), atol=1e-4)
    model = autoencoder(config, normalize_pixels=False)
    _, targets, _ = model.examples(videos, np.arange(6.0)[None])
    np.testing.assert_array_equal(targets[0, -1], videos[0, 2:, 2:, 4:].ravel())


def test_noise_that_is_left_out_is_drawn():
    model = autoencoder()
    videos, _ = draw()
    (first, _, _), (second, _, _) = model.examples(videos), model.examples(videos)
    assert np.abs(np.subtract(first["noise"], second["noise"])).min() > 0
    assert model({"videos": videos}).shape == (3, 12, 8)


@pytest.mark.slow
def test_it_learns_and_its_encoder_is_what_is_fine_tuned():
    videos, _ = draw()
    model = autoencoder(normalize_pixels=False)
    model.compile(keras.optimizers.Adam(0.01), patch_loss())
    inputs, targets, weights = model.examples(videos)
    losses = model.fit(inputs, targets, sample_weight=weights, epochs=30, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2
    encoder = model.backbone.encoder(pooling="mean")
    states = keras.Model(model.backbone.input, model.backbone.hidden_states["encoder"][-1])
    expected = states({"videos": videos})
    np.testing.assert_allclose(encoder({"videos": videos})["sequence_output"], expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["mean", "first", "pixels"])
def test_folders_of_transformers_both_ways(kind, tmp_path):
    model = {
        "mean": lambda: Classifier(VideoMAE(SMALL), 5, norm_epsilon=1e-5),
        "first": lambda: Classifier(VideoMAE(FIRST), 5),
        "pixels": autoencoder,
    }[kind]()
    check_both_ways(model, tmp_path / "folder")
    message = "use_mean_pooling: expected true or false, got 'max'"
    check_refusal(tmp_path / "folder", {"use_mean_pooling": "max"}, message)


def test_refusals():
    with pytest.raises(ValueError, match="Videos of 3 frames are not divisible into tubelets of 2"):
        VideoMAE(dataclasses.replace(SMALL, num_frames=3))
    with pytest.raises(ValueError, match=r"`x` must have a known length and an even width D; its shape is"):
        VideoMAE(dataclasses.replace(SMALL, dim=9, num_heads=3))
    with pytest.raises(ValueError, match=r"`mask_ratio` must lie in \[0, 1\)"):
        autoencoder(mask_ratio=1.2)
    with pytest.raises(ValueError, match="needs 'videos'"):
        autoencoder()({"noise": np.zeros((1, 6), "float32")})
