"""Filling blanks from both sides, and from the left side alone, by counting.

    python docs/book/bert.py

Seconds. Each letter of a held-out text is guessed from one to four letters next to it: the likeliest one
between these in the rest of the text. It prints how often that is right with letters of the left side
alone, and with as many of both sides; bert.png shows it.
"""

import letters
import numpy as np

from keras_tfm.visualize import plots

SIDES = {
    "left side alone": [(), (-1,), (-2, -1), (-3, -2, -1), (-4, -3, -2, -1)],
    "both sides": [(), (-1,), (-1, 1), (-2, -1, 1), (-2, -1, 1, 2)],
}
REACH = 4


def contexts(ids, places):
    """A number for what stands at these `places` around each letter, and the letters, of which the first
    and last few are left out.
    """
    found = np.zeros(len(ids) - 2 * REACH, int)
    for place in places:
        found = found * letters.VOCABULARY + ids[REACH + place : len(ids) - REACH + place]
    return found, ids[REACH : len(ids) - REACH]


def likeliest(train, test, places):
    """The letter that stood most often in each context of `test` (N,), -1 where `train` has no such
    context.
    """
    keys, answers = contexts(train, places)
    pairs, counts = np.unique(keys * letters.VOCABULARY + answers, return_counts=True)
    order = np.lexsort((counts, pairs // letters.VOCABULARY))  # the last of each context is the most frequent
    known, answer = (pairs // letters.VOCABULARY)[order], (pairs % letters.VOCABULARY)[order]
    asked = contexts(test, places)[0]
    last = np.searchsorted(known, asked, side="right") - 1
    return np.where((last >= 0) & (known[last] == asked), answer[last], -1)


def measure():
    """{side: [share of letters that are guessed right from 0, 1, ... letters]}."""
    train, test = letters.read()
    expected = contexts(test, ())[1]
    found = {}
    for side, rounds in SIDES.items():
        answers, shares = np.full(len(expected), -1), []
        for places in rounds:  # a context that was never seen is answered by the next shorter one
            longer = likeliest(train, test, places)
            answers = np.where(longer >= 0, longer, answers)
            shares.append(float((answers == expected).mean()))
        found[side] = shares
    return found


def main(picture="bert.png"):
    found = measure()
    print(f"{'letters seen':<16}" + "".join(f"{number:>8}" for number in range(len(SIDES["both sides"]))))
    for name, shares in found.items():
        print(f"{name:<16}" + "".join(f"{share:8.1%}" for share in shares))
    axes = plots.plot_curves(found, xlabel="letters seen", ylabel="share of letters guessed right")
    axes.set_xticks(range(len(SIDES["both sides"])))
    axes.set(ylim=(0, 1))
    plots.save(axes, picture, dpi=100)


if __name__ == "__main__":
    main()
