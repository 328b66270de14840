"""Fitting a compiled model as every task does: best weights, time limit, checkpoints, progress."""

import pathlib

from keras_tfm.training.callbacks import BestWeights, Progress, TimeLimit
from keras_tfm.training.checkpoint import Checkpoint
from keras_tfm.training.logs import GradientNorm, MetricsFile, TensorBoard, Throughput
from keras_tfm.training.store import CheckpointFolder
from keras_tfm.training.strategy import sum_over_workers, worker_index
from keras_tfm.training.weights import load_weights, save_weights


def fit_best(
    model,
    batches,
    validation,
    *,
    monitor,
    mode="min",
    epochs,
    minutes=None,
    patience=None,
    run=None,
    save=None,
    save_minutes=10,
    resume=False,
    overwrite=False,
    tensorboard=False,
    settings=None,
):
    """Fit `model` and leave it with the weights of its best epoch: {measure: [its value an epoch]}.

    `batches` has `epochs()`, an endless dataset, and `num_batches`. Epochs are judged by `monitor`, with
    `mode` "min" or "max", on the dataset `validation`. With `run`, a folder that `save(run, overwrite)`
    makes, the best weights so far stand in it, and checkpoints after every epoch and `save_minutes`, from
    which `resume` goes on, refusing other `settings`; metrics.csv has a row an epoch, and `tensorboard` the
    same in logs/. The optimizer is one of this package. Of several workers the chief alone writes.
    """
    is_chief = worker_index(model.distribute_strategy) == 0
    best = BestWeights(monitor, patience, mode=mode)
    callbacks = [Throughput(), GradientNorm(), best, *([Progress()] if is_chief else [])]
    if minutes is not None:
        callbacks.append(TimeLimit(minutes))
    if run is not None:
        weights = pathlib.Path(run) / "model.safetensors"
        best.load_best = lambda: load_weights(model, weights)
        if is_chief:
            best.on_best = lambda: save_weights(model, weights)
            if not resume:
                refuse_running(run)
                save(run, overwrite)
            callbacks.append(MetricsFile(pathlib.Path(run) / "metrics.csv"))
            if tensorboard:
                callbacks.append(TensorBoard(pathlib.Path(run) / "logs"))
        sum_over_workers(model.distribute_strategy, 0)  # until the folder is there
        checkpoints = Checkpoint(
            pathlib.Path(run) / "checkpoints",
            every_minutes=save_minutes,
            tracked=[best],
            settings=settings,
            resume=resume,
        )
        callbacks.append(checkpoints)
    history = model.fit(
        batches.epochs(),
        steps_per_epoch=batches.num_batches,
        validation_data=validation,
        epochs=epochs,
        callbacks=callbacks,
        shuffle=False,
        verbose=0,
    )
    return history.history


def refuse_running(run):
    """Raise BlockingIOError where another process trains in the folder `run`."""
    if pathlib.Path(run, "checkpoints").is_dir():
        folder = CheckpointFolder(pathlib.Path(run) / "checkpoints")
        folder.lock()
        folder.unlock()


def averaging(num_batches):
    """Options of a Keras optimizer for averages of the weights over about an epoch of `num_batches` steps,
    fewer for short runs: they judge, and outlast, the last weights.
    """
    return {"use_ema": True, "ema_momentum": 1 - 1 / min(max(num_batches, 10), 1_000)}
