"""The training of a diffusion model: noise is added to images, and the backbone predicts of the noisy images
what was added (Ho et al. 2020, "Denoising Diffusion Probabilistic Models", algorithm 1).

    images, noise, timesteps --> noisy images --> backbone --> prediction --> loss
                             \\-> target --------------------------------------^
"""

import functools
import math
from typing import Any, Literal, get_args

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import Refusal
from keras_tfm.heads.base import ModelWithHead
from keras_tfm.inputs import refuse_outside
from keras_tfm.layers.base import Layer, SameShape
from keras_tfm.layers.compiler.bits import keeps
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.noise_schedules import (
    Prediction,
    Rates,
    add_noise,
    cosine_betas,
    linear_betas,
    noisier,
    prediction_of,
    rates_of_betas,
    require_kind,
    scaled_linear_betas,
    sigmoid_betas,
)
from keras_tfm.layers.positions import outside_is_nan

Schedule = Literal["linear", "scaled linear", "sigmoid", "cosine"]
BETAS = dict(
    zip(get_args(Schedule), (linear_betas, scaled_linear_betas, sigmoid_betas, cosine_betas), strict=True)
)


TIMES = {"timesteps", "log_snr"}  # the names of the input by which a backbone learns how noisy images are
MASKS = {"padding_mask", "text_mask"}  # ... and of the mask of a text's tokens
LARGEST = math.log(1e5)  # of a logarithm of a signal-to-noise ratio, positive or negative


class Denoiser(ModelWithHead):
    """A `backbone` that predicts something of noisy images, a `DiT` or a `DiffusionUNet`, and the noise.

    Inputs: `images` (B, H, W, C) without noise, from -1 to 1, `timesteps` (B,), integers below `num_steps`,
    and `noise` (B, H, W, C); these two are drawn if they are left out. The backbone's other inputs, `classes`
    for example, are inputs too. Outputs: `prediction` and its `target`, (B, H, W, C), between which the loss
    is computed, both times the square root of its weight: `fit` takes inputs alone.
    `keras_tfm.generation.denoise` makes images, with the `rates` and the backbone.

    Args:
        schedule: of the noise. All but "cosine" are made for 1,000 steps.
        prediction: what the backbone predicts, "noise", "velocity" or "clean".
        class_dropout: the share of classes that "no class" replaces in training, for guidance (Ho and
            Salimans 2022, "Classifier-Free Diffusion Guidance").
        max_weight: weighs the loss of clean images by 1 / the variance of the noise, which makes it the loss
            of the velocity, but at most by this (Salimans and Ho 2022, "Progressive Distillation", section
            4). With 1 all weigh the same, and details, which only little noise leaves to see, weigh little.
        noise_factor: how many times the schedule's ratio of noise to signal an image has at each step. With
            more than 1 the network learns more often what an image is of, which classes and texts decide, and
            less often its details (Hoogeboom et al. 2023, "Simple Diffusion", section 3.1).

    Raises:
        ValueError: for a backbone of other inputs or outputs, for a weight of anything but clean images, and
            for a factor that is not positive.

    >>> backbone = keras_tfm.models.DiT.from_size("tiny", num_layers=1, num_classes=10)
    >>> model = keras_tfm.heads.Denoiser(backbone)
    >>> model.compile("adam", "mse")
    >>> batch = {"images": np.zeros((4, 32, 32, 3), "float32"), "classes": np.array([0, 1, 2, 3])}
    >>> history = model.fit(batch, verbose=0)
    >>> 0.9 < history.history["loss"][0] < 1.1  # the variance of the noise, as 0 is predicted
    True
    """

    def __init__(
        self,
        backbone: keras.Model,
        schedule: Schedule = "cosine",
        num_steps: int = 1000,
        prediction: Prediction = "noise",
        class_dropout: float = 0.1,
        max_weight: float = 1.0,
        noise_factor: float = 1.0,
        name: str = "denoiser",
        **kwargs: Any,
    ) -> None:
        shape = _shape_of(backbone)
        if not 0 <= class_dropout < 1:
            raise Refusal("class_dropout", "in [0, 1)", class_dropout)
        check_weight(max_weight, prediction)
        images, noise = (keras.Input(shape, name=name) for name in ("images", "noise"))
        inputs = {"images": images, "timesteps": keras.Input((), dtype="int32", name="timesteps")}
        noising = Noising(schedule, num_steps, prediction, max_weight, noise_factor, name="noising")
        noisy, target, root = noising(images, noise, inputs["timesteps"])
        time = time_of(backbone)
        conditions = {
            name: keras.Input(x.shape[1:], dtype=x.dtype, name=name)
            for name, x in backbone.input.items()
            if name not in ("images", time)
        }
        shown = dict(conditions)
        if "classes" in shown:
            dropout = ClassDropout(class_dropout, backbone.config.num_classes, name="class_dropout")
            shown["classes"] = dropout(shown["classes"])
        for name in MASKS & shown.keys():
            shown[name] = TextDropout(class_dropout, name="text_dropout")(shown[name])
        times = ops.cast(inputs["timesteps"], "float32")
        if time == "log_snr":
            log_snr = LogSNR(schedule, num_steps, noise_factor, name="log_snr_of_times")
            times = log_snr(inputs["timesteps"])
        answer = backbone({"images": noisy, time: times, **shown})["prediction"]
        if max_weight > 1:
            answer = answer * ops.cast(root, answer.dtype)
        outputs = {"prediction": answer, "target": target}
        super().__init__(backbone, {**inputs, "noise": noise, **conditions}, outputs, name=name, **kwargs)
        self.schedule = schedule
        self.num_steps = num_steps
        self.prediction = prediction
        self.class_dropout = class_dropout
        self.max_weight = max_weight
        self.noise_factor = noise_factor
        self.generator = keras.random.SeedGenerator()

    @functools.cached_property
    def rates(self) -> Rates:
        """How much signal and noise there is after each timestep: (T,) each, in float64."""
        return rates_of(self.schedule, self.num_steps, self.noise_factor)

    @property
    def time(self) -> str:
        """The backbone's input for the time, "timesteps" or "log_snr"."""
        return time_of(self.backbone)

    @functools.cached_property
    def log_snr(self) -> np.ndarray:
        """The logarithm of the signal-to-noise ratio after each timestep, (T,)."""
        return log_snr_of(self.rates)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The loss of the prediction, whose label is the target."""
        return super().compute_loss(x, y_pred["target"], y_pred["prediction"], sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Metrics, too, compare the prediction with the target."""
        return super().compute_metrics(x, y_pred["target"], y_pred["prediction"], sample_weight)

    def _fill(self, name, inputs):
        if "images" in inputs and name == "noise":
            return keras.random.normal(ops.shape(inputs["images"]), seed=self.generator)
        if "images" in inputs and name == "timesteps":
            shape = ops.shape(inputs["images"])[:1]
            return keras.random.randint(shape, 0, self.num_steps, dtype="int32", seed=self.generator)
        return self.backbone._fill(name, inputs)


