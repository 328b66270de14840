"""Forecasting: predict the next values of a series of numbers from its past."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import keras
import numpy as np
import tensorflow as tf

import keras_tfm.models
from keras_tfm.configs import Between, Config, Count, Length, Option, Refusal, Size
from keras_tfm.data.batches.arrays import ArrayBatches
from keras_tfm.data.batches.epochs import HeldOut
from keras_tfm.data.batches.series import windows_of
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.sources.series import parse_numbers, read_histories, read_series
from keras_tfm.serving.examples import as_numbers
from keras_tfm.tasks.baselines import LAST_VALUE, MEAN, Baselines
from keras_tfm.tasks.learning import TABLES, ModelOptions
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.tasks.trainable import TrainableTask
from keras_tfm.training.folder import Path
from keras_tfm.training.options import Training

Finite = Annotated[float, Between(-1e300, 1e300)]
Positive = Annotated[float, Between(0, 1e300, is_above=True)]


@dataclasses.dataclass(frozen=True)
class ForecasterConfig(Config):
    """The normalisation of values, (x - `mean`) / `scale`, and the longest forecast, `horizon`."""

    horizon: Annotated[Length, Option("how many values a forecast has")] = 12
    mean: Finite = 0.0
    scale: Positive = 1.0


@dataclasses.dataclass(frozen=True)
class SeriesTraining(Training):
    """By default the warm-up takes a tenth of the steps."""

    batch_size: Annotated[Count, Option("windows in a batch")] = 64


@dataclasses.dataclass(frozen=True)
class ForecastOptions(ModelOptions):
    """A model with fresh weights."""

    set_here: ClassVar[Mapping[str, str]] = {
        "kind": "--family",
        "window": "--window",
        "hidden_dim": "--hidden-dim",
    }

    family: Annotated[
        Literal["linear", "dense", "recurrent"], Option("kind of model; linear is the AR(k) of textbooks")
    ] = "linear"
    window: Annotated[Length, Option("how many values the next one is predicted from")] = 24
    hidden_dim: Annotated[Size, Option("width of a dense or recurrent model")] = 32

    def base(self) -> Config:
        return configured(self.window, self.family, self.hidden_dim)


class Forecaster(TrainableTask):
    """Predicts the next values of a series of numbers (N,), oldest first.

    `model` is an `Autoregressive`. Values are normalised as `config` says; the last part of a series is held
    out for validation.

    Raises:
        ValueError: for a series that is not longer than a window, and for values that are not finite numbers.

    >>> series = np.sin(np.arange(200) / 5)
    >>> forecaster = keras_tfm.tasks.Forecaster.from_series(series, family="linear", window=10)
    >>> history = forecaster.fit(series, epochs=1)
    >>> forecaster.forecast(series, 3).shape
    (3,)
    """

    name = "forecast"
    start = "a RUN of this task"
    files = f"a column of numbers, oldest first, in {TABLES}"
    columns = (1,)
    unit = "values"
    digits = 6
    held_out = HeldOut(0.1)
    training = SeriesTraining(epochs=50, learning_rate=1e-2, weight_decay=0.0, patience=10)
    model_options = ForecastOptions
    config_class = ForecasterConfig

    def __init__(self, model: keras.Model, config: ForecasterConfig | None = None):
        self.model, self.config = model, config or ForecasterConfig()
        self.window = model.config.window

    @classmethod
    def from_series(
        cls,
        series: Sequence[float] | np.ndarray,
        family: Literal["linear", "dense", "recurrent"] = "linear",
        window: int = 24,
        hidden_dim: int = 32,
        horizon: int = 12,
        **changes: Any,
    ) -> Self:
        """A forecaster with fresh weights, whose normalisation is taken from `series`.

        Args:
            series: numbers (N,), oldest first.
            family: "linear", "dense" or "recurrent".
            window: from how many values the next one is predicted.
            hidden_dim: width of a dense or recurrent model.
            horizon: how many values a forecast may have.
            changes: fields of `AutoregressiveConfig` to replace.
        """
        values = longer_than(check_series(series, 0), window)
        of_model = configured(window, family, hidden_dim)
        model = keras_tfm.models.Autoregressive(dataclasses.replace(of_model, **changes))
        config = ForecasterConfig(horizon, float(values.mean()), float(values.std()) or 1.0)
        return cls(model, config)

    @classmethod
    def make(
        cls, examples: np.ndarray, options: ForecastOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        return cls.from_series(examples, **vars(options), **fields, **changes)

    @classmethod
    def reading(
        cls, options: ForecastOptions, changes: Mapping[str, Any], start: Path | None = None
    ) -> dict[str, Any]:
        return {"window": 0 if start is not None else options.window}

    @classmethod
    def read_files(
        cls, paths: Sequence[Path], columns: ColumnNames = None, window: int = 0, **fields: Any
    ) -> np.ndarray:
        """A series of more than `window` values."""
        return longer_than(check_series(read_series(paths, columns), 0), window)

    def check_examples(self, series: Any) -> np.ndarray:
        return check_series(series, self.window)

    def hold_out(self, series: np.ndarray, share: float | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The series without its last `share`; and that share, preceded by one window."""
        count = max(1, round(len(series) * (self.held_out.share if share is None else share)))
        if not 0 < count < len(series) - self.window:
            raise Refusal(
                "window",
                f"below {len(series) - count}: of the {len(series)} values of the series "
                f"{count} are for validation",
                self.window,
            )
        return series[:-count], series[-count - self.window :]

    def batches(
        self, series: np.ndarray, training: SeriesTraining, is_validation: bool = False
    ) -> ArrayBatches:
        seed = None if is_validation else training.seed
        values, targets = (x.astype("float32") for x in windows_of(self._normalise(series), self.window))
        return ArrayBatches({"values": values}, targets, training.batch_size, seed)

    def baselines(self, series: np.ndarray, validation: np.ndarray, seed: int) -> Baselines:
        values, targets = windows_of(self._normalise(validation), self.window)
        rules = {MEAN: np.mean(np.square(targets)), LAST_VALUE: np.mean(np.square(values[:, -1:] - targets))}
        return Baselines("val_loss", "min", {name: float(x) for name, x in rules.items()}, len(targets))

    def objective(self, training: SeriesTraining) -> dict[str, Any]:
        return {"loss": keras.losses.MeanSquaredError("mean_with_sample_weight", name="loss")}

    def forecast(self, series: Sequence[float] | np.ndarray, steps: int | None = None) -> np.ndarray:
        """The `steps` values after `series`, by default `config.horizon`; each is predicted from those before
        it, predictions included.
        """
        return self.predict([series], steps=steps)[0]

    def predict(self, histories: Iterable[Any], /, *, steps: int | None = None) -> list[np.ndarray]:
        """The forecast of each history, which is a list of numbers or a string of them, at least a window
        long.
        """
        steps = self.config.horizon if steps is None else steps
        if not 1 <= steps <= self.config.horizon:
            raise ValueError(f"`steps` must lie in [1, {self.config.horizon}]; it is {steps}.")
        histories = self.answerable(histories)
        if not histories:
            return []
        values = np.stack([numbers_of(history)[-self.window :] for history in histories])
        run = self.traced("ahead", lambda: tf.function(self._ahead, autograph=False, reduce_retracing=True))
        ahead = run(tf.constant(self._normalise(values), tf.float32), tf.constant(steps)).numpy()
        return list(ahead.astype("float64") * self.config.scale + self.config.mean)

    def refusal(self, example: Any) -> str | None:
        try:
            check_series(numbers_of(example), self.window - 1)
        except ValueError as error:
            return str(error)
        return None

    def measure(self, series: np.ndarray) -> dict[str, Any]:
        """Errors of predicting one step ahead: "mae" (mean absolute) and "rmse" (root mean squared), and the
        same errors of the naive forecast, which repeats the last value.
        """
        values, targets = windows_of(series, self.window)
        predicted = [
            self.model({"values": tf.constant(part, tf.float32)}, training=False).numpy()
            for part in np.array_split(self._normalise(values), math.ceil(len(values) / 4_096))
        ]
        errors = np.concatenate(predicted) * self.config.scale + self.config.mean - targets
        naive = values[:, -1:] - targets
        return {
            "mae": np.abs(errors).mean(),
            "rmse": np.sqrt(np.square(errors).mean()),
            "naive_mae": np.abs(naive).mean(),
            "naive_rmse": np.sqrt(np.square(naive).mean()),
        }

    def as_line(self, answer: Any) -> str:
        return ",".join(f"{value:.7g}" for value in answer)

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        return read_histories(path, columns)

    def _normalise(self, values: np.ndarray) -> np.ndarray:
        return (values - self.config.mean) / self.config.scale

    def _ahead(self, values: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        """The next `steps` values (B, steps) after windows (B, k), all normalised. Runs in a graph."""

        def next_window(window: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
            following = self.model({"values": window}, training=False)
            return tf.concat([window[:, 1:], tf.cast(following, window.dtype)], axis=1)

        windows = tf.scan(next_window, tf.range(steps), values)  # (steps, B, k)
        return tf.transpose(windows[:, :, -1])

    def export_endpoints(self) -> Endpoints:
        def answer(values: tf.Tensor, steps: int) -> dict[str, tf.Tensor]:
            mean, scale = self.config.mean, self.config.scale
            message = f"A history needs {self.window} values or more."
            with tf.control_dependencies(
                [tf.debugging.assert_greater_equal(tf.shape(values)[1], self.window, message)]
            ):
                values = values[:, -self.window :]  # (B, window)
            ahead = self._ahead(tf.cast((values - mean) / scale, tf.float32), tf.constant(steps))
            return {"forecast": tf.cast(ahead, tf.float64) * scale + mean}

        # In 32 bits a series far from zero would lose its digits before the mean is subtracted.
        signature = [tf.TensorSpec([None, None], tf.float64, "values")]
        return {"serving_default": (functools.partial(answer, steps=self.config.horizon), signature)}


def configured(window: int, family: Any, hidden_dim: int) -> keras_tfm.models.AutoregressiveConfig:
    """The configuration of a model; a linear one has no hidden layer."""
    return keras_tfm.models.AutoregressiveConfig(window, family, None if family == "linear" else hidden_dim)


def check_series(series: Any, window: int) -> np.ndarray:
    """A series as an array (N,); ValueError for other shapes, for values that are not finite, and for
    `window` values or fewer.
    """
    values = as_numbers(series, "series")
    if values.ndim != 1:
        raise ValueError(f"The series must have the shape (N,); it is {values.shape}.")
    if not np.isfinite(values).all():
        place = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"The series must be finite numbers; value {place} is {values[place]}.")
    if len(values) <= window:
        raise ValueError(f"The series must have more than {window} values; it has {len(values)}.")
    return values


def longer_than(series: np.ndarray, window: int) -> np.ndarray:
    """The `series`; ValueError if it has no more values than the `window` of a model to be made."""
    if len(series) <= window:
        raise Refusal("window", f"below {len(series)}, the values of the series", window)
    return series


def numbers_of(history: Any) -> np.ndarray:
    """The numbers of a history, which may be given as a string."""
    return parse_numbers(history) if isinstance(history, str) else as_numbers(history, "history")
