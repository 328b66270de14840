"""One-hot vectors, in the two meanings that the word has."""

from collections.abc import Sequence

import numpy as np
import scipy.sparse

from keras_tfm.word_vectors.bag_of_words import term_counts
from keras_tfm.word_vectors.vocabulary import Texts, Vocabulary


class OneHot:
    """Words as sparse vectors of zeros and ones, by the places of a `vocabulary`.

    `vectors` are those of the usual meaning, e_i for the word of place i: any two different words are sqrt(2)
    apart. `incidence` has a row for each word and a column for each text, 1 where the word stands in the
    text: order is lost, and so is how often. An unknown word has zeros, and makes none.

        one_hot = OneHot(Vocabulary.from_texts(["the cat sat", "the dog"]))
        one_hot.vectors(["cat", "cow"]).toarray()  # [[0, 1, 0, 0], [0, 0, 0, 0]]
        one_hot.incidence(["the cat sat", "the dog"]).toarray()[0]  # "the": [1, 1]
    """

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary

    def vectors(self, words: Sequence[str]) -> scipy.sparse.csr_array:
        """The indicator vectors of `words`: (words, V), int8."""
        ids = self.vocabulary.ids(words)
        known = np.flatnonzero(ids >= 0)
        ones = np.ones(len(known), np.int8)
        return scipy.sparse.csr_array((ones, (known, ids[known])), shape=(len(ids), len(self.vocabulary)))

    def incidence(self, texts: Texts) -> scipy.sparse.csr_array:
        """Which words stand in which of `texts`, strings or lists of words: (V, texts), int8."""
        counts = term_counts(texts, self.vocabulary)
        counts.data = np.ones(len(counts.data), np.int8)
        return counts.T.tocsr()
