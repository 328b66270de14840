"""What a device computes: exactness on one and two, 16 bits, fused functions, and memory by length.

    python -m benchmarks.gpu --device gpu

Each part is a process of its own. Exactness trains one model on the CPU, on the first device and on two
(halves of it where there is no second): the largest difference of any weight. 16 bits and fused functions:
milliseconds of a training step, and how far its loss is from float32's, or from the plain functions'.
Memory: the peak of a training step of one attention layer. Without a GPU the same runs on the CPU, smaller.
"""

import argparse
import sys
import time

import numpy as np

from benchmarks.memory import forget_peak, resident
from benchmarks.rounds import Worker, parse, record

WARM, STEPS = 2, 5
POLICIES = ("float32", "mixed_bfloat16", "mixed_float16")


def encoder(size="mini"):
    """A BERT with a layer of three classes, without dropout."""
    import keras

    import keras_tfm

    keras.utils.set_random_seed(0)
    sizes = {"vocabulary_size": 1_000, "dropout": 0.0, "attention_dropout": 0.0}
    backbone = keras_tfm.models.BERT.from_size(size, **sizes)
    x = keras.layers.Dense(3, dtype="float32")(backbone.output["pooled_output"])
    return keras_tfm.Model(backbone.input, x)


def texts(count, length):
    """Token ids of texts of various lengths, and their classes."""
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 1_000, (count, length)).astype("int32")
    mask = np.arange(length) < rng.integers(2, length + 1, (count, 1))
    inputs = {"token_ids": ids * mask, "padding_mask": mask, "segment_ids": np.zeros_like(ids)}
    return inputs, rng.integers(0, 3, count)


def compiled(model, jit=False):
    """The `model`, ready to be trained."""
    import keras

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, jit_compile=jit)
    return model


def timed(model, data):
    """(Milliseconds of a training step, the loss of the last one)."""
    for _ in range(WARM):
        model.train_on_batch(*data)
    began = time.perf_counter()
    for _ in range(STEPS):
        loss = float(np.ravel(model.train_on_batch(*data))[0])
    return 1_000 * (time.perf_counter() - began) / STEPS, loss


def devices():
    """Training on the CPU, on the first device, and on two, with an uneven last batch."""
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    physical = tf.config.list_physical_devices(kind)
    if len(physical) == 1:
        part = tf.config.LogicalDeviceConfiguration(memory_limit=4_096 if kind == "GPU" else None)
        tf.config.set_logical_device_configuration(physical[0], [part, part])
    names = [device.name for device in tf.config.list_logical_devices(kind)][:2]
    weights = {}
    for label, chosen in {"the CPU": ["CPU:0"], "one": names[:1], "two": names}.items():
        strategy = tf.distribute.MirroredStrategy(chosen, tf.distribute.ReductionToOneDevice())
        with strategy.scope():
            model = compiled(encoder("tiny"))
        model.fit(*texts(50, 24), batch_size=12, epochs=2, shuffle=False, verbose=0)
        weights[label] = model.get_weights()
    halves = "" if len(physical) > 1 else ", halves of one"
    for label, other, case in (("one", "the CPU", f"one {kind}"), ("two", "one", f"two {kind}s{halves}")):
        pairs = zip(weights[label], weights[other], strict=True)
        difference = max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)
        yield "exactness", f"{case}, from {other}", difference, "of a weight"


def precision():
    """Training in 16 bits beside 32."""
    import keras

    data, losses = texts(16, 128), {}
    for policy in POLICIES:
        keras.config.set_dtype_policy(policy)
        duration, losses[policy] = timed(compiled(encoder()), data)
        yield "precision", policy, duration, "ms a step"
        yield "precision", f"{policy}, the loss", abs(losses[policy] - losses["float32"]), "from float32's"


def fused():
    """Training with plain functions, with functions that XLA compiles one by one, and with XLA for all."""
    from keras_tfm.jit import fusing

    data, losses = texts(16, 128), {}
    for name in ("plain", "fused", "XLA"):
        with fusing(name == "fused"):
            duration, losses[name] = timed(compiled(encoder(), name == "XLA"), data)
        yield "fused functions", name, duration, "ms a step"
        yield (
            "fused functions",
            f"{name}, the loss",
            abs(losses[name] - losses["plain"]),
            "from plain ones'",
        )


def memory():
    """The peak of a training step by the length of a text."""
    import keras
    import tensorflow as tf

    import keras_tfm
    from keras_tfm import layers

    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    kinds = {
        "plain": lambda: layers.MultiHeadAttention(8),
        "blocks": lambda: layers.BlockwiseAttention(8, block_size=512),
    }
    for length in (1_024, 4_096, 8_192) if on_gpu else (512, 1_024):
        for name, make in kinds.items():
            inputs = keras.Input((None, 512))
            model = keras_tfm.Model(inputs, make()(inputs))
            model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=True)
            x = np.random.default_rng(0).normal(size=(1, length, 512)).astype("float32")
            model.train_on_batch(x, x)
            if on_gpu:
                tf.config.experimental.reset_memory_stats("GPU:0")
                model.train_on_batch(x, x)
                peak = tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**20
            else:
                forget_peak()
                before = resident("VmRSS")
                model.train_on_batch(x, x)
                peak = resident("VmHWM") - before
            yield "memory", f"{name}, {length:,} tokens", peak, "MiB"


PARTS = {part.__name__: part for part in (devices, precision, fused, memory)}


def main():
    parser = argparse.ArgumentParser("benchmarks.gpu", description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parse(parser)
    if options.worker:
        for row in PARTS[options.worker]():
            print("\t".join(map(str, row)), flush=True)
        return False
    failed = False
    for name in options.parts:
        worker = Worker("benchmarks.gpu", name)
        for line in worker.process.stdout:
            case, row, value, unit = line.rstrip("\n").split("\t")
            print(f"{case:16} {row:40} {float(value):12.4g} {unit}", flush=True)
            record(case, row, float(value), unit)
        worker.close()
        failed |= worker.process.returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
