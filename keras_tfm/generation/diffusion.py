"""Sampling of diffusion models: from noise to images, by steps that are functions, and the loop over them.

    noise x --> predict(x, t) --> the clean image, as it seems at t --> step --> less noisy x --> ...

All three samplers are linear: the next x is a sum of five tensors, whose coefficients depend on the rates of
signal and noise before and after the step alone. They are computed in float64 before the loop, which only
adds. With r the ratio of noise to signal after the step, divided by the ratio before it:

    DDPM        draws from the posterior of the next x, given x and the clean image
    DDIM        goes where the same noise leads; a part of it may be drawn anew
    DPMSolver   goes on along the line through this clean image and the one before
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from keras import ops

from keras_tfm.configs import Field, FieldError, Refusal
from keras_tfm.generation.processors import Value, require
from keras_tfm.layers.compiler.bits import fold_in, uniform_bits
from keras_tfm.layers.noise_schedules import (
    Prediction,
    Rates,
    clean_of,
    noise_of,
    require_kind,
)
from keras_tfm.layers.signatures import Tensor

Spacing = Literal["leading", "trailing", "linspace"]
Predict = Callable[[Any, Any], Any]  # noisy images (B, ...) and times (B,) -> what the network predicts


class Coefficients(NamedTuple):
    """The next x = `x` x + `clean` x_0 + `noise` e + `before` x_0 of the step before + `drawn` z; an array
    for each, over steps or images. `bounds` are the least and greatest variance of what is drawn, for
    networks that predict it.
    """

    x: Any
    clean: Any
    noise: Any = 0.0
    before: Any = 0.0
    drawn: Any = 0.0
    bounds: Any = ()


def posterior(now: Rates, then: Rates) -> Coefficients:
    """The mean of q(x_s | x_t, x_0), and as `bounds` its variance and beta, the variance of q(x_t | x_s).

    `now` are the rates at t, `then` those at s, with less noise (Ho et al. 2020, eq. 6 and 7).

    >>> now, then = (keras_tfm.layers.Rates(*rates) for rates in ((0.6, 0.8), (0.8, 0.6)))
    >>> [round(float(number), 4) for number in keras_tfm.generation.posterior(now, then)[:2]]
    [0.4219, 0.5469]
    """
    ratio = now.signal * then.noise / (then.signal * now.noise)
    removed = (1 - ratio) * (1 + ratio)  # of the variance
    bounds = (removed * then.noise**2, removed * now.noise**2)
    return Coefficients(ratio * then.noise / now.noise, removed * then.signal, bounds=bounds)


class DDPM(Value):
    """Ancestral sampling (Ho et al. 2020, algorithm 2). `variance` of what is drawn: "small" is the
    posterior's, which is right for one image as data, "large" is beta, right for normal data; "learned"
    lies between, where the second half of the prediction's channels says (Nichol and Dhariwal 2021, eq. 15).

    >>> keras_tfm.generation.DDPM("large").variance
    'large'
    """

    def __init__(self, variance: Literal["small", "large", "learned"] = "small") -> None:
        if variance not in (names := ("small", "large", "learned")):
            raise Refusal("variance", f"one of {', '.join(names)}", repr(variance))
        self.variance = variance

    def coefficients(self, now: Rates, then: Rates) -> Coefficients:
        """The coefficients of steps between rates (n,)."""
        steps = posterior(now, then)
        variance = steps.bounds[1 if self.variance == "large" else 0]
        is_drawn = np.asarray(then.noise) > 0  # the last step takes the mean
        bounds = steps.bounds if self.variance == "learned" else ()
        return steps._replace(drawn=np.sqrt(variance) * is_drawn, bounds=bounds)


class DDIM(Value):
    """Implicit sampling (Song et al. 2021, eq. 12): deterministic where `eta` is 0; 1 draws as much noise as
    `DDPM` with the small variance. Where `denoise` restricts the clean image, the noise stays as it was
    predicted, or, if it `follows_clean`, is what that image means; with guidance the noise that was predicted
    is too much, and some of it stays in the image.

    >>> keras_tfm.generation.DDIM(eta=0.5).eta
    0.5
    """

    def __init__(self, eta: float = 0.0, follows_clean: bool = False) -> None:
        require("eta", eta, lambda eta: 0 <= eta <= 1, "must lie in [0, 1]")
        self.eta = eta
        self.follows_clean = follows_clean

    def coefficients(self, now: Rates, then: Rates) -> Coefficients:
        """The coefficients of steps between rates (n,)."""
        variance = self.eta**2 * posterior(now, then).bounds[0]
        noise = np.sqrt(np.maximum(np.square(then.noise) - variance, 0))  # rounding may pass 0
        steps = Coefficients(0.0, then.signal, noise, drawn=np.sqrt(variance))
        if not self.follows_clean:
            return steps
        ratio = noise / now.noise  # of the noise (x - now.signal x_0) / now.noise
        return steps._replace(x=ratio, clean=then.signal - ratio * now.signal, noise=0.0)


class DPMSolver(Value):
    """DPM-Solver++ (2M): the differential equation solved to second order, one prediction per step (Lu et al.
    2022, algorithm 2). The first step, and the last one where it ends without noise, are of first order.

    >>> keras_tfm.generation.DPMSolver() == keras_tfm.generation.DPMSolver()
    True
    """

    def coefficients(self, now: Rates, then: Rates) -> Coefficients:
        """The coefficients of steps between rates (n,), one after another."""
        ratio = now.signal * then.noise / (then.signal * now.noise)
        with np.errstate(divide="ignore"):
            length = -np.log(ratio)  # of the step, in half the logarithm of the signal-to-noise ratio
        extra = np.zeros_like(length)  # how far beyond this clean image the line through both is followed
        is_bent = np.isfinite(length[1:]) & np.isfinite(length[:-1])
        extra[1:][is_bent] = (length[1:] / length[:-1])[is_bent] / 2
        clean = then.signal * (1 - ratio)
        return Coefficients(then.noise / now.noise, clean * (1 + extra), before=-clean * extra)


class Trajectory(NamedTuple):
    """The n steps of sampling: the `times` (n,) that the network is asked with, and the `rates` (n + 1,)
    before each step and after the last.

    >>> rates = keras_tfm.layers.Rates(np.array([0.6, 1.0]), np.array([0.8, 0.0]))
    >>> len(keras_tfm.generation.Trajectory(np.array([7]), rates).times)
    1
    """

    times: Any
    rates: Rates


def trajectory(
    rates: Rates, num_steps: int, spacing: Spacing = "leading", offset: int = 0, ends_clean: bool = True
) -> Trajectory:
    """`num_steps` of the T steps of a schedule with these `rates` (T,), from the noisiest on.

    "leading" takes every n-th from the first on, `offset` later; "trailing" every n-th from the last on;
    "linspace" the first, the last and others between. The last step leads to an image without noise, or, if
    not `ends_clean`, to the rates of step 0.

    Raises:
        ValueError: for more steps than there are, or none.

    >>> rates = keras_tfm.layers.rates_of_betas(keras_tfm.layers.linear_betas(100))
    >>> keras_tfm.generation.trajectory(rates, num_steps=5).times.tolist()
    [80, 60, 40, 20, 0]
    """
    total = len(rates.signal)
    places = timesteps(total, num_steps, spacing, offset)
    end = Rates(1.0, 0.0) if ends_clean else Rates(rates.signal[0], rates.noise[0])
    chosen = (np.append(rate[places], last) for rate, last in zip(rates, end, strict=True))
    return Trajectory(places, Rates(*chosen))


def timesteps(total: int, num_steps: int, spacing: Spacing = "leading", offset: int = 0) -> np.ndarray:
    """The `num_steps` of `total` steps, falling, as `trajectory` chooses them.

    >>> keras_tfm.generation.timesteps(100, 5, "trailing").tolist()
    [99, 79, 59, 39, 19]
    """
    require("num_steps", num_steps, whole=True)
    require("offset", offset, lambda offset: offset >= 0, "must be at least 0", whole=True)
    if not 1 <= num_steps <= total:
        raise FieldError(
            "{} must be from 1 to {:,}, the schedule's; it is {:,}.", Field("num_steps"), total, num_steps
        )
    if spacing == "leading":
        places = np.arange(num_steps, dtype="float64")[::-1] * (total // num_steps) + offset
    elif spacing == "trailing":
        places = np.round(np.arange(num_steps, 0, -1) * (total / num_steps)) - 1
    elif spacing == "linspace":
        places = np.round(np.linspace(0, total - 1, num_steps))[::-1]
    else:
        raise Refusal("spacing", f"one of {', '.join(get_args(Spacing))}", repr(spacing))
    if places[0] >= total:
        raise FieldError(
            "{} must leave {} steps in {:,}; it is {}.", Field("offset"), num_steps, total, offset
        )
    return places.astype("int32")


def continuous_trajectory(log_snr: Callable[[Tensor], Tensor], num_steps: int) -> Trajectory:
    """`num_steps` equal steps from time 1 to 0 of a continuous schedule, `cosine_log_snr` for example; the
    network is asked with the logarithm of the signal-to-noise ratio.

    >>> steps = keras_tfm.generation.continuous_trajectory(keras_tfm.layers.linear_log_snr, 4)
    >>> steps.times.shape, steps.rates.noise.shape
    ((4,), (5,))
    """
    require("num_steps", num_steps, lambda count: count >= 1, "must be at least 1", whole=True)
    ratios = ops.convert_to_numpy(log_snr(np.linspace(1, 0, num_steps + 1))).astype("float64")
    return Trajectory(ratios[:-1].astype("float32"), Rates(*(1 / np.sqrt(1 + np.exp([-ratios, ratios])))))


def denoise(
    predict: Predict,
    x: Tensor,
    steps: Trajectory,
    sampler: DDPM | DDIM | DPMSolver | None = None,
    prediction: Prediction = "noise",
    restrict: Callable[[Any], Any] | None = None,
    seed: int | Tensor = 0,
) -> Tensor:
    """The images that become of noise `x` (B, ...): the loop over the `steps`, which XLA may compile whole.

    Args:
        predict: a function of noisy images and times (B,), such as `predictor` makes of a model.
        x: `normal_noise` of the images' shape.
        sampler: by default `DDIM()`.
        prediction: what `predict` gives: "noise", "velocity" or "clean".
        restrict: a function of the clean image as it seems at each step, such as `clip` or
            `dynamic_threshold`.
        seed: of the noise that a sampler draws, an integer from 0 to 2^31 - 1.

    Raises:
        ValueError: for "noise" where a step begins without any signal, as it may after `zero_terminal_snr`.

    >>> steps = keras_tfm.generation.trajectory(keras_tfm.layers.rates_of_betas(np.full(10, 0.1)), 10)
    >>> x = keras_tfm.generation.normal_noise((1, 2), seed=0)
    >>> keras_tfm.generation.denoise(lambda x, times: np.ones((1, 2)), x, steps, prediction="clean").numpy()
    array([[1., 1.]], dtype=float32)
    """
    require_kind(prediction)
    require("seed", seed, lambda seed: seed >= 0, "must be at least 0", whole=True)
    sampler = DDIM() if sampler is None else sampler
    now, then = (Rates(*(rate[places] for rate in steps.rates)) for places in (slice(-1), slice(1, None)))
    if prediction == "noise" and np.min(now.signal) <= 0:
        raise Refusal("prediction", "velocity or clean, as the steps begin without signal", prediction)
    table = sampler.coefficients(now, then)
    bounds = [_table(np.log(np.maximum(bound, 1e-20)), len(steps.times)) for bound in table.bounds]
    numbers = [_table(column, len(steps.times)) for column in table[:5]]
    signal, noise, times = (_table(column, len(steps.times)) for column in (*now, steps.times))
    is_random = bool(np.any(table.drawn))
    x = ops.cast(x, "float32")

    def step(i, state):
        x, before = state
        answer = ops.cast(predict(x, ops.broadcast_to(times[i], ops.shape(x)[:1])), "float32")
        fraction = None
        if answer.shape[-1] == 2 * x.shape[-1]:
            answer, fraction = ops.split(answer, 2, axis=-1)
        elif bounds:
            raise Refusal("variance", "small or large, as the network predicts none", "learned")
        rates = Rates(signal[i], noise[i])
        clean, its_noise = (make(prediction, answer, x, rates) for make in (clean_of, noise_of))
        clean = clean if restrict is None else restrict(clean)
        a, b, c, d, deviation = (column[i] for column in numbers)
        y = a * x + b * clean + c * its_noise + d * before
        if is_random:
            if bounds:
                deviation = ops.where(
                    deviation > 0, learned_deviation(fraction, *(b[i] for b in bounds)), 0.0
                )
            y = y + deviation * normal_noise(ops.shape(x), seed, i + 1)
        return y, clean

    return ops.fori_loop(0, len(steps.times), step, (x, ops.zeros_like(x)))[0]


def _table(column, count):
    """A number, or an array (count,), as a tensor (count,)."""
    return ops.convert_to_tensor(np.broadcast_to(column, count), "float32")


def learned_deviation(fraction: Tensor, log_small: Tensor, log_large: Tensor) -> Tensor:
    """The standard deviation between two bounds, logarithms of variances; a `fraction` of -1 is the small
    one, 1 the large one (Nichol and Dhariwal 2021, eq. 15).

    >>> round(float(keras_tfm.generation.diffusion.learned_deviation(0.0, np.log(0.01), np.log(0.0001))), 4)
    0.0316
    """
    share = (fraction + 1) / 2
    return ops.exp((share * log_large + (1 - share) * log_small) / 2)


def normal_noise(shape: tuple, seed: int | Tensor, number: int | Tensor = 0) -> Tensor:
    """Normal numbers, float32, which depend on the seed, on the `number` of the draw and on their place
    alone, in a compiled graph as outside one (Box and Muller 1958). With seeds (B,) each row has its own.

    >>> keras_tfm.generation.normal_noise((2, 3), seed=1).shape
    TensorShape([2, 3])
    """
    seed = ops.cast(seed, "uint32")
    if len(seed.shape):
        return ops.map(lambda one: normal_noise(shape[1:], one, number), seed)
    first = fold_in(ops.stack([seed, seed]), number)
    radii, angles = (uniform_bits(shape, fold_in(first, i)) for i in (0, 1))
    radii = (ops.cast(radii, "float32") + 1) * np.float32(2**-24)  # in (0, 1]
    angles = ops.cast(angles, "float32") * np.float32(2 * np.pi * 2**-24)
    return ops.sqrt(-2 * ops.log(radii)) * ops.cos(angles)


def clip(clean: Tensor) -> Tensor:
    """The image with all values brought into [-1, 1].

    >>> keras_tfm.generation.clip(np.array([-3.0, 0.5])).numpy().tolist()
    [-1.0, 0.5]
    """
    return ops.clip(clean, -1.0, 1.0)


def dynamic_threshold(percentile: float = 0.995) -> Callable[[Tensor], Tensor]:
    """A function that divides each image by the absolute value below which this share of its values lies, if
    that is above 1, and clips the rest to [-1, 1] (Saharia et al. 2022, "Imagen", section 2.3).

    >>> keras_tfm.generation.dynamic_threshold(1.0)(np.array([[[[-4.0, 1.0]]]], "float32")).numpy().tolist()
    [[[[-1.0, 0.25]]]]
    """
    require("percentile", percentile, lambda share: 0 < share <= 1, "must lie in (0, 1]")
    return functools.partial(_thresholded, percentile=percentile)


def _thresholded(clean, percentile):
    values = ops.reshape(ops.abs(clean), (ops.shape(clean)[0], -1))
    most = ops.maximum(ops.quantile(values, percentile, axis=-1), 1.0)  # (B,)
    most = ops.reshape(most, (-1, *(1 for _ in clean.shape[1:])))
    return ops.clip(clean, -most, most) / most


def predictor(
    model: Callable[[Any], Any],
    inputs: Mapping[str, Tensor] | None = None,
    without: Mapping[str, Tensor] | None = None,
    guidance: float | Tensor = 1.0,
    time: str = "timesteps",
) -> Predict:
    """A function (x, times) -> prediction, by a `model` of the inputs `images`, `time` and the conditions
    `inputs`.

    With a `guidance` other than 1, the prediction is u + guidance (c - u), where u is made with the inputs
    `without` the condition, in one batch of twice the size (Ho and Salimans 2022, "Classifier-Free Diffusion
    Guidance"). A learned variance is not guided: it is c's.

    Raises:
        ValueError: for a guidance that is no finite number, or without what it needs.

    >>> predict = keras_tfm.generation.predictor(lambda inputs: {"prediction": 2 * inputs["images"]})
    >>> predict(np.ones((1, 1)), np.zeros(1)).tolist()
    [[2.0]]
    """
    require("guidance", guidance)
    # Keras refuses arrays among tensors.
    inputs, without = (
        {name: ops.convert_to_tensor(x) for name, x in (tensors or {}).items()}
        for tensors in (inputs, without)
    )
    is_guided = ops.is_tensor(guidance) or guidance != 1
    if is_guided and without.keys() != inputs.keys():
        raise Refusal("without", f"the inputs {', '.join(inputs)} for no condition", without)

    def predict(x, times):
        if not is_guided:
            return model({"images": x, time: times, **inputs})["prediction"]
        both = {name: _joined(value, without[name]) for name, value in inputs.items()}
        answer = model({"images": _joined(x, x), time: _joined(times, times), **both})["prediction"]
        answer = ops.cast(answer, "float32")
        channels = x.shape[-1]
        conditional, rest = ops.split(answer, 2, axis=0)
        guided = rest[..., :channels] + guidance * (conditional - rest)[..., :channels]
        return ops.concatenate([guided, conditional[..., channels:]], axis=-1)

    return predict


def generate_images(
    denoiser: Any,
    count: int,
    inputs: Mapping[str, Tensor] | None = None,
    without: Mapping[str, Tensor] | None = None,
    num_steps: int = 50,
    guidance: float | Tensor = 1.0,
    sampler: DDPM | DDIM | DPMSolver | None = None,
    seed: int | Tensor = 0,
) -> Tensor:
    """`count` images (B, H, W, C), from -1 to 1, by a `keras_tfm.heads.Denoiser` that was trained.

    A seed and a place in the batch determine an image, or its own seed alone, if `seed` is a tensor (count,).
    The function may be a part of a compiled graph.

    Args:
        inputs: the backbone's other inputs, `classes` (B,) for example.
        without: what they are without a condition; for `classes` no class is the default.
        num_steps, guidance, seed: as in `trajectory`, `predictor` and `denoise`.
        sampler: by default `DDIM(follows_clean=True)`.

    Raises:
        ValueError: for inputs that are not of `count` images, and for numbers as in these functions.

    >>> backbone = keras_tfm.models.DiT.from_size("tiny", num_layers=1, num_classes=10)
    >>> denoiser = keras_tfm.heads.Denoiser(backbone)
    >>> classes = {"classes": np.array([3, 5])}
    >>> keras_tfm.generation.generate_images(denoiser, 2, classes, num_steps=2, guidance=2.0).shape
    TensorShape([2, 32, 32, 3])
    """
    require("count", count, lambda count: count >= 1, "must be at least 1", whole=True)
    inputs, without = dict(inputs or {}), dict(without or {})
    for name, value in (*inputs.items(), *without.items()):
        length = len(value) if isinstance(value, list | tuple) else value.shape[0]
        if not ops.is_tensor(count) and length not in (None, count):
            raise FieldError("{} must be of {:,} images, `count`; it is of {:,}.", Field(name), count, length)
    if "classes" in inputs:
        without.setdefault("classes", ops.full((count,), denoiser.backbone.config.num_classes, "int32"))
    network: Any = denoiser.backbone
    if hasattr(network, "encode"):  # texts are read once, not in each step
        inputs, without = (_read(network, x) for x in (inputs, without))
        network = network.unet
    if "text_mask" in inputs:  # a text without any token is none
        without = {**inputs, "text_mask": ops.zeros_like(inputs["text_mask"]), **without}
    sampler = DDIM(follows_clean=True) if sampler is None else sampler
    predict = predictor(network, inputs, without, guidance, denoiser.time)
    # The last step of the schedule first: there noise alone is what the network was trained on.
    steps = trajectory(denoiser.rates, num_steps, "trailing")
    if denoiser.time == "log_snr":
        steps = steps._replace(times=denoiser.log_snr[steps.times])
    noise = normal_noise((count, *denoiser.input["images"].shape[1:]), seed)
    return denoise(predict, noise, steps, sampler, denoiser.prediction, clip, seed)


def _read(network, inputs):
    """The `inputs`, of texts what the `network` reads in them."""
    tokens = {name: inputs[name] for name in ("token_ids", "padding_mask") if name in inputs}
    rest = {name: x for name, x in inputs.items() if name not in tokens}
    return {**rest, **network.encode(**tokens)} if tokens else rest


def _joined(x, y):
    return ops.concatenate([ops.convert_to_tensor(x), ops.convert_to_tensor(y)], axis=0)
