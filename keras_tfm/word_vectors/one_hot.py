"""One-hot vectors of words, and the matrix that says which text contains which word."""

from collections.abc import Sequence

import numpy as np
import scipy.sparse

from keras_tfm.word_vectors.bag_of_words import term_counts
from keras_tfm.word_vectors.vocabulary import Texts, Vocabulary


class OneHot:
    """Words as sparse vectors of zeros and ones.

    The vector of the word with id i is 1 at place i and 0 elsewhere, so that any two different words have
    the distance sqrt(2). An unknown word has a vector of zeros.

    Args:
        vocabulary: the words that have vectors.

    >>> texts = ["the cat sat", "the dog"]
    >>> one_hot = keras_tfm.word_vectors.OneHot(keras_tfm.word_vectors.Vocabulary.from_texts(texts))
    >>> one_hot.vectors(["cat", "cow"]).toarray()
    array([[0, 1, 0, 0],
           [0, 0, 0, 0]], dtype=int8)
    >>> one_hot.incidence(texts).toarray()[0]  # the word "the" occurs in both texts
    array([1, 1], dtype=int8)
    """

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary

    def vectors(self, words: Sequence[str]) -> scipy.sparse.csr_array:
        """The one-hot vectors of `words`: (words, V), int8."""
        ids = self.vocabulary.ids(words)
        known = np.flatnonzero(ids >= 0)
        ones = np.ones(len(known), np.int8)
        return scipy.sparse.csr_array((ones, (known, ids[known])), shape=(len(ids), len(self.vocabulary)))

    def incidence(self, texts: Texts) -> scipy.sparse.csr_array:
        """1 where a word occurs in a text, whatever its count and place: (V, texts), int8."""
        counts = term_counts(texts, self.vocabulary)
        counts.data = np.ones(len(counts.data), np.int8)
        return counts.T.tocsr()
