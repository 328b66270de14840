"""An image as a sequence of patches: what the patches' positions are good for.

    python docs/book/vit.py

50 seconds of CPU time. Two small Vision Transformers learn handwritten digits, with positions and without,
and are asked about held-out digits and about the same with their patches shuffled. vit.png shows a digit,
its patches shuffled, and the answers.
"""

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from keras_tfm import layers
from keras_tfm.visualize import plots

SIDE, PATCH, DIM = 8, 2, 64
GRID = SIDE // PATCH


def digits():
    """Images (B, 8, 8, 1) from -1 to 1 and their labels, to learn from and held out."""
    found = load_digits()
    images = (found.images[..., None] / 8 - 1).astype("float32")
    return train_test_split(images, found.target, test_size=0.2, random_state=0, stratify=found.target)


def model_of(has_positions):
    """(B, 8, 8, 1) -> (B, 10): patches, positions, blocks, the mean of all patches."""
    images = keras.Input((SIDE, SIDE, 1))
    patches = layers.PatchEmbedding(DIM, PATCH)(images)  # (B, 4, 4, D)
    x = keras.layers.Reshape((GRID * GRID, DIM))(patches)  # (B, N, D)
    if has_positions:
        x = layers.PositionEmbedding(
            GRID * GRID, keras.initializers.RandomNormal(stddev=0.2), name="position"
        )(x)
    x = layers.TransformerEncoder(
        2, num_heads=4, intermediate_dim=128, activation="gelu", normalize_first=True
    )(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(images, keras.layers.Dense(10)(x))


def shuffled(images, seed=0):
    """The patches of each image in another order, the same for all."""
    order = np.random.default_rng(seed).permutation(GRID * GRID)
    rows = images.reshape(-1, GRID, PATCH, GRID, PATCH).swapaxes(2, 3).reshape(-1, GRID * GRID, PATCH, PATCH)
    cells = rows[:, order].reshape(-1, GRID, GRID, PATCH, PATCH).swapaxes(2, 3)
    return cells.reshape(-1, SIDE, SIDE, 1)


def measure(epochs=15):
    """{name: (model, accuracy on held-out digits, and on these with shuffled patches)}."""
    images, test_images, labels, test_labels = digits()
    found = {}
    for name, has_positions in (("with positions", True), ("without positions", False)):
        keras.utils.set_random_seed(0)
        model = model_of(has_positions)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(1e-3), loss)
        model.fit(images, labels, batch_size=64, epochs=epochs, verbose=0)
        shares = [
            float((model.predict(some, verbose=0).argmax(axis=-1) == test_labels).mean())
            for some in (test_images, shuffled(test_images))
        ]
        found[name] = model, *shares
    return found


def main(picture="vit.png"):
    found = measure()
    for name, (_, whole, mixed) in found.items():
        print(f"{name:<18} {whole:.1%} of the digits, {mixed:.1%} of the digits with shuffled patches")
    draw(digits()[1][:1], {name: shares for name, (_, *shares) in found.items()}, picture)


def draw(image, found, picture):
    """A digit, the same with its patches shuffled, and how many of either kind are known."""
    first = plots.new_axes(None, (9, 3.2), 1, 3, 1)
    shown = {"a digit": image, "its patches shuffled": shuffled(image)}
    for place, (title, some) in enumerate(shown.items(), start=1):
        axes = first if place == 1 else first.figure.add_subplot(1, 3, place)
        axes.imshow(some[0, ..., 0], cmap="Greys")
        borders = np.arange(1.5, SIDE - 1, PATCH)
        axes.set(xlabel=title, xticks=borders, yticks=borders, xticklabels=[], yticklabels=[])
        axes.grid(color="#0072B2", lw=1)
    axes = first.figure.add_subplot(1, 3, 3)
    for number, (name, shares) in enumerate(found.items()):
        axes.bar(np.arange(2) + 0.4 * number, shares, width=0.36, label=name)
    axes.set(ylim=(0, 1), ylabel="share of right answers")
    axes.set_xticks([0.2, 1.2], ["as they are", "shuffled"])
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False, fontsize=8)
    plots.save(first, picture, dpi=100)


if __name__ == "__main__":
    main()
