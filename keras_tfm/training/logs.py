"""Callbacks that measure a training, and callbacks that write its logs to files.

Callbacks that measure must come before callbacks that show or write, which read the logs as they are then.
All workers measure, and only the chief writes.
"""

import pathlib
import statistics
import time
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from keras_tfm.training.folder import Path
from keras_tfm.training.metrics_file import read_rows, write_rows
from keras_tfm.training.monitor import Logs
from keras_tfm.training.replicas import batch_size_of

WINDOW = 20  # steps


class Throughput(keras.callbacks.Callback):
    """Logs `examples_per_second` and, for batches with token ids, `tokens_per_second`, over all replicas.

    Padding does not count, nor do rows that consist of padding. The value of an epoch is the median over
    windows of `window` steps; reading the counters waits for the device once per window. Validation and
    saving are excluded, and so is compilation if it affects only a few windows. The first step of an epoch is
    excluded too; an epoch of a single step has no value.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> model.compile("adam", "mse")
    >>> throughput = keras_tfm.training.Throughput()
    >>> history = model.fit(np.ones((8, 2)), np.ones((8, 3)), batch_size=2, verbose=0, callbacks=[throughput])
    >>> bool(history.history["examples_per_second"][0] > 0)
    True
    """

    def __init__(self, window: int = WINDOW):
        super().__init__()
        if window < 1:
            raise ValueError(f"`window` must be at least 1; it is {window}.")
        self.window = window

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        # Before Keras makes the training function; and only once, however often the model is fitted.
        if not isinstance(model.train_step, CountedStep):
            model.train_step, model.train_function = CountedStep(model), None
        self.work = model.train_step.work

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self.rates: list = []
        self.is_first = True

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if self.is_first:
            self.is_first = False
            self._begin()
            return
        self.steps += 1
        if self.steps == self.window:
            self._end()

    def on_test_begin(self, logs: Logs = None) -> None:
        self._end_short_epoch()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._end_short_epoch()
        names = ("examples_per_second", "tokens_per_second")
        rates = list(zip(*self.rates, strict=True))
        for name, values in zip(names, rates, strict=False):
            if name == "examples_per_second" or any(values):
                logs[name] = statistics.median(values)

    def _end_short_epoch(self) -> None:
        if not self.rates and not self.is_first and self.steps:
            self._end()

    def _begin(self) -> None:
        done = self.work.numpy()  # waits until the device has finished
        self.steps, self.done, self.began = 0, done, time.perf_counter()

    def _end(self) -> None:
        done, began = self.done, self.began
        self._begin()
        self.rates.append((self.done - done) / (self.began - began))


class CountedStep:
    """A model's `train_step` that also counts the examples and tokens of all replicas, in `work`."""

    def __init__(self, model: keras.Model):
        self.step = model.train_step
        with model.distribute_strategy.scope():
            self.work = tf.Variable(
                [0, 0],
                dtype=tf.int64,
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )

    def __call__(self, data: Any) -> Any:
        self.work.assign_add(work_in(keras.utils.unpack_x_y_sample_weight(data)[0]))
        return self.step(data)


def work_in(x: Any) -> tf.Tensor:
    """(examples, tokens) of a batch's inputs without padding, int64; the tokens of all `…token_ids` count."""
    rows, tokens = None, tf.constant(0, tf.int64)
    for name, token_ids in x.items() if isinstance(x, dict) else ():
        if name.endswith("token_ids"):
            mask = x.get(name.removesuffix("token_ids") + "padding_mask")
            mask = tf.ones_like(token_ids, tf.bool) if mask is None else tf.cast(mask, tf.bool)
            tokens += tf.math.count_nonzero(mask)
            filled = tf.reduce_any(mask, axis=list(range(1, mask.shape.rank)))  # (B,)
            rows = filled if rows is None else rows | filled
    examples = tf.cast(batch_size_of(x), tf.int64) if rows is None else tf.math.count_nonzero(rows)
    return tf.stack([examples, tokens])


