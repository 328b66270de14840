"""How tasks fit a model: checks, precision, seeds, the best epoch, and the folder of a run."""

import contextlib
import logging
import pathlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import FieldError
from keras_tfm.jit import computes_in, fuses, jit_compile, slow_bfloat16
from keras_tfm.private.keras import layers_in, seed_generators_of
from keras_tfm.training.callbacks import BestWeights, FiniteLoss, Progress
from keras_tfm.training.changed_steps import Change, ChangedInputs
from keras_tfm.training.checkpoint import Checkpoint
from keras_tfm.training.logs import GradientNorm, MetricsFile, TensorBoard, Throughput
from keras_tfm.training.monitor import Mode
from keras_tfm.training.options import Precision, Run, Training
from keras_tfm.training.schedules import TimedSchedule, make_schedule
from keras_tfm.training.strategy import sum_over_workers, worker_index
from keras_tfm.training.time_limit import TimeLimit
from keras_tfm.training.weights import load_weights, save_weights

LOG = logging.getLogger(__name__)

COMPILATION = 5.0  # seconds for a shape: a translator of 7.6 million weights takes 3.5


def refuse_eight_bits(model: keras.Model) -> None:
    """Raise ValueError if layers of `model` are quantised: their weights have no gradient."""
    if any(getattr(layer, "quantization_mode", None) for layer in layers_in(model)):
        raise ValueError(
            "Weights in 8 bits cannot be trained: train the task that they come from, and quantise "
            "the result."
        )


def pays(minutes: float | None, num_shapes: int) -> bool:
    """Whether XLA compiles `num_shapes` shapes of batches in less than a third of the `minutes`."""
    return minutes is None or num_shapes * COMPILATION <= 60 * minutes / 3


