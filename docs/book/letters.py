"""The text that chapters of the book learn from: the topics of pydoc, a reference of Python that Python
brings.
"""

import pydoc_data.topics
import re

import numpy as np

LETTERS = " abcdefghijklmnopqrstuvwxyz.,()'"
OTHER = LETTERS.index(" ")  # what all other signs become
VOCABULARY = len(LETTERS)


def as_ids(text):
    """A number for each letter, small ones alone."""
    return np.array([max(LETTERS.find(letter), OTHER) for letter in text.lower()])


def as_text(ids):
    return "".join(LETTERS[number] for number in ids)


def read():
    """The ids of all topics, a tenth of them apart: (for training, for testing)."""
    text = " ".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    ids = as_ids(re.sub(r"[^\w.,()']+", " ", text))
    border = len(ids) * 9 // 10
    return ids[:border], ids[border:]


def windows(ids, length, count, seed):
    """`count` pieces (B, T) of the text, from anywhere in it."""
    begin = np.random.default_rng(seed).integers(0, len(ids) - length, count)
    return ids[begin[:, None] + np.arange(length)]
