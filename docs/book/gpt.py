"""A small GPT: each letter from those before it, all of them in one pass.

    python docs/book/gpt.py

156 seconds of CPU time. It learns a text letter by letter, prints how sure it is at the first and at later
places, what it writes at three temperatures, and how long one masked pass takes beside a pass for each
prefix. gpt.png shows the loss by place: what stands before a letter helps to predict it.
"""

import time

import keras
import letters
import numpy as np

from keras_tfm import generation, heads, models
from keras_tfm.visualize import plots

LENGTH = 64
BITS = 1 / np.log(2)  # in a nat


def model_of():
    """A GPT-2 of 2 layers, and its head: (B, T) -> (B, T, VOCABULARY)."""
    size = {"num_layers": 2, "dim": 96, "num_heads": 4, "dropout": 0.0}
    sizes = size | {"embedding_dropout": 0.0, "attention_dropout": 0.0}
    return heads.LanguageModel(
        models.GPT2.from_size("tiny", vocabulary_size=letters.VOCABULARY, max_length=LENGTH, **sizes)
    )


def learn(epochs=7, count=4_000):
    """The model, and the loss (T,) in bits at each place of held-out texts."""
    train, test = letters.read()
    keras.utils.set_random_seed(1)  # with 0 it looks at one letter alone for all of these steps
    model = model_of()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(2e-3), loss)
    for epoch in range(epochs):
        texts = letters.windows(train, LENGTH + 1, count, epoch)
        model.fit({"token_ids": texts[:, :-1]}, texts[:, 1:], batch_size=100, verbose=0)
    texts = letters.windows(test, LENGTH + 1, 1_000, 0)
    logits = model.predict({"token_ids": texts[:, :-1]}, batch_size=500, verbose=0)
    nats = keras.losses.sparse_categorical_crossentropy(texts[:, 1:], logits, from_logits=True)
    return model, np.asarray(nats).mean(axis=0) * BITS


def one_pass(model):
    """(Largest difference of the logits, how many times longer) of a pass for each prefix beside one masked
    pass.
    """
    text = letters.windows(letters.read()[1], LENGTH, 1, 0)
    began = time.perf_counter()
    whole = np.asarray(model({"token_ids": text}))[0]  # (T, V)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    each = [np.asarray(model({"token_ids": text[:, :end]}))[0, -1] for end in range(1, LENGTH + 1)]
    return np.abs(whole - each).max(), (time.perf_counter() - began) / seconds


def write(model, prompt, temperature):
    """The prompt, and what the model goes on with."""
    options = generation.DecodingOptions(max_new_tokens=LENGTH - len(prompt), temperature=temperature, seed=1)
    written = options.decoder(model)(letters.as_ids(prompt)[None].astype("int32"))  # (1, T)
    return letters.as_text(np.asarray(written)[0])


def main(picture="gpt.png"):
    model, bits = learn()
    for place in (0, 1, 3, 7, 15, 31, 63):
        print(f"after {place + 1:2} letters {bits[place]:.2f} bits")
    difference, times = one_pass(model)
    print(f"a pass for each prefix: {times:.0f} times as long, logits differ by {difference:.0e}")
    for temperature in (0.1, 0.7, 1.5):
        print(f"temperature {temperature}: {write(model, 'the name of ', temperature)}")
    axes = plots.plot_curves({"held-out text": (np.arange(1, LENGTH + 1), bits)})
    axes.set(xlabel="letters before the predicted one", ylabel="loss in bits per letter")
    plots.save(axes, picture, dpi=100)


if __name__ == "__main__":
    main()
