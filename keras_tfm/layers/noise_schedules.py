"""Noise schedules of diffusion models, and what a network may predict of a noisy image; functions alone.

    x_t = signal x_0 + noise e,    signal² + noise² = 1,    e normal

The two rates come from a table of T steps, by betas (Ho et al. 2020, section 2), or from the logarithm of the
signal-to-noise ratio, signal² / noise², of a continuous time in [0, 1] (Kingma et al. 2021; Saharia et al.
2022, "Imagen"). The network predicts e, or x_0, or the velocity v = signal e - noise x_0 (Salimans and Ho
2022, appendix D); each of the three gives the others. Tables are computed in float64.
"""

import math
from typing import Literal, NamedTuple, get_args

import numpy as np
from keras import ops

from keras_tfm.layers.signatures import Tensor

Prediction = Literal["noise", "velocity", "clean"]


class Rates(NamedTuple):
    """How much of the signal and of the noise is in an image: numbers, or one of each per image, (B,).

    >>> keras_tfm.layers.Rates(signal=0.6, noise=0.8).noise
    0.8
    """

    signal: Tensor
    noise: Tensor


def linear_betas(num_steps: int = 1000, first: float = 1e-4, last: float = 0.02) -> np.ndarray:
    """Betas (T,) that grow linearly (Ho et al. 2020, section 4).

    >>> keras_tfm.layers.linear_betas(3).tolist()
    [0.0001, 0.01005, 0.02]
    """
    return np.linspace(first, last, num_steps)


def scaled_linear_betas(num_steps: int = 1000, first: float = 0.00085, last: float = 0.012) -> np.ndarray:
    """Betas (T,) whose square roots grow linearly (Rombach et al. 2022, "Latent Diffusion", their code).

    >>> keras_tfm.layers.scaled_linear_betas(3).round(5).tolist()
    [0.00085, 0.00481, 0.012]
    """
    return np.linspace(first**0.5, last**0.5, num_steps) ** 2


def sigmoid_betas(num_steps: int = 1000, first: float = 1e-4, last: float = 0.02) -> np.ndarray:
    """Betas (T,) between `first` and `last` by a sigmoid from -6 to 6 (Xu et al. 2022, "GeoDiff", their
    code).

    >>> keras_tfm.layers.sigmoid_betas(3)[1].round(5).tolist()
    0.01005
    """
    return first + (last - first) / (1 + np.exp(-np.linspace(-6, 6, num_steps)))


def cosine_betas(num_steps: int = 1000, offset: float = 0.008, most: float = 0.999) -> np.ndarray:
    """Betas (T,), at most `most`, for alphas along cos² (Nichol and Dhariwal 2021, eq. 17).

    >>> keras_tfm.layers.cosine_betas(3).round(3).tolist()
    [0.257, 0.668, 0.999]
    """
    alphas = np.cos((np.linspace(0, 1, num_steps + 1) + offset) / (1 + offset) * np.pi / 2) ** 2
    return np.minimum(1 - alphas[1:] / alphas[:-1], most)


def zero_terminal_snr(betas: np.ndarray) -> np.ndarray:
    """The `betas` changed so that nothing of the signal is left after the last step (Lin et al. 2023,
    "Common Diffusion Noise Schedules and Sample Steps are Flawed", algorithm 1).

    >>> float(np.prod(1 - keras_tfm.layers.zero_terminal_snr(keras_tfm.layers.linear_betas())))
    0.0
    """
    signal = np.sqrt(np.cumprod(1 - np.asarray(betas, "float64")))
    signal = (signal - signal[-1]) * signal[0] / (signal[0] - signal[-1])
    alphas = signal**2
    return 1 - np.concatenate([alphas[:1], alphas[1:] / alphas[:-1]])


def rates_of_betas(betas: np.ndarray) -> Rates:
    """The rates (T,), in float64, after each step of a schedule with these `betas`.

    >>> rates = keras_tfm.layers.rates_of_betas(np.array([0.19, 0.0]))
    >>> rates.signal.round(6).tolist(), rates.noise.round(6).tolist()
    ([0.9, 0.9], [0.43589, 0.43589])
    """
    alphas = np.cumprod(1 - np.asarray(betas, "float64"))
    return Rates(np.sqrt(alphas), np.sqrt(1 - alphas))


def noisier(rates: Rates, noise_factor: float) -> Rates:
    """The rates at which the ratio of noise to signal is `noise_factor` times as large (Hoogeboom et al.
    2023, "Simple Diffusion", section 3.1). ValueError for a factor that is not positive.

    >>> rates = keras_tfm.layers.Rates(0.8, 0.6)
    >>> rates = keras_tfm.layers.noise_schedules.noisier(rates, 16 / 9)
    >>> round(float(rates.signal), 4), round(float(rates.noise), 4)
    (0.6, 0.8)
    """
    if not 0 < noise_factor < math.inf:
        raise ValueError(f"`noise_factor` must be a positive number; it is {noise_factor}.")
    noise = noise_factor * np.asarray(rates.noise, "float64")
    length = np.hypot(rates.signal, noise)
    return Rates(rates.signal / length, noise / length)


