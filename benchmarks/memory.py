"""What attention by blocks and rematerialised blocks save in memory, and what they cost in time.

    python -m benchmarks.memory [--length 8192]

Attention: a training step (loss, gradients, SGD through `fit`'s own path) of one layer of self-
attention, batch of one. Rematerialisation: the same of a stack of blocks. Each row is a process of its
own. "MiB" is the most that the process ever held over what it held after its imports, in its training
steps; "compiling" the same while XLA compiled, which holds the compiler's own memory too (it grows with
the program, not with the data).
"""

import argparse
import ctypes
import os
import subprocess
import sys
import time

import numpy as np

from benchmarks.rounds import parse, record

WIDTH, HEADS, BLOCK = 512, 8, 512
STACK = {"layers": 12, "batch_size": 16, "length": 512, "width": 256}


def resident(name):
    """A line of /proc/self/status, in MiB: "VmRSS" now, "VmHWM" at its peak."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def forget_peak():
    """Give freed memory back to the system, and let the peak be what is held now."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def attention(kind, length, dropout, causal):
    """A model of one attention layer, and the shape of its input."""
    import keras

    import keras_tfm
    from keras_tfm import layers

    x = keras.Input((None, WIDTH))
    if kind == "blocks":
        layer = layers.BlockwiseAttention(HEADS, block_size=BLOCK, dropout=dropout)
    else:
        layer = layers.MultiHeadAttention(HEADS, dropout=dropout)
    return keras_tfm.Model(x, layer(x, causal=causal)), (1, length, WIDTH)


def stack(kind, dropout):
    """A model of an encoder, and the shape of its input."""
    import keras

    import keras_tfm
    from keras_tfm import layers

    x = keras.Input((None, STACK["width"]))
    encoder = layers.TransformerEncoder(STACK["layers"], 4, 4 * STACK["width"], dropout=dropout)
    if kind == "rematerialised":
        layers.rematerialize(encoder)
    return keras_tfm.Model(x, encoder(x)), (STACK["batch_size"], STACK["length"], STACK["width"])


def run_worker(options):
    """Print the peaks while compiling and while training, and the seconds of a step."""
    import keras
    import tensorflow  # noqa: F401

    if options.worker in ("blocks", "plain"):
        model, shape = attention(options.worker, options.length, options.dropout, options.causal)
    else:
        model, shape = stack(options.worker, options.dropout)
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=not options.no_jit)
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    forget_peak()
    before = resident("VmRSS")
    model.train_on_batch(x, x)
    compiling = resident("VmHWM") - before
    forget_peak()
    seconds = []
    for _ in range(options.steps):
        began = time.perf_counter()
        model.train_on_batch(x, x)
        seconds.append(time.perf_counter() - began)
    print(compiling, resident("VmHWM") - before, min(seconds))


def measure(kind, *arguments):
    """The three numbers of `run_worker` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.memory", "--worker", kind, *map(str, arguments)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [float(x) for x in output.split()]


def compare(title, kinds, *arguments):
    """Print a row for each of two kinds, and how the second compares with the first."""
    print(f"\n{title}\n{'':16}{'MiB':>9}{'compiling':>11}{'s a step':>10}", flush=True)
    rows = [measure(kind, *arguments) for kind in kinds]
    for kind, (compiling, training, seconds) in zip(kinds, rows, strict=True):
        print(f"{kind:16}{training:9,.0f}{compiling:11,.0f}{seconds:10.2f}")
    memory, duration = (rows[1][i] / rows[0][i] for i in (1, 2))
    print(f"{'ratio':16}{memory:9.3f}{rows[1][0] / rows[0][0]:11.3f}{duration:10.2f}", flush=True)
    record(title, f"memory, {kinds[1]}", rows[1][1], "MiB", [memory], f"this / {kinds[0]}")
    record(title, f"time, {kinds[1]}", rows[1][2], "s a step", [duration], f"this / {kinds[0]}")


def main():
    parser = argparse.ArgumentParser("benchmarks.memory", description=__doc__.partition("\n")[0])
    parser.add_argument("--length", type=int, default=8192, help="of the long sequence")
    parser.add_argument("--steps", type=int, default=3, help="steps timed, of which the fastest counts")
    parser.add_argument("--worker", help=argparse.SUPPRESS)  # and what a row of the tables is about
    parser.add_argument("--dropout", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--causal", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--no-jit", action="store_true", help=argparse.SUPPRESS)
    options = parse(parser, has_gpu_part=False)
    if options.worker:
        return run_worker(options)
    steps = ("--steps", options.steps)
    attentions, stacks = ("plain", "blocks"), ("plain stack", "rematerialised")
    for length, more in (
        (2048, ()),
        (2048, ("--dropout", 0.1)),
        (2048, ("--causal",)),
        (options.length, ()),
        (options.length, ("--causal",)),
        (options.length, ("--no-jit",)),
    ):
        title = f"attention, T = {length:,}, {HEADS} heads of {WIDTH // HEADS} {' '.join(map(str, more))}"
        compare(title, attentions, "--length", length, *more, *steps)
    shape = "{layers} blocks, B = {batch_size}, T = {length}, D = {width}".format(**STACK)
    for more in ((), ("--dropout", 0.1), ("--dropout", 0.1, "--no-jit")):
        compare(f"{shape} {' '.join(map(str, more))}", stacks, *more, *steps)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