def _shape_of(backbone):
    """The shape (H, W, C) of the images that a `backbone` reads, and of what it predicts of them."""
    inputs, outputs = (x if isinstance(x, dict) else {} for x in (backbone.input, backbone.output))
    if "images" not in inputs or not TIMES & inputs.keys() or "prediction" not in outputs:
        names = f"{', '.join(inputs) or 'no names'}, and gives {', '.join(outputs) or 'none'}"
        wanted = "a model of `images` and `timesteps`, or `log_snr`, that gives a `prediction`"
        raise Refusal("backbone", wanted, f"{backbone.name!r}, which reads {names}")
    shapes = [tuple(x.shape[1:]) for x in (inputs["images"], outputs["prediction"])]
    if shapes[0] != shapes[1]:
        wanted = f"a model that predicts {shapes[0][-1]} channels, without a variance"
        raise Refusal("backbone", wanted, f"one of {shapes[1][-1]} (`output_channels`)")
    return shapes[0]


def check_weight(max_weight: float, prediction: Prediction) -> None:
    """Raise ValueError for a largest weight below 1, and for a weight of anything but clean images."""
    if not 1 <= max_weight < math.inf:
        raise Refusal("max_weight", "a number of at least 1", max_weight)
    if max_weight > 1 and prediction != "clean":
        raise Refusal("max_weight", f"1, as the prediction is {prediction}, not clean", max_weight)


def time_of(backbone: Any) -> str:
    """The name of the input by which a `backbone` learns how noisy its images are: "timesteps", or "log_snr",
    the logarithm of the signal-to-noise ratio.

    >>> keras_tfm.heads.denoiser.time_of(keras_tfm.models.DiT.from_size("tiny"))
    'timesteps'
    """
    return "log_snr" if "log_snr" in backbone.input else "timesteps"


