"""Whether each task trains in 16 bits, and on two replicas, on the tiny examples of all tasks: one epoch, or
in mixed_float16, whose first steps may overflow, several, in which the loss has to fall.

    python -m tests.recorded.trainings                  # all cells, as they are now
    python -m tests.recorded.trainings caption detect   # of these tasks alone

trainings.json keeps "yes", or why not; test_trainings.py compares, and docs/guides/matrix.md shows it.
"""

import json
import math
import pathlib
import subprocess
import sys

import keras
import numpy as np

from keras_tfm.training import strategy
from tests.tasks.test_every_task import MAKERS

KEPT = pathlib.Path(__file__).with_name("trainings.json")
PRECISIONS = ("mixed_bfloat16", "mixed_float16")
STRATEGY = "mirrored:2"  # two logical devices of one processor, or two GPUs
COLUMNS = (*PRECISIONS, STRATEGY)
# What a task needs for one step, or to distinguish its examples, beyond those that it is measured on.
DRAWN = np.random.default_rng(0)
EXAMPLES = {
    "classify-images": (DRAWN.integers(0, 256, (2, 8, 8), "uint8"), ["a", "b"]),
    "classify-videos": (DRAWN.integers(0, 256, (2, 5, 8, 8), "uint8"), ["a", "b"]),
    "classify-points": (DRAWN.normal(size=(2, 9, 3)), ["a", "b"]),
    "reidentify": (DRAWN.integers(0, 256, (4, 16, 8, 3), "uint8"), ["a", "a", "b", "b"], [1, 2, 1, 2]),
    "track": (DRAWN.integers(0, 256, (2, 3, 16, 16), "uint8"), [[[1, 1, 2, 2, 8, 8]]] * 2),
    "inpaint-videos": DRAWN.integers(0, 256, (2, 5, 16, 16), "uint8"),
    "forecast": np.sin(np.arange(100.0)),
}
EPOCHS = {"mixed_float16": 24}
RATE = 1e-3  # where several epochs have to learn something
OPTIONS = {"reidentify": {"identities_in_batch": 2}, "track": {"flip": False, "max_gap": 1}}
LEARN = (*(name for name, (_, examples) in MAKERS.items() if examples is not None), "forecast")
MOST = 200  # characters of a reason


def trained(name, precision=None, devices="none"):
    """ "yes" if epochs give finite losses, which fall where there are several, and finite weights; else why
    the task refuses it.
    """
    keras.utils.set_random_seed(0)
    try:
        with strategy(devices).scope():
            make, examples = MAKERS.get(name) or (_others()[name], None)
            examples, task = EXAMPLES.get(name, examples), make()
        is_keras = isinstance(getattr(task, "model", None), keras.Model)
        if devices != "none" and not is_keras:
            return "What the task learns is no Keras model: there is nothing to replicate."
        options = {"jit": False} if is_keras else {}
        options |= OPTIONS.get(name, {}) | ({} if precision is None else {"precision": precision})
        epochs = EPOCHS.get(precision, 1)
        options |= {"learning_rate": RATE} if is_keras and epochs > 1 else {}
        history = task.fit(examples, examples, epochs=epochs, patience=epochs, **options)
    except (TypeError, ValueError) as error:
        if isinstance(error, TypeError) and "has no option" not in str(error):
            raise
        return " ".join(str(error).split())[:MOST]
    history = history or {}
    history.pop("gradient_norm", None)  # NaN where no step of an epoch is finite
    assert all(math.isfinite(value) for values in history.values() for value in values), history
    if epochs > 1:
        losses = np.split(np.array(history["val_loss"]), 3)
        assert losses[-1].mean() < losses[0].mean(), history
    if is_keras:
        assert all(np.isfinite(weight).all() for weight in task.model.get_weights()), name
    return "yes"


def _others():
    from tests.recorded.record import OTHERS  # whose examples use TensorFlow, which then cannot be split

    return OTHERS


def on_two_devices(names):
    """{task: "yes" or why not} on two replicas, which need a process of their own."""
    command = [sys.executable, "-m", "tests.recorded.trainings", "--devices", *names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def main(names):
    if names[:1] == ["--devices"]:
        print(json.dumps({name: trained(name, devices=STRATEGY) for name in names[1:]}))
        return
    kept = json.loads(KEPT.read_text("utf-8")) if names else {}
    names = names or LEARN
    replicated = on_two_devices(names)
    for name in names:
        kept[name] = {precision: trained(name, precision) for precision in PRECISIONS}
        kept[name][STRATEGY] = replicated[name]
        print(f"{name}: {kept[name]}", flush=True)
    KEPT.write_text(json.dumps(kept, ensure_ascii=False, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