def seed_draws(model: keras.Model, seed: int) -> None:
    """Set all seed generators of `model`, above all dropout's, to states derived from `seed`."""
    generators = {
        id(generator): generator for layer in layers_in(model) for generator in seed_generators_of(layer)
    }
    seeds = np.random.SeedSequence(seed).generate_state(len(generators)) % 2**31
    for generator, own in zip(generators.values(), seeds, strict=True):
        generator.state.assign([int(own), 0])


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """A scope in which Keras's initializers draw by `seed`; Python's random numbers then go on as before."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


@contextlib.contextmanager
def in_precision(model: keras.Model, precision: Precision | None) -> Iterator[None]:
    """A scope in which those layers of `model` that have its dtype policy compute in `precision`; None
    changes nothing.

    The weights keep their type, so the model computes like one that was built with that policy.
    """
    if precision is None or precision == model.dtype_policy.name:
        yield
        return
    before, policy = model.dtype_policy, keras.dtype_policies.get(precision)
    if policy.variable_dtype != before.variable_dtype:
        raise FieldError(
            "{precision} must keep the weights in {}; it is {!r}.", before.variable_dtype, precision
        )
    layers = [layer for layer in layers_in(model) if layer.dtype_policy == before]
    try:
        for layer in layers:
            layer.dtype_policy = policy
        yield
    finally:
        for layer in layers:
            layer.dtype_policy = before


def fit_best(
    model: keras.Model,
    batches: Any,
    validation: tf.data.Dataset,
    training: Training,
    *,
    num_epochs: int | None = None,
    objective: Mapping[str, Any],
    optimizer: Callable[..., keras.optimizers.Optimizer],
    monitor: tuple[str, Mode],
    run: Run | None = None,
    save: Callable[..., None] | None = None,
    keep_record: Callable[[Any], None] | None = None,
    settings: Mapping[str, Any] | None = None,
    callbacks: Iterable[keras.callbacks.Callback] = (),
    change: Change | None = None,
) -> dict[str, list[float]]:
    """Fit `model` as `training` says, and give it the weights of its best epoch: {metric: value per epoch}.

    Args:
        model: the model to fit; it is compiled here.
        batches: endless `Batches` to train on.
        validation: a dataset by which each epoch is judged.
        training: the options.
        num_epochs: how many epochs to train; by default `training.epochs`, from which the schedule follows.
        objective: losses and metrics, arguments of `compile`.
        optimizer: called as `optimizer(schedule, **averages)`; returns an optimizer of this package.
        monitor: the name and the mode of the metric that chooses the best epoch, as in `Monitor`.
        run: where to store the best weights so far, metrics.csv and the checkpoints that `resume` continues
            from.
        save: called as `save(folder, overwrite, trained=False)` to create that folder.
        keep_record: called as `keep_record(folder)` when a resumed run goes on.
        settings: JSON values that may not change when the run is resumed; nor may the precision.
        callbacks: further callbacks.
        change: what `ChangedInputs` does to each batch.

    With a time limit the learning-rate schedule follows the elapsed share of the time. Among several workers
    only the chief writes files.
    """
    is_chief = worker_index(model.distribute_strategy) == 0
    limit = TimeLimit(training.minutes)
    with model.distribute_strategy.scope():
        schedule = make_schedule(training, batches.num_batches)
        if training.minutes is not None:
            schedule = limit.schedule = TimedSchedule(schedule, training.epochs * batches.num_batches)
        default = "auto" if fuses(model) else jit_compile(model)
        jit = default if training.jit is None else training.jit
        chosen = optimizer(schedule, **averaging(batches.num_batches))
        if computes_in(model, "float16"):  # Keras looks at the model's policy, not at its layers'
            chosen = keras.optimizers.LossScaleOptimizer(chosen)
        model.compile(chosen, **objective, jit_compile=jit)
        if computes_in(model, "bfloat16"):
            if reason := slow_bfloat16(model.jit_compile):
                LOG.warning("bfloat16: %s.", reason)
            elif model.compiles_parts:
                LOG.info(
                    "bfloat16: products by the processor's own instructions, what is between them by XLA."
                )
    name, mode = monitor
    best = BestWeights(name, training.patience, mode=mode)
    ours = [limit, Throughput(), GradientNorm(), best, *callbacks]
    if change is not None:
        ours.append(ChangedInputs(change, training.epochs * batches.num_batches, schedule))
    if is_chief:
        ours.append(Progress())
    if run is None:
        ours.insert(0, FiniteLoss())  # before an epoch is judged
    else:
        if run.resume and is_chief and keep_record is not None:
            # When an epoch begins, `Checkpoint` has found that nothing else changed.
            keep = keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: keep_record(run.folder))
            ours.insert(0, keep)
        ours += _keeping(model, run, save, best, limit, settings or {}, is_chief)
    history = model.fit(
        batches.epochs(),
        steps_per_epoch=batches.num_batches,
        validation_data=validation,
        epochs=training.epochs if num_epochs is None else num_epochs,
        callbacks=ours,
        shuffle=False,
        verbose=0,
    )
    return history.history


def _keeping(
    model: keras.Model,
    run: Run,
    save: Any,
    best: BestWeights,
    limit: TimeLimit,
    settings: Mapping[str, Any],
    is_chief: bool,
) -> list[keras.callbacks.Callback]:
    """The callbacks that store a `run`; its folder is created here."""
    folder = pathlib.Path(run.folder)
    weights, callbacks = folder / "model.safetensors", []
    best.load_best = lambda: load_weights(model, weights)
    if is_chief:
        best.on_best = lambda: save_weights(model, weights)
        if not run.resume:
            save(folder, run.overwrite, trained=False)
        callbacks.append(MetricsFile(folder / "metrics.csv"))
        if run.tensorboard:
            callbacks.append(TensorBoard(folder / "logs"))
    sum_over_workers(model.distribute_strategy, 0)  # wait until the folder exists
    checkpoint = Checkpoint(
        folder / "checkpoints",
        every_minutes=run.save_minutes,
        tracked=[best, limit],
        settings={**settings, "precision": precision_of(model)},
        resume=run.resume,
    )
    return [*callbacks, checkpoint]


def precision_of(model: keras.Model) -> str:
    """The names of the float policies of the layers of `model`, for example "mixed_bfloat16"."""
    return ", ".join(sorted({layer.dtype_policy.name for layer in layers_in(model)}))


def averaging(num_batches: int) -> dict[str, Any]:
    """Arguments of an optimizer that averages weights over about one epoch, at most 1,000 steps.

    The averages are what is validated and kept.
    """
    return {"use_ema": True, "ema_momentum": 1 - 1 / min(max(num_batches, 10), 1_000)}
