"""Texts as bags of words: counts without order, and three figures that say what such vectors lack."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse

from keras_tfm.word_vectors.vocabulary import Texts, Vocabulary, split


class Dimensions(NamedTuple):
    """How long the vector of a word is, how long that of a text, and how many numbers a dense matrix has."""

    of_a_word: int
    of_a_text: int
    of_the_matrix: int


def term_counts(texts: Texts, vocabulary: Vocabulary) -> scipy.sparse.csr_array:
    """How often each word of `vocabulary` stands in each text: (texts, V), int64.

    `texts` are strings, split at white space, or lists of words; unknown words are passed over.
    """
    offsets, parts = [0], []
    for words in split(texts):
        ids = vocabulary.ids(words)
        parts.append(ids[ids >= 0])
        offsets.append(offsets[-1] + len(parts[-1]))
    columns = np.concatenate([np.zeros(0, np.int32), *parts])
    shape = len(offsets) - 1, len(vocabulary)
    counts = scipy.sparse.csr_array((np.ones(len(columns), np.int64), columns, offsets), shape=shape)
    counts.sum_duplicates()
    return counts


def density(matrix: scipy.sparse.sparray) -> float:
    """The share of a sparse matrix that is not zero: the first problem of bags of words is how low it is."""
    return float(matrix.count_nonzero() / np.prod(matrix.shape, dtype="f8")) if np.prod(matrix.shape) else 0.0


def dimensions(matrix: scipy.sparse.sparray) -> Dimensions:
    """The sizes of a matrix of words by texts (V, S): the second problem is how large they are."""
    num_words, num_texts = matrix.shape
    return Dimensions(num_texts, num_words, num_words * num_texts)


def cosines(
    matrix: scipy.sparse.sparray, vocabulary: Vocabulary, pairs: Iterable[Sequence[str]]
) -> np.ndarray:
    """The cosine between the vectors, rows of `matrix` (V, anything), of each pair of words: (pairs,).

    The third problem: that of words of like meaning is no higher than that of others. It is 0 where a vector
    is. ValueError for a word that `vocabulary` does not hold.
    """
    pairs = [tuple(pair) for pair in pairs]
    unknown = [word for pair in pairs for word in pair if word not in vocabulary]
    if unknown:
        raise ValueError(f"`pairs` must be of words of the vocabulary; it has no {unknown[0]!r}.")
    rows = scipy.sparse.csr_array(matrix, dtype="f8")
    one, other = (rows[vocabulary.ids([pair[side] for pair in pairs])] for side in (0, 1))
    products = one.multiply(other).sum(1)
    lengths = np.sqrt(one.power(2).sum(1) * other.power(2).sum(1))
    return np.divide(products, lengths, out=np.zeros(len(pairs)), where=lengths > 0)
