"""Sampling by diffusion: where the data are normal, everything is known, and every sampler ends there."""

import functools
import math
import re

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_tfm.generation import (
    DDIM,
    DDPM,
    DPMSolver,
    Trajectory,
    clip,
    continuous_trajectory,
    denoise,
    dynamic_threshold,
    normal_noise,
    posterior,
    predictor,
    timesteps,
    trajectory,
)
from keras_tfm.generation.diffusion import learned_deviation
from keras_tfm.layers import (
    Rates,
    cosine_betas,
    cosine_log_snr,
    linear_betas,
    prediction_of,
    rates_of_betas,
    zero_terminal_snr,
)

MEAN, DEVIATION = 1.5, 0.5  # of the data
RATES = rates_of_betas(cosine_betas(1000))


def oracle(kind, rates, x, times):
    """The best prediction where all values of the images are normal."""
    signal, noise = (
        ops.take(ops.convert_to_tensor(rate, "float32"), ops.cast(times, "int32")) for rate in rates
    )
    signal, noise = signal[:, None], noise[:, None]
    share = signal * DEVIATION**2 / ((signal * DEVIATION) ** 2 + noise**2)
    clean = MEAN + share * (x - signal * MEAN)
    return prediction_of(kind, clean, (x - signal * clean) / noise, Rates(signal, noise))


def where_the_flow_ends(x, steps):
    """The exact end of the differential equation from `x` on (Song et al. 2021, eq. 14): each value still
    stands as many deviations from the mean.
    """
    (first, *_, last), (noise, *_, last_noise) = steps.rates
    deviations = (x - first * MEAN) / math.hypot(first * DEVIATION, noise)
    return last * MEAN + deviations * math.hypot(last * DEVIATION, last_noise)


@pytest.mark.parametrize("kind", ["noise", "velocity", "clean"])
def test_deterministic_samplers_follow_the_flow(kind):
    x = normal_noise((50, 1), seed=3)
    errors = {}
    for sampler in (DDIM(), DPMSolver()):
        for count in (10, 20, 40):
            places = np.linspace(800, 80, count + 1).astype(int)  # from some signal to some noise
            steps = Trajectory(places[:-1], Rates(*(rate[places] for rate in RATES)))
            y = denoise(functools.partial(oracle, kind, RATES), x, steps, sampler, kind)
            errors[type(sampler), count] = float(np.abs(y - where_the_flow_ends(x, steps)).max())
    # Twice the steps halve the error of first order, and quarter the error of second order.
    assert 1.7 < errors[DDIM, 20] / errors[DDIM, 40] < 2.5
    assert errors[DPMSolver, 20] / errors[DPMSolver, 40] > 3
    assert errors[DPMSolver, 20] < errors[DDIM, 20] / 4


@pytest.mark.parametrize(
    ("sampler", "tolerance"),
    [(DDPM("small"), 0.05), (DDPM("large"), 0.05), (DDIM(1.0), 0.05), (DDIM(0.5), 0.05), (DPMSolver(), 0.02)],
)
def test_samples_have_the_distribution_of_the_data(sampler, tolerance):
    x = normal_noise((4000, 1), seed=5)
    steps = trajectory(RATES, 100, "trailing")
    predict = functools.partial(oracle, "noise", RATES)
    y = tf.function(lambda x: denoise(predict, x, steps, sampler, seed=7), autograph=False)(x).numpy()
    assert abs(y.mean() - MEAN) < tolerance and abs(y.std() - DEVIATION) < tolerance
    if sampler != DPMSolver():
        assert abs(np.corrcoef(np.ravel(x), np.ravel(y))[0, 1]) < 0.9  # what is drawn makes them differ


def test_a_whole_eta_is_ancestral_sampling():
    """DDIM with eta 1 and DDPM write the same step, one by the noise, the other by x."""
    now, then = (Rates(*(rate[places] for rate in RATES)) for places in (slice(20, 900), slice(10, 890)))
    ddim, ddpm = DDIM(1.0).coefficients(now, then), DDPM().coefficients(now, then)
    np.testing.assert_allclose(ddim.drawn, ddpm.drawn)
    np.testing.assert_allclose(ddim.noise / now.noise, ddpm.x, rtol=1e-6)
    np.testing.assert_allclose(ddim.clean - ddim.noise * now.signal / now.noise, ddpm.clean, atol=1e-9)


def test_the_posterior_is_bayes_rule():
    """The product of two normal densities: q(x_t | x_s) as a function of x_s, and q(x_s | x_0)."""
    now, then = Rates(0.6, 0.8), Rates(0.8, 0.6)
    alpha = (now.signal / then.signal) ** 2
    beta = now.noise**2 - alpha * then.noise**2
    precision = alpha / beta + 1 / then.noise**2
    result = posterior(now, then)
    np.testing.assert_allclose(result.bounds, (1 / precision, beta))
    np.testing.assert_allclose(result.x, math.sqrt(alpha) / beta / precision)
    np.testing.assert_allclose(result.clean, then.signal / then.noise**2 / precision)


