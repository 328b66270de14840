"""Vectors of words from counts: vocabularies, co-occurrence, GloVe and its evaluation; vectors of users and
items by matrix factorisation.

Everything computes in NumPy and SciPy. The extra `fast` installs Numba, which compiles the loops that count
and train; without it NumPy does the same more slowly, and a warning says so once. Keras is imported only for
`WordVectors.embedding` and for safetensors files.
"""

from keras_tfm.word_vectors.adagrad import AdaGrad
from keras_tfm.word_vectors.bag_of_words import Dimensions, cosines, density, dimensions, term_counts
from keras_tfm.word_vectors.cooccurrence import cooccurrence
from keras_tfm.word_vectors.evaluation import (
    Analogies,
    Similarity,
    analogies,
    read_analogies,
    read_similarities,
    similarity,
)
from keras_tfm.word_vectors.factorization import MatrixFactorization, Observed
from keras_tfm.word_vectors.glove import GloVe
from keras_tfm.word_vectors.least_squares import LeastSquares
from keras_tfm.word_vectors.one_hot import OneHot
from keras_tfm.word_vectors.svd import TruncatedSVD, size_reduction, truncated_svd
from keras_tfm.word_vectors.tf_idf import TfIdf
from keras_tfm.word_vectors.vectors import WordVectors
from keras_tfm.word_vectors.vocabulary import Vocabulary

__all__ = [
    "Vocabulary",
    "OneHot",
    "TfIdf",
    "term_counts",
    "density",
    "dimensions",
    "Dimensions",
    "cosines",
    "truncated_svd",
    "TruncatedSVD",
    "size_reduction",
    "cooccurrence",
    "GloVe",
    "AdaGrad",
    "LeastSquares",
    "WordVectors",
    "similarity",
    "read_similarities",
    "Similarity",
    "analogies",
    "read_analogies",
    "Analogies",
    "MatrixFactorization",
    "Observed",
]
