"""Denoiser: noise and targets by hand, what is drawn, dropped classes, what checkpoints keep, refusals."""

import keras
import numpy as np
import pytest

from keras_tfm import generation, training
from keras_tfm.heads import Denoiser
from keras_tfm.heads.denoiser import ClassDropout, LogSNR, TextDropout, rates_of
from keras_tfm.layers import rates_of_log_snr
from keras_tfm.models import BERT, DiT, DiTConfig, Imagen, ImagenUNet
from tests import contract
from tests.contract import Case, Spec, floats, randomise

TINY = DiTConfig(4, 2, num_channels=1, num_layers=1, dim=8, num_heads=2, intermediate_dim=8, num_classes=3)


def denoiser(**options):
    return Denoiser(DiT(TINY), **{"num_steps": 10} | options)


INPUTS = {
    "images": floats(4, 4, 1),
    "timesteps": Spec((), "int32", 10),
    "noise": floats(4, 4, 1),
    "classes": Spec((), "int32", 4),
}
test_contract = contract.check_family(Case("denoiser", denoiser, INPUTS, attends=True))


def draw(seed=0, count=6):
    rng = np.random.default_rng(seed)
    images, noise = rng.normal(size=(2, count, 4, 4, 1)).astype("float32")
    inputs = {"images": images, "noise": noise, "timesteps": rng.integers(0, 10, count)}
    return inputs | {"classes": rng.integers(0, 3, count)}


@pytest.mark.parametrize("prediction", ["noise", "velocity", "clean"])
def test_targets_and_noisy_images_by_hand(prediction):
    model, inputs = denoiser(prediction=prediction), draw()
    contract.randomise(model.backbone, 1)
    signal, noise = (rate[inputs["timesteps"]][:, None, None, None] for rate in rates_of("cosine", 10))
    noisy = signal * inputs["images"] + noise * inputs["noise"]
    targets = {"noise": inputs["noise"], "clean": inputs["images"]}
    targets["velocity"] = signal * inputs["noise"] - noise * inputs["images"]
    y = model(inputs)
    np.testing.assert_allclose(y["target"], targets[prediction], atol=1e-6)
    given = {"images": noisy, "timesteps": inputs["timesteps"], "classes": inputs["classes"]}
    np.testing.assert_allclose(y["prediction"], model.backbone(given)["prediction"], atol=1e-5)


def test_clean_images_weigh_as_their_velocity_up_to_a_bound():
    model, plain, inputs = denoiser(prediction="clean", max_weight=4.0), denoiser(prediction="clean"), draw()
    for one in (model, plain):
        contract.randomise(one.backbone, 1)
    signal, noise = (rate[inputs["timesteps"]][:, None, None, None] for rate in rates_of("cosine", 10))
    assert noise.min() < 0.5 < noise.max()
    y, z = ({name: np.asarray(x, "float64") for name, x in one(inputs).items()} for one in (model, plain))
    np.testing.assert_allclose(y["target"], z["target"] / np.maximum(noise, 0.5), atol=1e-5)
    noisy = signal * inputs["images"] + noise * inputs["noise"]
    # What is clean, and x, say what the velocity is: (signal x - clean) / noise.
    velocities = [(signal * noisy - clean) / noise for clean in (z["prediction"], z["target"])]
    squares = [np.square(a - b).mean((1, 2, 3)) for a, b in (velocities, (y["prediction"], y["target"]))]
    is_noisy = noise[:, 0, 0, 0] > 0.5
    np.testing.assert_allclose(squares[0][is_noisy], squares[1][is_noisy], rtol=1e-4)
    assert np.all(squares[0][~is_noisy] > 1.01 * squares[1][~is_noisy])
    np.testing.assert_array_equal(
        denoiser(prediction="clean", max_weight=1.0)(inputs)["target"], inputs["images"]
    )