def test_a_learned_variance_lies_between_its_bounds():
    np.testing.assert_allclose(learned_deviation(np.array([-1.0, 0.0, 1.0]), np.log(0.01), np.log(1.0)),
                               [0.1, 0.1**0.5, 1.0], rtol=1e-6)  # fmt: skip
    steps, x = trajectory(RATES, 4), normal_noise((2, 4), seed=1)

    def predict(fraction):
        return lambda x, times: ops.concatenate(
            [oracle("noise", RATES, x, times), fraction * ops.ones_like(x)], axis=-1
        )

    for fraction, variance in ((-1.0, "small"), (1.0, "large")):
        learned, fixed = (
            denoise(predict(fraction), x, steps, DDPM(which), seed=2) for which in ("learned", variance)
        )
        np.testing.assert_allclose(learned, fixed, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="`variance` must be small or large, as the network predicts none"):
        denoise(functools.partial(oracle, "noise", RATES), x, steps, DDPM("learned"))


def test_fifty_steps_compiled_whole_are_those_in_python():
    weights = np.random.default_rng(0).normal(size=(4, 4)).astype("float32") / 2

    def predict(x, times):
        return ops.tanh(x @ weights + ops.cast(times, "float32")[:, None] / 500)

    steps, x = trajectory(rates_of_betas(linear_betas()), 50), normal_noise((3, 4), seed=1)
    for sampler in (DDIM(), DDIM(1.0)):

        def sample(x, sampler=sampler):
            return denoise(predict, x, steps, sampler, restrict=clip, seed=4)

        y = sample(x)
        compiled = tf.function(lambda x: sample(x), jit_compile=True, autograph=False)(x)
        np.testing.assert_allclose(compiled, y, atol=1e-5)
    # The same, with the formulas instead of the table.
    z = np.asarray(x)
    for i, time in enumerate(steps.times):
        signal, noise = (rate[i] for rate in steps.rates)
        e = np.asarray(predict(z.astype("float32"), np.full(3, time)))
        clean = np.clip((z - noise * e) / signal, -1, 1)
        z = steps.rates.signal[i + 1] * clean + steps.rates.noise[i + 1] * e
    np.testing.assert_allclose(denoise(predict, x, steps, restrict=clip), z, atol=1e-4)


@pytest.mark.parametrize("eta", [0.0, 0.7])
def test_noise_that_follows_a_restricted_image(eta):
    def predict(x, times):
        return 3 * ops.tanh(x) + 0.1  # so much that much is clipped

    steps, x = trajectory(rates_of_betas(linear_betas()), 20), normal_noise((3, 4), seed=1)
    sampler = DDIM(eta, follows_clean=True)
    z, drawn = (
        np.asarray(x),
        DDIM(eta).coefficients(
            *(
                type(steps.rates)(*(rate[part] for rate in steps.rates))
                for part in (slice(-1), slice(1, None))
            )
        ),
    )
    for i, time in enumerate(steps.times):
        signal, noise = (rate[i] for rate in steps.rates)
        clean = np.clip((z - noise * np.asarray(predict(z.astype("float32"), time))) / signal, -1, 1)
        e = (z - signal * clean) / noise
        z = steps.rates.signal[i + 1] * clean + drawn.noise[i] * e
        z = z + drawn.drawn[i] * np.asarray(normal_noise((3, 4), 4, i + 1))
    y = np.asarray(denoise(predict, x, steps, sampler, restrict=clip, seed=4))
    np.testing.assert_allclose(y, z, atol=1e-4)
    assert np.abs(denoise(predict, x, steps, DDIM(eta), restrict=clip, seed=4) - y).max() > 0.01
    plain = denoise(predict, x, steps, DDIM(eta), seed=4)  # without a restriction they are the same
    np.testing.assert_allclose(denoise(predict, x, steps, sampler, seed=4), plain, rtol=1e-3, atol=1e-3)


