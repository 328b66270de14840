"""Writing letters backwards, by a recurrent encoder-decoder with attention and without.

    python docs/book/alignment.py

Two models learn to reverse texts of 4 to 12 letters, in 348 seconds of CPU time together. It prints the
share of letters that stand in their places, by the texts' lengths, and draws what the one with attention
looked at, alignment.png.
"""

import numpy as np

from keras_tfm.tasks import Translator
from keras_tfm.visualize import look, plots

LETTERS = np.array(list("abcdefghijkl"))
LENGTHS = (4, 12)
BINS = ((4, 6), (7, 9), (10, 12))


def draw(count, seed, shortest=LENGTHS[0], longest=LENGTHS[1]):
    """Pairs of texts, letters with spaces between, and the same backwards."""
    rng = np.random.default_rng(seed)
    texts = [rng.choice(LETTERS, length) for length in rng.integers(shortest, longest + 1, count)]
    return [" ".join(text) for text in texts], [" ".join(text[::-1]) for text in texts]


def accuracy(translator, sources, targets):
    """The share of the targets' letters that stand in their places."""
    right = total = 0
    for answer, target in zip(translator.generate(sources), targets, strict=True):
        right += sum(map(str.__eq__, answer.split(), target.split()))
        total += len(target.split())
    return right / total


def learn(attention, epochs):
    """A translator that has learnt for so many epochs of 100 batches."""
    train = draw(20_000, 1)
    translator = Translator.from_pairs(
        train,
        family="recurrent",
        size="tiny",
        tokenizer="wordpiece",
        max_length=16,
        attention=attention,
        dropout=0.0,
    )
    options = {"learning_rate": 4e-3, "schedule": "inverse-root", "label_smoothing": 0.0, "patience": None}
    translator.fit(train, epochs=epochs, epoch_batches=100, jit=False, **options)
    return translator


def measure(epochs=5):
    """{attention: (translator, [accuracy by `BINS`])}."""
    found = {}
    for attention in ("additive", "none"):
        translator = learn(attention, epochs)
        found[attention] = translator, [accuracy(translator, *draw(300, 2, *ends)) for ends in BINS]
    return found


def main(picture="alignment.png"):
    found = measure()
    print("letters  " + "".join(f"{f'{least} to {most}':>10}" for least, most in BINS))
    for name, (_, values) in found.items():
        print(f"{name:<9}" + "".join(f"{value:10.1%}" for value in values))
    view = look(found["additive"][0], "a b c d e f g h").of("cross")[0]
    axes = plots.plot_alignment(view.weights[0], view.query_tokens, view.key_tokens)
    axes.set(xlabel="read", ylabel="written so far: what comes next?")
    plots.save(axes, picture, dpi=90)


if __name__ == "__main__":
    main()