def test_a_factor_of_the_noise():
    """Targets and noisy images are those of rates whose ratio is as many times the schedule's; the backbone
    hears of it, and so do those who draw with the model's rates.
    """
    backbone = Imagen.from_size("tiny", image_size=16, vocabulary_size=9, max_length=4)
    model = Denoiser(backbone, num_steps=10, prediction="noise", noise_factor=3.0)
    ratios = [rates.noise / rates.signal for rates in (model.rates, rates_of("cosine", 10))]
    np.testing.assert_allclose(ratios[0], 3 * ratios[1], rtol=1e-9)
    np.testing.assert_allclose(np.hypot(*model.rates), 1, rtol=1e-12)
    noisy = model.get_layer("noising")(*np.ones((2, 10, 16, 16, 3), "float32"), np.arange(10))[0]
    np.testing.assert_allclose(noisy[:, 0, 0, 0], sum(model.rates), rtol=1e-6)
    times = model.get_layer("log_snr_of_times")
    np.testing.assert_allclose(times(np.arange(10)), model.log_snr)
    for layer in (times, model.get_layer("noising")):
        np.testing.assert_array_equal(type(layer).from_config(layer.get_config()).table, layer.table)
    for factor in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="`noise_factor` must be a positive number; it is"):
            denoiser(noise_factor=factor)


def test_weights_of_nothing_else_are_refused():
    for weight, prediction, wanted in (
        (0.5, "clean", "a number of at least 1; it is 0.5"),
        (np.nan, "clean", "a number of at least 1; it is nan"),
        (5.0, "noise", "1, as the prediction is noise, not clean; it is 5.0"),
    ):
        with pytest.raises(ValueError, match=f"`max_weight` must be {wanted}"):
            denoiser(prediction=prediction, max_weight=weight)


def test_the_loss_is_between_prediction_and_target():
    model, inputs = denoiser(), draw()
    model.compile("sgd", "mse")
    expected = np.mean(np.square(inputs["noise"]))  # at first 0 is predicted
    assert model.evaluate(inputs, batch_size=4, verbose=0) == pytest.approx(expected, rel=1e-5)


def test_noise_and_timesteps_are_drawn_anew_and_again_from_a_seed():
    inputs = {"images": np.zeros((2_000, 4, 4, 1), "float32")}
    keras.utils.set_random_seed(0)
    model = denoiser(prediction="noise")
    first, second = (np.asarray(model(inputs)["target"]) for _ in range(2))
    assert np.abs(first - second).max() > 1
    assert abs(first.mean()) < 0.02 and abs(first.std() - 1) < 0.02
    keras.utils.set_random_seed(0)
    np.testing.assert_array_equal(denoiser(prediction="noise")(inputs)["target"], first)
    counts = np.bincount(model._fill("timesteps", inputs), minlength=10)
    assert len(counts) == 10 and counts.min() > 140  # of 200


def test_classes_are_dropped_in_training_alone():
    layer, classes = ClassDropout(0.25, 3), np.arange(4_000) % 3
    np.testing.assert_array_equal(layer(classes), classes)
    dropped = np.asarray(layer(classes, training=True))
    assert abs(np.mean(dropped == 3) - 0.25) < 0.03
    np.testing.assert_array_equal(dropped[dropped < 3], classes[dropped < 3])
    assert np.any(np.asarray(layer(classes, training=True)) != dropped)
    np.testing.assert_array_equal(ClassDropout(0.0, 3)(classes, training=True), classes)


def test_texts_lose_all_tokens_in_training_alone():
    layer, shown = TextDropout(0.25), np.tile([True, True, False], (4_000, 1))
    np.testing.assert_array_equal(layer(shown), shown)
    dropped = np.asarray(layer(shown, training=True))
    assert abs(np.mean(~dropped.any(1)) - 0.25) < 0.03
    np.testing.assert_array_equal(dropped[dropped.any(1)], shown[dropped.any(1)])
    np.testing.assert_array_equal(TextDropout(0.0)(shown, training=True), shown)


