"""Vectors of words by GloVe, from text that Python brings along: the topics of pydoc, a language reference.

    python examples/word_vectors.py [--corpus FILE] [--words WORD ...] [--analogies FILE]

learns 50 numbers for each of 1,352 words in some seconds. It prints how long the tail of the counts is, the
nearest words of some words, and the cosines within pairs of related words and across them, and draws these
in two dimensions, word_vectors.png, where matplotlib is installed. Expected: the nearest word of "list" is
"tuple", the nearest of "true" is "false"; cosines within pairs are about 0.6, across pairs about 0.

--corpus takes text, one text per line, words separated by spaces; --analogies takes a file of Mikolov's
questions, "Athens Greece Oslo Norway". The same vectors come of

    keras-tfm vectors --data FILE --out vectors.txt
    keras-tfm neighbours vectors.txt king queen
"""

import argparse
import itertools
import pydoc_data.topics
import re

import numpy as np

from keras_tfm.data import read_lines
from keras_tfm.visualize import plots
from keras_tfm.word_vectors import GloVe, Vocabulary, analogies, cooccurrence, read_analogies

PAIRS = [("list", "tuple"), ("true", "false"), ("raise", "exception"), ("global", "nonlocal")]


def topics():
    """The paragraphs of pydoc's topics, as lists of words."""
    for topic in pydoc_data.topics.topics.values():
        for paragraph in topic.split("\n\n"):
            yield re.findall(r"[a-z_]+", paragraph.lower())


def main(corpus=None, words=None, questions=None):
    texts = topics if corpus is None else lambda: read_lines(corpus)
    vocabulary = Vocabulary.from_texts(texts())
    print(f"{vocabulary.total:,} running words, {len(vocabulary):,} different ones")
    for size in (10, 100, 1000):
        print(f"the {size:,} most frequent words are {vocabulary.coverage(size):.0%} of the text")

    matrix, kept = cooccurrence(texts(), window=10, min_count=5)
    zeros = 1 - matrix.nnz / len(kept) ** 2
    print(f"{len(kept):,} words occur 5 times; of the pairs of these {zeros:.1%} never stand near each other")

    glove = GloVe(50 if corpus is None else 100)
    history = glove.fit(matrix, epochs=40 if corpus is None else 15)
    vectors = glove.vectors(kept)
    print(f"J fell from {history[0]:,.0f} to {history[-1]:,.0f}")

    pairs = [] if words else [pair for pair in PAIRS if pair[0] in vectors and pair[1] in vectors]
    shown = [word for word in words or itertools.chain(*pairs) if word in vectors]
    for word in shown:
        print(f"{word}:", ", ".join(f"{other} {cosine:.2f}" for other, cosine in vectors.neighbours(word, 5)))
    if pairs:
        unit = vectors.unit[vectors.ids(shown)]
        cosines = unit @ unit.T
        is_pair = np.kron(np.eye(len(pairs)), np.ones((2, 2))) > 0
        within = cosines[is_pair & ~np.eye(len(unit), dtype=bool)].mean()
        print(f"cosine within pairs {within:.2f}, across pairs {cosines[~is_pair].mean():.2f}")
    if questions:
        print(analogies(vectors, read_analogies(questions)))
    if len(shown) > 2:
        draw(shown, vectors.unit[vectors.ids(shown)], pairs)


def draw(words, rows, pairs, path="word_vectors.png"):
    """The two principal components of the words' vectors as a picture; nothing without matplotlib."""
    try:
        axes = plots.plot_embeddings(words, rows, pairs=pairs)
    except ImportError as error:
        return print(f"no {path}: {error}")
    plots.save(axes, path)
    print(f"the picture is {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", metavar="FILE", help="a text a line")
    parser.add_argument("--words", nargs="+", metavar="WORD", help="whose neighbours are printed")
    parser.add_argument("--analogies", metavar="FILE", help="questions of four words a line")
    arguments = parser.parse_args()
    main(arguments.corpus, arguments.words, arguments.analogies)