def cosine_log_snr(times: Tensor, offset: float = 0.008) -> Tensor:
    """The logarithm of the signal-to-noise ratio of the cosine schedule at `times` in [0, 1], in float32.

    The ratio is at most 1e5 (Saharia et al. 2022, "Imagen").

    >>> abs(float(keras_tfm.layers.cosine_log_snr(np.array(0.496)))) < 1e-6  # half signal, half noise
    True
    """
    angles = (ops.cast(times, "float32") + offset) / (1 + offset) * (math.pi / 2)
    return -ops.log(ops.maximum(ops.square(ops.tan(angles)), 1e-5))


def linear_log_snr(times: Tensor) -> Tensor:
    """The logarithm of the signal-to-noise ratio of the linear schedule at `times` in [0, 1], in float32: -
    log(exp(1e-4 + 10 t²) - 1) (Kingma et al. 2021; Saharia et al. 2022).

    >>> round(float(keras_tfm.layers.linear_log_snr(np.array(1.0))), 2)
    -10.0
    """
    return -ops.log(ops.expm1(1e-4 + 10 * ops.square(ops.cast(times, "float32"))))


def rates_of_log_snr(log_snr: Tensor) -> Rates:
    """The rates at a logarithm of the signal-to-noise ratio.

    >>> [round(float(x), 4) for x in keras_tfm.layers.rates_of_log_snr(np.array(0.0))]
    [0.7071, 0.7071]
    """
    return Rates(ops.sqrt(ops.sigmoid(log_snr)), ops.sqrt(ops.sigmoid(-log_snr)))


def add_noise(clean: Tensor, noise: Tensor, rates: Rates) -> Tensor:
    """x_t of images x_0 and noise of the same shape.

    >>> rates = keras_tfm.layers.Rates(0.6, 0.8)
    >>> keras_tfm.layers.add_noise(np.ones(2), np.zeros(2), rates).numpy()
    array([0.6, 0.6])
    """
    signal, noise_rate = along(rates, clean)
    return signal * clean + noise_rate * noise


def prediction_of(kind: Prediction, clean: Tensor, noise: Tensor, rates: Rates) -> Tensor:
    """What a network that predicts `kind` should say of the image made of `clean` and `noise`.

    >>> rates = keras_tfm.layers.Rates(0.6, 0.8)
    >>> keras_tfm.layers.prediction_of("velocity", np.ones(1), 2 * np.ones(1), rates).numpy().round(6)
    array([0.4])
    """
    require_kind(kind)
    if kind == "velocity":
        signal, noise_rate = along(rates, clean)
        return signal * noise - noise_rate * clean
    return noise if kind == "noise" else clean


def clean_of(kind: Prediction, prediction: Tensor, x: Tensor, rates: Rates) -> Tensor:
    """The image x_0 that a `prediction` of this kind means for the noisy image `x`.

    >>> rates = keras_tfm.layers.Rates(0.6, 0.8)
    >>> keras_tfm.layers.clean_of("noise", np.ones(1), 2 * np.ones(1), rates).numpy().round(6).tolist()
    [2.0]
    """
    require_kind(kind)
    signal, noise_rate = along(rates, x)
    if kind == "velocity":
        return signal * x - noise_rate * prediction
    return (x - noise_rate * prediction) / signal if kind == "noise" else prediction


def noise_of(kind: Prediction, prediction: Tensor, x: Tensor, rates: Rates) -> Tensor:
    """The noise that a `prediction` of this kind means for the noisy image `x`.

    >>> rates = keras_tfm.layers.Rates(0.6, 0.8)
    >>> keras_tfm.layers.noise_of("clean", np.ones(1), 2 * np.ones(1), rates).numpy().round(6).tolist()
    [1.75]
    """
    require_kind(kind)
    signal, noise_rate = along(rates, x)
    if kind == "velocity":
        return signal * prediction + noise_rate * x
    return (x - signal * prediction) / noise_rate if kind == "clean" else prediction


def require_kind(kind):
    """Raises ValueError for a kind of prediction that does not exist."""
    if kind not in (kinds := get_args(Prediction)):
        raise ValueError(f"`prediction` must be one of {', '.join(kinds)}; it is {kind!r}.")


def along(rates, x):
    """The `rates` in the dtype of `x`; rates (B,) get the axes that `x` has after its first."""

    def one(rate):
        # A number keeps its digits: a cast makes it float32 first.
        rate = ops.cast(rate, x.dtype) if ops.is_tensor(rate) else ops.convert_to_tensor(rate, x.dtype)
        return rate if len(rate.shape) == 0 else ops.reshape(rate, (-1, *(1 for _ in x.shape[1:])))

    return Rates(*map(one, rates))
