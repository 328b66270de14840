"""What grows with the text and with the model: steps that wait for one another, seconds, and what is learnt.

    python docs/book/scale.py

Some minutes. It counts how many products of matrices an LSTM and attention have to do one after the other for
texts of growing length, and measures how long they take. Then GPTs of five widths learn the same letters for
the same number of steps; scale.png shows their losses against their weights, and the power law of these.
"""

import time

import keras
import letters
import numpy as np
import tensorflow as tf

from keras_tfm import heads, layers, models, training
from keras_tfm.visualize import plots

DIM, LENGTHS, ROUNDS = 64, (16, 64, 256), 20
WIDTHS, STEPS, LENGTH, BATCH = (8, 16, 32, 64, 128), 1_000, 64, 64
BITS = 1 / np.log(2)  # in a nat


def readers(length):
    """Functions (1, length, DIM) -> (1, length, DIM)."""
    recurrent = keras.layers.LSTM(DIM, return_sequences=True, unroll=True)
    attention = layers.MultiHeadAttention(num_heads=4)
    made = {}
    for name, layer in {"LSTM": recurrent, "attention": attention}.items():
        layer(np.zeros((1, length, DIM), "float32"))
        signature = [tf.TensorSpec((1, length, DIM), tf.float32)]
        made[name] = tf.function(layer, autograph=False, input_signature=signature).get_concrete_function()
    return made


def chain(function):
    """The most products of matrices of a graph of which each needs the one before it."""
    longest = {}
    for operation in function.graph.get_operations():  # which stand in an order in which they can be done
        before = max((longest[x.op.name] for x in operation.inputs), default=0)
        longest[operation.name] = before + ("MatMul" in operation.type)
    return max(longest.values())


def seconds(function, length):
    """The least of some rounds."""
    x, taken = tf.zeros((1, length, DIM)), []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        function(x)
        taken.append(time.perf_counter() - began)
    return min(taken)


def waiting():
    """{name: [(length, products in a row, seconds)]}."""
    found = {}
    for length in LENGTHS:
        for name, function in readers(length).items():
            found.setdefault(name, []).append((length, chain(function), seconds(function, length)))
    return found


def loss_of(width, steps=STEPS):
    """(Weights, without the vectors of letters and places; the loss in bits a letter on held-out text)."""
    train, test = letters.read()
    keras.utils.set_random_seed(1)
    size = {"num_layers": 2, "dim": width, "num_heads": max(1, width // 16), "dropout": 0.0}
    sizes = size | {"embedding_dropout": 0.0, "attention_dropout": 0.0}
    gpt = models.GPT2.from_size("tiny", vocabulary_size=letters.VOCABULARY, max_length=LENGTH, **sizes)
    model = heads.LanguageModel(gpt)
    schedule = training.WarmupCosineSchedule(
        peak=0.02 / width**0.5, warmup_steps=steps // 20, total_steps=steps
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(schedule), loss, jit_compile=False)
    texts = letters.windows(train, LENGTH + 1, steps * BATCH, 0)
    model.fit({"token_ids": texts[:, :-1]}, texts[:, 1:], batch_size=BATCH, verbose=0)
    texts = letters.windows(test, LENGTH + 1, 1_000, 0)
    nats = model.evaluate({"token_ids": texts[:, :-1]}, texts[:, 1:], batch_size=500, verbose=0)
    return model.count_params() - (letters.VOCABULARY + LENGTH) * width, nats * BITS


def power_law(weights, losses):
    """(N_c, alpha) of the loss (N_c / N) ** alpha, a line through the logarithms."""
    slope, height = np.polyfit(np.log(weights), np.log(losses), 1)
    return np.exp(height / -slope), -slope


def main(picture="scale.png"):
    for name, rows in waiting().items():
        for length, products, taken in rows:
            print(f"{name:<9} {length:4} words: {products:3} products in a row, {1000 * taken:.2f} ms")
    found = []
    for width in WIDTHS:
        found.append(loss_of(width))
        print(f"width {width:3}: {found[-1][0]:7,} weights, {found[-1][1]:.2f} bits a letter", flush=True)
    weights, losses = np.array(found).T
    critical, alpha = power_law(weights, losses)
    print(f"alpha {alpha:.3f}: ten times the weights leave {10**-alpha:.0%} of the loss")
    curves = {"GPTs": (weights, losses), "power law": (weights, (critical / weights) ** alpha)}
    axes = plots.plot_curves(curves, log=True, xlabel="weights", ylabel="loss in bits per letter")
    axes.set(xscale="log")
    plots.save(axes, picture, dpi=100)


if __name__ == "__main__":
    main()
