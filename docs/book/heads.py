"""Why several heads: two look-ups at once, by one head and by two of half the width.

    python docs/book/heads.py

88 seconds of CPU time. A layer of attention reads 16 letters and says for each which letter stands before
it and which behind it. Expected: two heads learn both, one head does not, although it has as many weights.
heads.png shows where the heads looked.
"""

import keras
import numpy as np

from keras_tfm import layers
from keras_tfm.visualize import plots, record_attention

LETTERS, LENGTH, DIM = 20, 16, 64


def draw(count, seed):
    """Letters (B, T), and the ones before and behind each, (B, T, 2); the row is a ring."""
    letters = np.random.default_rng(seed).integers(0, LETTERS, (count, LENGTH))
    return letters, np.stack([np.roll(letters, 1, axis=1), np.roll(letters, -1, axis=1)], axis=-1)


def model_of(num_heads):
    """(B, T) -> (B, T, 2, LETTERS): one layer of attention, and a linear layer for the answers."""
    letters = keras.Input((LENGTH,), dtype="int32")
    x = layers.TokenAndPositionEmbedding(LETTERS, LENGTH, DIM)(letters)
    x = layers.MultiHeadAttention(num_heads)(x)
    logits = keras.layers.Dense(2 * LETTERS)(x)
    return keras.Model(letters, keras.layers.Reshape((LENGTH, 2, LETTERS))(logits))


def measure(epochs=30):
    """{number of heads: (model, weights, accuracy of both answers together on new texts)}."""
    found = {}
    for num_heads in (1, 2):
        keras.utils.set_random_seed(0)
        model = model_of(num_heads)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(5e-3), loss)
        model.fit(*draw(8_000, 1), batch_size=100, epochs=epochs, verbose=0)
        letters, expected = draw(1_000, 2)
        answers = model.predict(letters, verbose=0).argmax(axis=-1)
        found[num_heads] = model, model.count_params(), (answers == expected).all(axis=-1).mean()
    return found


def main(picture="heads.png"):
    found = measure()
    for num_heads, (_, weights, accuracy) in found.items():
        print(f"heads {num_heads}  weights {weights:,}  both letters right {accuracy:.1%}")
    letters = draw(1, 3)[0]
    first = None
    for place, (num_heads, head) in enumerate(((1, 0), (2, 0), (2, 1)), start=1):
        with record_attention(found[num_heads][0]) as recorded:
            found[num_heads][0](letters)
        (weights,) = recorded.values()
        axes = (
            plots.new_axes(None, (9, 3.2), 1, 3, 1)
            if first is None
            else first.figure.add_subplot(1, 3, place)
        )
        first = first or axes
        axes.imshow(np.asarray(weights)[0, head], cmap="Blues", vmin=0, vmax=1)
        axes.set_title("the only head" if num_heads == 1 else f"head {head + 1} of 2", fontsize=10)
        axes.set(xlabel="looked at", ylabel="position" if place == 1 else "")
    plots.save(first, picture, dpi=100)


if __name__ == "__main__":
    main()
