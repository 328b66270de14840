"""What the `fit` of every task shares: what it refuses and leaves as it was, and the fitting itself."""

import functools
import inspect
import math
import pathlib
import sys

import numpy as np

from keras_tfm.jit import jit_compile
from keras_tfm.private.keras import layers_in, seed_generators_of
from keras_tfm.training.callbacks import BestWeights, Progress
from keras_tfm.training.checkpoint import Checkpoint
from keras_tfm.training.freezing import trainable_kept
from keras_tfm.training.logs import GradientNorm, MetricsFile, TensorBoard, Throughput
from keras_tfm.training.schedules import TimedSchedule
from keras_tfm.training.store import CheckpointFolder
from keras_tfm.training.strategy import sum_over_workers, worker_index
from keras_tfm.training.time_limit import TimeLimit
from keras_tfm.training.weights import load_weights, save_weights

COUNTS = {  # the least of the whole numbers that a `fit` takes
    "epochs": 1, "batch_tokens": 1, "batch_size": 1, "epoch_batches": 1, "patience": 1, "num_drawings": 1,
    "max_shift": 0, "seed": 0,
}  # fmt: skip
RANGES = {  # of the other numbers: what is asked of them, and in words
    "learning_rate": (lambda x: 0 < x < math.inf, "a finite number above 0"),
    "save_minutes": (lambda x: 0 < x < math.inf, "a finite number above 0"),
    "minutes": (lambda x: 0 <= x < math.inf, "a finite number of at least 0"),
    "weight_decay": (lambda x: 0 <= x < math.inf, "a finite number of at least 0"),
    "label_smoothing": (lambda x: 0 <= x < 1, "a number in [0, 1)"),
}


def trains(fit):
    """A task's `fit` that first refuses numbers without sense and weights that cannot learn, draws by its
    `seed` alone, and leaves what may be trained as it found it, however it ends.
    """
    signature = inspect.signature(fit)

    @functools.wraps(fit)
    def framed_fit(task, *args, **options):
        bound = signature.bind(task, *args, **options)
        bound.apply_defaults()
        refuse_senseless(bound.arguments)
        refuse_eight_bits(task.model)
        seed_draws(task.model, bound.arguments["seed"])
        with trainable_kept(task.model):
            return fit(task, *args, **options)

    return framed_fit


def refuse_senseless(arguments):
    """Raise ValueError, naming it, for an argument {name: value} that no training can heed."""
    for name, value in arguments.items():
        if value is None:
            continue
        if name in COUNTS and not (isinstance(value, int | np.integer) and value >= COUNTS[name]):
            raise ValueError(f"`{name}` must be a whole number of at least {COUNTS[name]}; it is {value!r}.")
        if name in RANGES:
            is_allowed, words = RANGES[name]
            if not (isinstance(value, int | float | np.number) and is_allowed(value)):
                raise ValueError(f"`{name}` must be {words}; it is {value!r}.")


def refuse_eight_bits(model):
    """Raise ValueError where layers of `model` are quantised: their weights get no gradient."""
    if any(getattr(layer, "quantization_mode", None) for layer in layers_in(model)):
        raise ValueError(
            "Weights in 8 bits cannot be trained: train the task that they were quantised from, and quantise "
            "what comes of it."
        )


def seed_draws(model, seed):
    """Begin all that `model` draws, for dropout above all, anew by `seed`."""
    generators = {
        id(generator): generator for layer in layers_in(model) for generator in seed_generators_of(layer)
    }
    seeds = np.random.SeedSequence(seed).generate_state(len(generators)) % 2**31
    for generator, own in zip(generators.values(), seeds, strict=True):
        generator.state.assign([int(own), 0])


def fit_best(
    model,
    batches,
    validation,
    *,
    schedule,
    optimizer,
    objective,
    monitor,
    counts,
    epochs,
    minutes,
    patience,
    run,
    save,
    save_minutes,
    resume,
    overwrite,
    tensorboard,
    settings,
    mode="auto",
):
    """Fit `model` and leave it with the weights of its best epoch: {measure: [its value at each epoch]}.

    `batches` has `epochs()`, an endless dataset, and `num_batches`, how many are an epoch. It is compiled
    with `optimizer(schedule, **averages)`, one of this package, and `objective`, the losses and measures.
    Epochs are judged by `monitor`, with a `Monitor`'s `mode`, on the dataset `validation`; `counts` are what
    the examples are called, and how many train and judge. Of a time limit of `minutes` the schedule follows
    the share that is used, too. With `run`, a folder that `save(run, overwrite, trained=False)` makes, the
    best weights so far stand in it, and checkpoints after every epoch and `save_minutes`, from which `resume`
    goes on, refusing other `settings` or another precision; metrics.csv has a row for each epoch, and
    `tensorboard` the same in logs/. Of several workers the chief alone writes.
    """
    is_chief = worker_index(model.distribute_strategy) == 0
    with model.distribute_strategy.scope():
        if minutes is not None:
            schedule = TimedSchedule(schedule, epochs * batches.num_batches)
        averages = averaging(batches.num_batches)
        model.compile(optimizer(schedule, **averages), **objective, jit_compile=jit_compile())
    limit = TimeLimit(minutes, schedule if minutes is not None else None)
    best = BestWeights(monitor, patience, mode=mode)
    callbacks = [limit, Throughput(), GradientNorm(), best]
    if is_chief:
        callbacks.append(Progress())
    if run is not None:
        weights = pathlib.Path(run) / "model.safetensors"
        best.load_best = lambda: load_weights(model, weights)
        if is_chief:
            best.on_best = lambda: save_weights(model, weights)
            if not resume:
                refuse_running(run)
                save(run, overwrite, trained=False)
            callbacks.append(MetricsFile(pathlib.Path(run) / "metrics.csv"))
            if tensorboard:
                callbacks.append(TensorBoard(pathlib.Path(run) / "logs"))
        sum_over_workers(model.distribute_strategy, 0)  # until the folder is there
        checkpoints = Checkpoint(
            pathlib.Path(run) / "checkpoints",
            every_minutes=save_minutes,
            tracked=[best, limit],
            settings={**settings, "precision": precision_of(model)},
            resume=resume,
        )
        callbacks.append(checkpoints)
    if is_chief:
        name, num_train, num_held = counts
        print(f"{num_train:,} {name} to train on, {num_held:,} to judge the epochs by", file=sys.stderr)
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


def precision_of(model):
    """The float policies of the layers of `model`, "mixed_bfloat16" for example, by name."""
    return ", ".join(sorted({layer.dtype_policy.name for layer in layers_in(model)}))


def averaging(num_batches):
    """Options of a Keras optimizer for averages of the weights over about an epoch of `num_batches` steps,
    fewer for short runs: the averages judge an epoch, and are what is kept of it.
    """
    return {"use_ema": True, "ema_momentum": 1 - 1 / min(max(num_batches, 10), 1_000)}
