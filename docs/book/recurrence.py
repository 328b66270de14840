"""How far back a change reaches: through a simple recurrent cell, a GRU, an LSTM and attention.

    python docs/book/recurrence.py

Some seconds. It prints how much a small change of the k-th of 40 inputs changes the last output, for
untrained layers of 16 numbers, and draws it, recurrence.png. Expected: the simple cell's falls by about the
same factor at each step, the gated cells' by factors nearer to 1, and attention's does not depend on the
distance.
"""

import keras
import numpy as np

from keras_tfm import layers, training
from keras_tfm.visualize import plots

LENGTH, DIM, DRAWS = 40, 16, 1
DISTANCES = (0, 5, 10, 20, 30)


def models():
    """Layers (1, T, D) -> (1, T, D) with fresh weights."""
    cells = {
        "simple cell": keras.layers.SimpleRNNCell(
            DIM, recurrent_initializer=keras.initializers.Orthogonal(0.9)
        ),
        "GRU": keras.layers.GRUCell(DIM),
        "LSTM": keras.layers.LSTMCell(DIM),
    }
    recurrent = {name: keras.layers.RNN(cell, return_sequences=True) for name, cell in cells.items()}
    return recurrent | {"attention": layers.MultiHeadAttention(num_heads=1)}


def measure():
    """{name: the norm of d y_T / d x_k by the distance T - k = 0 .. T - 1}, means over draws."""
    keras.utils.set_random_seed(0)
    rng, found = np.random.default_rng(0), {}
    for _ in range(DRAWS):
        x = rng.normal(size=(LENGTH, DIM)).astype("float32")
        for name, model in models().items():
            by_distance = training.norms(training.input_jacobians(model, x))[::-1]
            found.setdefault(name, []).append(by_distance)
    return {name: np.exp(np.log(values).mean(axis=0)) for name, values in found.items()}


def main(picture="recurrence.png"):
    found = measure()
    print(f"{'distance':<12}" + "".join(f"{distance:>10}" for distance in DISTANCES))
    for name, values in found.items():
        print(f"{name:<12}" + "".join(f"{values[distance]:10.1e}" for distance in DISTANCES))
    axes = plots.plot_curves(
        found, log=True, xlabel="distance from the last position", ylabel="norm of the derivative"
    )
    plots.save(axes, picture, dpi=110)


if __name__ == "__main__":
    main()
