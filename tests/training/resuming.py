"""A training that can be broken anywhere and gone on from, as a function and as a process.

    python -m tests.training.resuming FOLDER STRATEGY OPTIONS

writes FOLDER/weights.npz when it ends; OPTIONS are JSON, the fields of `Plan` that differ from its defaults.
TF_CONFIG says who a worker is.
"""

import dataclasses
import json
import pathlib
import sys
import time

import numpy as np

SIZE, BATCH = 44, 8  # the last batch of an epoch is partial


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to train on, how often to keep it, and where to break it."""

    data: str = "finite"  # one dataset an epoch, drawn anew; "endless"; "arrays" and "generator": placeless
    epochs: int = 3
    every_steps: int = 4
    resume: bool = False
    stop_at: int | None = None  # after this step the process kills itself
    signal: int = 9
    worker: int = 0  # the one that does
    steps_per_execution: int = 1
    pause: float = 0.0  # seconds by which the chief writes its checkpoints late
    settings: dict = dataclasses.field(default_factory=dict)


def dataset(kind):
    """(arguments of `fit`, steps_per_epoch)"""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(SIZE, 4)).astype("float32"), rng.integers(0, 3, SIZE)
    if kind == "arrays":
        return {"x": x, "y": y, "batch_size": BATCH}
    if kind == "generator":
        spec = tf.TensorSpec((None, 4)), tf.TensorSpec((None,), tf.int64)
        batches = [(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, SIZE, BATCH)]
        examples = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)
        return {"x": examples.apply(tf.data.experimental.assert_cardinality(len(batches)))}
    examples = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(SIZE, seed=3)
    if kind == "endless":
        return {"x": examples.repeat().batch(BATCH).prefetch(2), "steps_per_epoch": 6}
    return {"x": examples.batch(BATCH).prefetch(2)}


def train(folder, plan, strategy="none"):
    """The weights that training ends with, its history, and the callbacks."""
    import os

    import keras

    import keras_tfm
    from keras_tfm.training import BestWeights, Checkpoint
    from keras_tfm.training.strategy import worker_index

    class Break(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if plan.stop_at is not None and checkpoint.step == plan.stop_at and index == plan.worker:
                os.kill(os.getpid(), plan.signal)

    class LateCheckpoint(Checkpoint):
        def _write(self, *arguments):
            time.sleep(plan.pause)
            super()._write(*arguments)

    devices = keras_tfm.training.strategy(strategy)
    index = worker_index(devices)
    keras.utils.set_random_seed(1)
    with devices.scope():
        inputs = keras.Input((4,))
        x = keras_tfm.layers.BatchNormalization()(keras.layers.Dense(16, activation="tanh")(inputs))
        x = keras.layers.Dropout(0.4)(x)
        model = keras_tfm.Model(inputs, keras.layers.Dense(3)(x))
        model.compile(
            keras.optimizers.AdamW(0.02, use_ema=True),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=plan.steps_per_execution,
        )
    kept = pathlib.Path(folder) / f"best-{index}.npz"

    def keep_best():
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez(kept.with_suffix(".new.npz"), *model.get_weights())
        os.replace(kept.with_suffix(".new.npz"), kept)  # whole, whenever the process dies

    def load_best():
        with np.load(kept) as arrays:
            model.set_weights([arrays[name] for name in arrays.files])

    best = BestWeights("loss", on_best=keep_best, load_best=load_best)
    checkpoint = LateCheckpoint(
        pathlib.Path(folder) / "checkpoints",
        every_steps=plan.every_steps,
        tracked=[best],
        settings=plan.settings,
        resume=plan.resume,
    )
    history = model.fit(
        **dataset(plan.data),
        epochs=plan.epochs,
        verbose=0,
        callbacks=[best, checkpoint, Break()],
        shuffle=True,
    )
    weights = {f"weight/{i}": np.array(value) for i, value in enumerate(model.get_weights())}
    optimizer = {f"optimizer/{i}": np.array(value) for i, value in enumerate(model.optimizer.variables)}
    measures = {f"history/{name}": np.array(values) for name, values in history.history.items()}
    return weights | optimizer | measures, model, checkpoint


def main(folder, strategy, options):
    import warnings

    import tensorflow as tf

    tf.config.experimental.enable_op_determinism()
    warnings.filterwarnings("ignore", message="Your input ran out of data")
    results, _, checkpoint = train(folder, Plan(**json.loads(options)), strategy)
    np.savez(pathlib.Path(folder) / f"worker-{checkpoint.worker}.npz", **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
