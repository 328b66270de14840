"""How long a checkpoint stalls training, beside copying its bytes once.

    python -m benchmarks.checkpoint [--parameters 100000000] [--rounds 6]

A model of that many weights trains with Adam, so that a checkpoint holds three times as much. What `fit`
waits for is the copy of the arrays; hashing, writing and forcing them to the disk run beside the next steps.
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np

from benchmarks.rounds import parse, record

EVERY = 2  # steps from checkpoint to checkpoint


def main():
    parser = argparse.ArgumentParser("benchmarks.checkpoint", description=__doc__.partition("\n")[0])
    parser.add_argument("--parameters", type=int, default=100_000_000)
    parser.add_argument("--rounds", type=int, default=6)
    options = parse(parser)
    import keras
    import tensorflow as tf

    import keras_tfm
    from keras_tfm.training import Checkpoint

    class Timed(Checkpoint):
        """Measures what the callback takes of each step, and copying the same bytes right after it."""

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.stalls, self.copies, self.writes, self.steps = [], [], [], []

        def on_train_batch_begin(self, batch, logs=None):
            self._finish_writing()  # the first, of step 0
            self.began = time.perf_counter()

        def on_train_batch_end(self, batch, logs=None):
            began = time.perf_counter()
            self.steps.append(began - self.began)
            super().on_train_batch_end(batch, logs)
            if self.step % EVERY:
                return
            self.stalls.append(time.perf_counter() - began)
            self._finish_writing()  # alone, so that the copy below is measured in quiet
            self.writes.append(time.perf_counter() - began)
            arrays = [np.asarray(variable) for variable in self._variables("model", "optimizer").values()]
            began = time.perf_counter()
            copies = [array.copy() for array in arrays]
            self.copies.append(time.perf_counter() - began)
            self.bytes = sum(array.nbytes for array in copies)

    width = round(options.parameters**0.5)
    inputs = keras.Input((width,))
    model = keras_tfm.Model(inputs, keras.layers.Dense(width, use_bias=False)(inputs))
    model.compile("adam", "mse")
    ones = tf.ones((1, width))
    dataset = tf.data.Dataset.from_tensors((ones, ones)).repeat()
    with tempfile.TemporaryDirectory(dir=pathlib.Path.cwd()) as folder:
        checkpoint = Timed(folder, every_steps=EVERY, keep=1)
        model.fit(
            dataset, steps_per_epoch=EVERY * options.rounds, verbose=0, shuffle=False, callbacks=[checkpoint]
        )
    ratios = [stall / copy for stall, copy in zip(checkpoint.stalls, checkpoint.copies, strict=True)]
    print(f"a checkpoint of {width * width:,} weights holds {checkpoint.bytes / 2**20:,.0f} MiB")
    for name, values in (
        ("a step, s", checkpoint.steps[1:]),
        ("copying the bytes, s", checkpoint.copies),
        ("training stands still, s", checkpoint.stalls),
        ("until it is on the disk, s", checkpoint.writes),
        ("stall / copying", ratios),
    ):
        print(f"  {name:28} {np.median(values):.2f}  ({min(values):.2f} to {max(values):.2f})")
    record("a checkpoint", "stall", np.median(checkpoint.stalls), "s", ratios, "stall / copying the bytes")


if __name__ == "__main__":
    main()
