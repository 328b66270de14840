"""Noise schedules: their ends, what the rates are by hand; predictions that say the same in three ways."""

import numpy as np
import pytest

from keras_tfm.layers import (
    Rates,
    add_noise,
    clean_of,
    cosine_betas,
    cosine_log_snr,
    linear_betas,
    linear_log_snr,
    noise_of,
    prediction_of,
    rates_of_betas,
    rates_of_log_snr,
    scaled_linear_betas,
    sigmoid_betas,
    zero_terminal_snr,
)

SCHEDULES = [linear_betas, scaled_linear_betas, sigmoid_betas, cosine_betas]


@pytest.mark.parametrize("betas", SCHEDULES)
def test_rates_are_products_of_the_betas(betas):
    values = betas(1000)
    assert values.shape == (1000,) and values.dtype == "float64"
    assert (np.diff(values) >= 0).all() and 0 < values[0] < values[-1] < 1
    rates = rates_of_betas(values)
    alpha = 1.0
    for step, beta in enumerate(values[:5]):
        alpha *= 1 - beta
        np.testing.assert_allclose([rates.signal[step] ** 2, rates.noise[step] ** 2], [alpha, 1 - alpha])
    np.testing.assert_allclose(rates.signal**2 + rates.noise**2, 1)


def test_the_cosine_schedule_goes_along_a_cosine():
    alphas = rates_of_betas(cosine_betas(100)).signal ** 2
    expected = np.cos((0.5 + 0.008) / 1.008 * np.pi / 2) ** 2 / np.cos(0.008 / 1.008 * np.pi / 2) ** 2
    np.testing.assert_allclose(alphas[49], expected)
    # The same in continuous time, where signal and noise are to each other as cos and sin.
    rates = rates_of_log_snr(cosine_log_snr(np.array([0.5])))
    np.testing.assert_allclose(rates.signal, np.cos((0.5 + 0.008) / 1.008 * np.pi / 2), rtol=1e-5)


def test_no_signal_is_left_at_the_end():
    betas = zero_terminal_snr(linear_betas(50))
    before, after = rates_of_betas(linear_betas(50)), rates_of_betas(betas)
    assert after.signal[-1] == 0 and after.noise[-1] == 1
    np.testing.assert_allclose(after.signal[0], before.signal[0])
    assert (np.diff(after.signal) < 0).all()


def test_continuous_schedules_end_near_signal_and_noise():
    for log_snr in (cosine_log_snr, linear_log_snr):
        signal, noise = (np.asarray(x) for x in rates_of_log_snr(log_snr(np.linspace(0, 1, 9))))
        assert signal[0] > 0.999 and noise[-1] > 0.999
        assert (np.diff(signal) < 0).all()
        np.testing.assert_allclose(signal**2 + noise**2, 1, rtol=1e-6)


@pytest.mark.parametrize("kind", ["noise", "velocity", "clean"])
def test_every_prediction_gives_back_image_and_noise(kind):
    rng = np.random.default_rng(0)
    clean, noise = rng.normal(size=(2, 3, 4, 4, 2)).astype("float32")
    rates = Rates(np.array([0.8, 0.6, 0.28]), np.array([0.6, 0.8, 0.96]))  # one for each image
    x = add_noise(clean, noise, rates)
    np.testing.assert_allclose(x[2], 0.28 * clean[2] + 0.96 * noise[2], atol=1e-6)
    prediction = prediction_of(kind, clean, noise, rates)
    np.testing.assert_allclose(clean_of(kind, prediction, x, rates), clean, atol=1e-5)
    np.testing.assert_allclose(noise_of(kind, prediction, x, rates), noise, atol=1e-5)
    with pytest.raises(ValueError, match="`prediction` must be one of noise, velocity, clean; it is 'x0'"):
        clean_of("x0", prediction, x, rates)