def test_the_log_of_the_signal_to_noise_ratio():
    layer, rates = LogSNR("cosine", 10), rates_of("cosine", 10)
    ratios = layer(np.arange(10))
    again = rates_of_log_snr(ratios)
    np.testing.assert_allclose(again.signal[:-1], rates.signal[:-1], rtol=1e-5)
    np.testing.assert_allclose(again.noise, rates.noise, rtol=1e-4)
    # The last step of the schedule leaves nearly no signal; the ratio stays at Imagen's least.
    np.testing.assert_allclose(ratios[-1], max(2 * np.log(rates.signal[-1]), -np.log(1e5)), rtol=1e-4)


def test_a_backbone_of_ratios_and_texts():
    keras.utils.set_random_seed(0)
    backbone = Imagen.from_size("tiny", image_size=16, vocabulary_size=9, max_length=4)
    randomise(backbone, 1)  # the U-Net begins by predicting zeros
    model = Denoiser(backbone, num_steps=10, class_dropout=0.5)
    assert model.time == "log_snr" and isinstance(backbone.unet, ImagenUNet)
    batch = {"images": np.random.default_rng(0).normal(size=(2, 16, 16, 3)).astype("float32")}
    batch |= {"noise": batch["images"][::-1], "timesteps": np.array([2, 9])}
    texts = {"token_ids": np.array([[3, 4, 5], [6, 0, 0]]), "padding_mask": np.arange(3) < [[3], [1]]}
    outputs = model(batch | texts)
    noisy = model.get_layer("noising")(*(batch[name] for name in ("images", "noise", "timesteps")))[0]
    alone = backbone({"images": np.array(noisy), "log_snr": model.log_snr[[2, 9]], **texts})["prediction"]
    np.testing.assert_allclose(outputs["prediction"], alone, atol=1e-4)
    with_texts, repeated, without = (
        generation.generate_images(model, 2, inputs, num_steps=2, guidance=guidance).numpy()
        for inputs, guidance in (
            (texts, 1.0),
            ({**texts, "token_ids": texts["token_ids"] * [[1, 1, 1], [1, 7, 7]]}, 1.0),
            (texts, 0.0),
        )
    )
    np.testing.assert_allclose(repeated, with_texts, atol=1e-4)  # padding changes nothing
    nothing = texts | {"padding_mask": np.zeros((2, 3), bool)}
    none = generation.generate_images(model, 2, nothing, num_steps=2).numpy()
    np.testing.assert_allclose(without, none, atol=1e-4)
    assert np.abs(none - with_texts).max() > 1e-3
    others = {"token_ids": np.array([[8, 7, 2], [5, 1, 3]])}
    led_from = generation.generate_images(model, 2, texts, others, num_steps=2, guidance=0.0)
    np.testing.assert_allclose(led_from, generation.generate_images(model, 2, others, num_steps=2), atol=1e-4)


def compiled():
    keras.utils.set_random_seed(0)
    model = denoiser(class_dropout=0.5)
    model.compile(training.Adam(0.01, use_ema=True), "mse")
    return model


def fit(model, folder, epochs, **options):
    images = draw()["images"]
    batch = {"images": images, "classes": np.arange(6) % 3}
    checkpoint = training.Checkpoint(folder, **options)
    model.fit(batch, batch_size=3, epochs=epochs, shuffle=False, verbose=0, callbacks=[checkpoint])
    return checkpoint.history["loss"], model.get_weights()