def test_guidance_is_one_batch_of_twice_the_size():
    calls = []

    def model(inputs):
        calls.append(inputs["images"].shape[0])
        x = inputs["images"] * ops.cast(inputs["classes"], "float32")[:, None]
        return {"prediction": ops.concatenate([x, 10 * x], axis=-1)}

    x, inputs = np.ones((2, 3), "float32"), {"classes": np.array([2, 5])}
    predict = predictor(model, inputs, {"classes": np.array([1, 1])}, guidance=3.0)
    y = np.asarray(predict(x, np.zeros(2)))
    np.testing.assert_allclose(y[:, :3], np.array([[4.0], [13.0]]) * x)  # 1 + 3 (c - 1)
    np.testing.assert_allclose(y[:, 3:], np.array([[20.0], [50.0]]) * x)
    predictor(model, inputs)(x, np.zeros(2))
    assert calls == [4, 2]
    for wrong in (math.nan, math.inf, "3"):
        with pytest.raises(ValueError, match="`guidance` must be a finite number"):
            predictor(model, inputs, inputs, wrong)
    with pytest.raises(ValueError, match="`without` must be the inputs classes for no condition"):
        predictor(model, inputs, guidance=2.0)


def test_noise_depends_on_seed_number_and_place_alone():
    x = np.asarray(normal_noise((1000, 3, 5), seed=1))
    assert abs(x.mean()) < 0.03 and abs(x.std() - 1) < 0.02 and abs((x**4).mean() - 3) < 0.15
    np.testing.assert_allclose(normal_noise((10, 3, 5), seed=1), x[:10], atol=1e-6)
    for other in (normal_noise((1000, 3, 5), seed=2), normal_noise((1000, 3, 5), 1, number=1)):
        assert abs(np.corrcoef(np.ravel(x), np.ravel(other))[0, 1]) < 0.03
    each = normal_noise((3, 5, 2), seed=tf.constant([1, 9, 2]), number=4)
    for row, seed in enumerate((1, 9, 2)):
        np.testing.assert_allclose(each[row], normal_noise((5, 2), seed, number=4), atol=1e-6)
    traced = tf.function(lambda seed: normal_noise((10, 3, 5), seed))(tf.constant(1))
    np.testing.assert_allclose(traced, x[:10], atol=1e-6)


def test_a_dynamic_threshold_keeps_what_is_in_range():
    x = np.array([[0.5, -0.9, 0.1, 0.2], [4.0, -2.0, 1.0, 3.0]], "float32")
    np.testing.assert_allclose(dynamic_threshold(1.0)(x), [x[0], x[1] / 4])
    most = np.quantile(np.abs(x[1]), 0.5)
    np.testing.assert_allclose(dynamic_threshold(0.5)(x)[1], np.clip(x[1], -most, most) / most)
    with pytest.raises(ValueError, match=re.escape("`percentile` must lie in (0, 1]; it is 0")):
        dynamic_threshold(0)


def test_steps_of_a_schedule():
    assert timesteps(1000, 1000).tolist() == list(range(999, -1, -1))
    assert timesteps(100, 4, "linspace").tolist() == [99, 66, 33, 0]
    assert timesteps(100, 4, offset=1).tolist() == [76, 51, 26, 1]
    steps = trajectory(RATES, 5, ends_clean=False)
    assert steps.rates.signal[-1] == RATES.signal[0] and steps.times[-1] == 0
    for count in (0, 10_000, -1):
        with pytest.raises(ValueError, match=r"`num_steps` must be from 1 to 1,000, .* it is"):
            trajectory(RATES, count)
    with pytest.raises(ValueError, match="`num_steps` must be a whole number"):
        trajectory(RATES, 2.5)
    with pytest.raises(
        ValueError, match="`spacing` must be one of leading, trailing, linspace; it is 'even'"
    ):
        trajectory(RATES, 5, "even")
    with pytest.raises(ValueError, match="`offset` must leave 1000 steps in 1,000; it is 1"):
        trajectory(RATES, 1000, offset=1)
    with pytest.raises(ValueError, match=re.escape("`eta` must lie in [0, 1]; it is 2")):
        DDIM(eta=2)


def test_a_continuous_schedule_asks_with_its_ratio():
    steps, asked = continuous_trajectory(cosine_log_snr, 3), []

    def predict(x, times):
        asked.append(float(times[0]))
        return ops.zeros_like(x)

    denoise(predict, normal_noise((1, 2), 0), steps, DDPM(), "clean")
    np.testing.assert_allclose(asked, cosine_log_snr(np.array([1, 2 / 3, 1 / 3])), rtol=1e-5)


def test_a_start_without_signal_has_no_noise_to_take_away():
    rates = rates_of_betas(zero_terminal_snr(linear_betas(5)))
    steps, x = trajectory(rates, 5), normal_noise((2, 3), seed=0)
    with pytest.raises(
        ValueError, match="`prediction` must be velocity or clean, as the steps begin without"
    ):
        denoise(lambda x, times: x, x, steps)
    for sampler in (DDIM(), DDPM(), DPMSolver()):
        assert np.isfinite(denoise(lambda x, times: 0 * x, x, steps, sampler, "velocity")).all()
