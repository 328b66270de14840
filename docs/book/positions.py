"""Positions as numbers, as shares of the length, as sines, as learned vectors: can attention find a
neighbour?

    python docs/book/positions.py

About a minute on 2 cores. A layer of attention says for each of up to 24 letters which one stands before
it. It learns on texts of 12 to 24 letters, and is asked about texts of 8, 16, 24 and 48 letters.
positions.png shows the answers.
"""

import keras
import numpy as np
from keras import ops

from keras_tfm import layers
from keras_tfm.visualize import plots

LETTERS, DIM, LONGEST = 12, 64, 24
LENGTHS = (8, 16, 24, 48)


def draw(count, length, seed):
    """Letters (B, T), and the letter before each; the first letter stands before itself."""
    letters = np.random.default_rng(seed).integers(0, LETTERS, (count, length))
    return letters, np.concatenate([letters[:, :1], letters[:, :-1]], axis=1)


class Numbers(layers.Layer):
    """x + t w, the number t of each position times a learned vector; with `share`, t / T."""

    def __init__(self, share=False, **kwargs):
        super().__init__(**kwargs)
        self.share = share

    def build(self, x_shape):
        self.direction = self.add_weight((x_shape[-1],), "random_normal", name="direction")
        self.built = True

    def call(self, x):
        """(B, T, D) -> (B, T, D)."""
        positions = ops.arange(ops.shape(x)[1], dtype="float32")
        if self.share:
            positions = positions / ops.cast(ops.shape(x)[1], "float32")
        return x + positions[:, None] * self.direction


ENCODINGS = {
    "none": keras.layers.Identity,
    "numbers": Numbers,
    "shares of the length": lambda: Numbers(share=True),
    "sines": layers.SinePositionEncoding,
    "learned vectors": lambda: layers.PositionEmbedding(max(LENGTHS)),
}


def model_of(position):
    """(B, T) -> (B, T, LETTERS)."""
    letters = keras.Input((None,), dtype="int32")
    x = position(layers.TokenEmbedding(LETTERS, DIM)(letters))
    x = layers.MultiHeadAttention(num_heads=1)(x)
    return keras.Model(letters, keras.layers.Dense(LETTERS)(x))


def measure(rounds=8):
    """{encoding: [accuracy at each of `LENGTHS`]}."""
    found = {}
    for name, make in ENCODINGS.items():
        keras.utils.set_random_seed(0)
        model = model_of(make())
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(3e-3), loss)
        for number in range(rounds):
            for length in (12, 16, 20, LONGEST):
                model.fit(*draw(2_000, length, 100 * number + length), batch_size=100, verbose=0)
        found[name] = []
        for length in LENGTHS:
            letters, expected = draw(500, length, 1)
            answers = model.predict(letters, verbose=0).argmax(axis=-1)
            found[name].append((answers == expected)[:, 1:].mean())
    return found


def main(picture="positions.png"):
    found = measure()
    print(f"{'length':<22}" + "".join(f"{length:>8}" for length in LENGTHS))
    for name, values in found.items():
        print(f"{name:<22}" + "".join(f"{value:8.1%}" for value in values))
    curves = {name: (LENGTHS, values) for name, values in found.items()}
    axes = plots.plot_curves(curves, xlabel="length of the text", ylabel="share of right answers")
    axes.axvspan(12, LONGEST, color="#EEEEEE", zorder=0)
    axes.set(ylim=(0, 1.05))
    plots.save(axes, picture, dpi=100)


if __name__ == "__main__":
    main()