class GradientNorm(keras.callbacks.Callback):
    """Logs `gradient_norm`, its mean over the updates of an epoch; needs an optimizer of this package.

    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    >>> model.compile(keras_tfm.training.SGD(0.1), "mse")
    >>> norm = keras_tfm.training.GradientNorm()
    >>> history = model.fit(np.zeros((4, 1)), np.ones((4, 1)), verbose=0, callbacks=[norm])
    >>> history.history["gradient_norm"]  # of the bias: 2 (0 - 1)
    [2.0]
    """

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        if not hasattr(inner_optimizer(model), "take_gradient_norm"):
            raise ValueError(
                f"GradientNorm needs an optimizer of keras_tfm.training, such as AdamW; it is "
                f"{type(inner_optimizer(model)).__name__}."
            )

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        logs["gradient_norm"] = inner_optimizer(self.model).take_gradient_norm()


class MetricsFile(keras.callbacks.Callback):
    """Writes the logs to the CSV file `path`: one row per epoch below a header; the file is always complete.

    The columns are the epoch, the step, the learning rate, the seconds of the epoch, then the metrics. A
    resumed run keeps the rows of the epochs before it; new metrics become further columns.

    Raises:
        ValueError: if the file exists and is not a table of metrics.

    >>> import pathlib
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> model.compile("adam", "mse")
    >>> metrics = keras_tfm.training.MetricsFile("metrics.csv")
    >>> history = model.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0, callbacks=[metrics])
    >>> pathlib.Path("metrics.csv").read_text().split()[0]
    'epoch,step,learning_rate,seconds,loss'
    """

    def __init__(self, path: Path):
        super().__init__()
        self.path = pathlib.Path(path)

    def on_train_begin(self, logs: Logs = None) -> None:
        self.rows = read_rows(self.path)
        self.is_first = True

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        if self.is_first:
            self.rows = [row for row in self.rows if int(row["epoch"]) <= epoch]
            self.is_first = False
        self.began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        measures = measures_of(self.model, logs)
        row = {
            "epoch": str(epoch + 1),
            "step": str(measures.pop("step")),
            "learning_rate": f"{measures.pop('learning_rate'):.7g}",
            "seconds": f"{time.perf_counter() - self.began:.1f}",
        }
        self.rows.append(row | {name: f"{value:.7g}" for name, value in measures.items()})
        write_rows(self.path, self.rows)


class TensorBoard(keras.callbacks.Callback):
    """Writes the logs of each epoch for TensorBoard, to `folder`/train and `folder`/validation.

    Unlike Keras's callback, it does not need the package tensorboard.

    >>> import os
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> model.compile("adam", "mse")
    >>> board = keras_tfm.training.TensorBoard("logs")
    >>> history = model.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0, callbacks=[board])
    >>> sorted(os.listdir("logs"))
    ['train', 'validation']
    """

    def __init__(self, folder: Path):
        super().__init__()
        self.folder = pathlib.Path(folder)

    def on_train_begin(self, logs: Logs = None) -> None:
        self.writers = {
            name: tf.summary.create_file_writer(str(self.folder / name)) for name in ("train", "validation")
        }

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        measures = measures_of(self.model, logs)
        step = measures.pop("step")
        for name, value in measures.items():
            writer = self.writers["validation" if name.startswith("val_") else "train"]
            with writer.as_default():
                tf.summary.write(name.removeprefix("val_"), tf.constant(value), step, metadata=SCALAR)
        for writer in self.writers.values():
            writer.flush()

    def on_train_end(self, logs: Logs = None) -> None:
        for writer in self.writers.values():
            writer.close()


SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"),
    data_class=1,  # DATA_CLASS_SCALAR of tensorflow/core/framework/summary.proto
)


def measures_of(model: keras.Model, logs: Mapping[str, Any]) -> dict[str, Any]:
    """An epoch's logs as numbers, with the optimizer's `step`, an integer, and the `learning_rate`."""
    optimizer = inner_optimizer(model)
    return {
        **{name: float(value) for name, value in logs.items()},
        "step": int(keras.ops.convert_to_numpy(optimizer.iterations)),
        "learning_rate": float(keras.ops.convert_to_numpy(optimizer.learning_rate)),
    }


def inner_optimizer(model: keras.Model) -> keras.optimizers.Optimizer:
    """The optimizer that updates the weights, without a wrapper that scales the loss."""
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)