def test_a_checkpoint_goes_on_with_the_same_draws(tmp_path):
    whole, weights = fit(compiled(), tmp_path / "whole", 3)
    fit(compiled(), tmp_path / "parts", 1)
    parts, again = fit(compiled(), tmp_path / "parts", 3, resume=True)
    assert whole == parts and len({*whole}) == 3
    for one, other in zip(weights, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_it_learns_to_make_its_one_image():
    keras.utils.set_random_seed(0)
    model = denoiser(prediction="clean", num_steps=100)
    image = np.where(np.eye(4)[..., None] > 0, 1.0, -1.0).astype("float32")
    model.compile(training.Adam(0.02), "mse")
    model.fit({"images": np.stack([image] * 256)}, batch_size=64, epochs=20, verbose=0)
    images = generation.generate_images(model, 5, num_steps=10, seed=1)
    assert np.abs(images - image).max() < 0.3


def test_images_by_class_are_those_of_the_loop():
    model, classes = denoiser(prediction="velocity"), np.array([0, 2, 2])
    contract.randomise(model.backbone, 1)
    none = {"classes": np.array([3, 3, 3])}
    images = generation.generate_images(model, 3, {"classes": classes}, num_steps=5, guidance=2.0, seed=4)
    predict = generation.predictor(model.backbone, {"classes": classes}, none, 2.0)
    steps = generation.trajectory(model.rates, 5, "trailing")
    assert steps.times.tolist() == [9, 7, 5, 3, 1]
    noise = generation.normal_noise((3, 4, 4, 1), 4)
    sampler = generation.DDIM(follows_clean=True)
    expected = generation.denoise(predict, noise, steps, sampler, "velocity", generation.clip, 4)
    np.testing.assert_allclose(images, expected, atol=1e-5)
    assert np.abs(np.asarray(images[1] - images[2])).max() > 1e-3  # one class, two places
    plain = generation.generate_images(model, 3, {"classes": classes}, num_steps=5, seed=4)
    assert np.abs(plain - images).max() > 1e-3
    of_none = generation.generate_images(model, 3, none, num_steps=5, seed=4)
    np.testing.assert_allclose(generation.generate_images(model, 3, num_steps=5, seed=4), of_none, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_steps": 0}, "`num_steps` must be from 1 to 10, the schedule's; it is 0"),
        ({"num_steps": 10_000}, "`num_steps` must be from 1 to 10, the schedule's; it is 10,000"),
        ({"guidance": np.nan}, "`guidance` must be a finite number; it is nan"),
        ({"count": 0}, "`count` must be at least 1; it is 0"),
        ({"inputs": {"classes": [1, 2]}}, "`classes` must be of 1 images, `count`; it is of 2"),
        ({"inputs": {"class": np.array([1])}}, "takes images, timesteps, classes; it was given class"),
        ({"seed": -1}, "`seed` must be at least 0; it is -1"),
        ({"inputs": {"classes": np.array([4])}}, r"must lie in \[0, 4\); one of them is 4"),
    ],
)
def test_no_images_are_made_of_wrong_numbers(options, words):
    with pytest.raises(ValueError, match=words):
        generation.generate_images(denoiser(), **{"count": 1, "num_steps": 5} | options)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="`backbone` must be a model of `images` and `timesteps`"):
        Denoiser(BERT.from_size("tiny", vocabulary_size=9, num_layers=1))
    with pytest.raises(ValueError, match="`backbone` must be a model that predicts 4 channels"):
        Denoiser(DiT.from_size("S/2", num_layers=1, dim=8, num_heads=2))
    with pytest.raises(ValueError, match="`schedule` must be one of linear, scaled linear, sigmoid, cosine"):
        denoiser(schedule="quadratic")
    with pytest.raises(ValueError, match="`num_steps` must be a whole number of at least 1; it is 0"):
        denoiser(num_steps=0)
    with pytest.raises(ValueError, match="`prediction` must be one of noise, velocity, clean"):
        denoiser(prediction="x")
    with pytest.raises(ValueError, match=r"`class_dropout` must be in \[0, 1\); it is 1"):
        denoiser(class_dropout=1)
    with pytest.raises(ValueError, match=r"must lie in \[0, 10\); one of them is 10"):
        denoiser()({"images": np.zeros((1, 4, 4, 1)), "timesteps": np.array([10])})
