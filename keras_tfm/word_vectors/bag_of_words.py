"""Texts as bags of words, counts without order, and three numbers that show the limits of such vectors."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse

from keras_tfm.word_vectors.vocabulary import Texts, Vocabulary, split


class Dimensions(NamedTuple):
    """The length of a word's vector, the length of a text's vector, and the entries of the dense matrix.

    >>> sizes = keras_tfm.word_vectors.dimensions(scipy.sparse.csr_array((50_000, 1_000)))
    >>> sizes.of_a_word, sizes.of_a_text, sizes.of_the_matrix
    (1000, 50000, 50000000)
    """

    of_a_word: int
    of_a_text: int
    of_the_matrix: int


def term_counts(texts: Texts, vocabulary: Vocabulary) -> scipy.sparse.csr_array:
    """How often each word of `vocabulary` occurs in each text: (texts, V), int64.

    `texts` are strings, split at white space, or lists of words; unknown words are ignored.

    >>> vocabulary = keras_tfm.word_vectors.Vocabulary.from_texts(["a b a"])
    >>> keras_tfm.word_vectors.term_counts(["b a a", "c b"], vocabulary).toarray()
    array([[2, 1],
           [0, 1]])
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
    """The share of a sparse matrix that is not zero, which is low for a matrix of word counts.

    >>> keras_tfm.word_vectors.density(scipy.sparse.csr_array([[2, 0], [0, 0]]))
    0.25
    """
    return float(matrix.count_nonzero() / np.prod(matrix.shape, dtype="f8")) if np.prod(matrix.shape) else 0.0


def dimensions(matrix: scipy.sparse.sparray) -> Dimensions:
    """The sizes of a matrix of words by texts (V, S), which grow with the corpus.

    >>> keras_tfm.word_vectors.dimensions(scipy.sparse.csr_array([[2, 0, 1], [0, 0, 1]]))
    Dimensions(of_a_word=3, of_a_text=2, of_the_matrix=6)
    """
    num_words, num_texts = matrix.shape
    return Dimensions(num_texts, num_words, num_words * num_texts)


def cosines(
    matrix: scipy.sparse.sparray, vocabulary: Vocabulary, pairs: Iterable[Sequence[str]]
) -> np.ndarray:
    """The cosine between the rows of `matrix` (V, any width) of each pair of words: (pairs,).

    It is 0 where a row is zero. For bags of words it is no higher for words of similar meaning than for
    others. Raises ValueError for a word that is not in `vocabulary`.

    >>> texts = ["the cat sat", "the dog sat"]
    >>> vocabulary = keras_tfm.word_vectors.Vocabulary.from_texts(texts)
    >>> rows = keras_tfm.word_vectors.term_counts(texts, vocabulary).T
    >>> keras_tfm.word_vectors.cosines(rows, vocabulary, [("the", "sat"), ("cat", "dog")]).round(2)
    array([1., 0.])
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
