"""What a small Transformer looks at while it writes a date in numbers.

    make demo                               # trains it, some minutes: runs/dates
    python docs/book/encoder_decoder.py

Some seconds. It prints some answers of the demo's model and draws the weights of its last decoder block's
cross-attention, the mean of the heads, encoder_decoder.png.
"""

from keras_tfm import tasks
from keras_tfm.visualize import look, plots

DATES = ("Sunday, July 15, 1984", "12 juin 1931", "Πέμπτη 5 Μαρτίου 1987", "1987年3月5日")


def alignment(run="runs/dates", text=DATES[0]):
    """The weights (T, S) of what is written on what is read, and the tokens of either."""
    last = look(tasks.load(run), text).of("cross")[-1]
    return last.weights.mean(axis=0), last.query_tokens, last.key_tokens


def main(picture="encoder_decoder.png", run="runs/dates"):
    translator = tasks.load(run)
    for text, answer in zip(DATES, translator.generate(list(DATES)), strict=True):
        print(f"{text} -> {answer}")
    axes = plots.plot_alignment(*alignment(run))
    axes.set(xlabel="read", ylabel="written")
    plots.save(axes, picture, dpi=90)


if __name__ == "__main__":
    main()