def log_snr_of(rates: Rates) -> Any:
    """The logarithm of the signal-to-noise ratio at `rates`, in float32, within Imagen's bounds of 1e-5 and
    1e5 (Saharia et al. 2022).

    >>> [float(x) for x in keras_tfm.heads.denoiser.log_snr_of(Rates(np.array([0.5, 1]), np.array([0.5, 0])))]
    [0.0, 11.512925148010254]
    """
    with np.errstate(divide="ignore"):
        ratios = 2 * np.log(np.asarray(rates.signal) / np.asarray(rates.noise))
    return np.clip(ratios, -LARGEST, LARGEST).astype("float32")


def rates_of(schedule: Schedule, num_steps: int = 1000, noise_factor: float = 1.0) -> Rates:
    """The rates (T,), in float64, after each of `num_steps` timesteps of the schedule with this name, whose
    ratio of noise to signal is taken `noise_factor` times.

    >>> keras_tfm.heads.denoiser.rates_of("cosine", 100).signal.shape
    (100,)
    """
    if schedule not in BETAS:
        raise Refusal("schedule", f"one of {', '.join(BETAS)}", repr(schedule))
    if not isinstance(num_steps, int) or num_steps < 1:
        raise Refusal("num_steps", "a whole number of at least 1", num_steps)
    rates = rates_of_betas(BETAS[schedule](num_steps))
    return rates if noise_factor == 1 else noisier(rates, noise_factor)


class Noising(Layer):
    """Noisy images at `timesteps`, what of them is to be predicted, times the root of its weight, and this
    root, 1 / the noise or less.
    """

    def __init__(
        self,
        schedule: Schedule,
        num_steps: int,
        prediction: Prediction,
        max_weight: float = 1.0,
        noise_factor: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # rounded once, at the end
        require_kind(prediction)
        self.schedule = schedule
        self.num_steps = num_steps
        self.prediction = prediction
        self.max_weight = max_weight
        self.noise_factor = noise_factor
        self.table = [rate.astype("float32") for rate in rates_of(schedule, num_steps, noise_factor)]

    def call(self, images, noise, timesteps):
        """(B, H, W, C), (B, H, W, C), (B,) -> two of (B, H, W, C), and (B, 1, 1, 1)."""
        refuse_outside(timesteps, self.num_steps, "timesteps")
        images, noise = in_float32(images), in_float32(noise)
        missing = outside_is_nan(timesteps, self.num_steps, images.dtype)[:, 0]
        rates = Rates(*(ops.take(ops.cast(rate, images.dtype), timesteps) + missing for rate in self.table))
        root = 1 / ops.maximum(rates.noise, self.max_weight**-0.5)[:, None, None, None]
        target = prediction_of(self.prediction, images, noise, rates) * root
        outputs = add_noise(images, noise, rates), target, root
        return tuple(ops.cast(x, self.compute_dtype) for x in outputs)

    def compute_output_shape(self, images_shape, noise_shape, timesteps_shape):
        return tuple(images_shape), tuple(images_shape), (images_shape[0], 1, 1, 1)


class LogSNR(Layer):
    """The logarithm of the signal-to-noise ratio at `timesteps`: (B,) -> (B,)."""

    def __init__(self, schedule: Schedule, num_steps: int, noise_factor: float = 1.0, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.schedule = schedule
        self.num_steps = num_steps
        self.noise_factor = noise_factor
        self.table = log_snr_of(rates_of(schedule, num_steps, noise_factor))

    def call(self, timesteps):
        """(B,) -> (B,), in float32."""
        missing = outside_is_nan(timesteps, self.num_steps, "float32")[:, 0]
        return ops.take(self.table, timesteps) + missing

    def compute_output_spec(self, timesteps):
        return keras.KerasTensor(timesteps.shape, "float32")


class TextDropout(SameShape):
    """In training, all tokens of a text leave its mask (B, S) at a `rate`."""

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator()

    def call(self, is_token, training=None):
        """(B, S) -> (B, S)."""
        if not training or not self.rate:
            return is_token
        is_kept = keeps((ops.shape(is_token)[0], 1), self.rate, self.seed_generator.next())
        return ops.logical_and(is_token, is_kept)


class ClassDropout(SameShape):
    """In training, `no_class` takes the place of classes (B,) at a `rate`."""

    def __init__(self, rate: float, no_class: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.no_class = no_class
        self.seed_generator = keras.random.SeedGenerator()

    def call(self, classes, training=None):
        """(B,) -> (B,)."""
        if not training or not self.rate:
            return classes
        is_kept = keeps(ops.shape(classes), self.rate, self.seed_generator.next())
        return ops.where(is_kept, classes, self.no_class)
