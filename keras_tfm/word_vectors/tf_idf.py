"""TF-IDF: weights of words that grow with the count in a text and fall with the number of texts that contain
the word (Spärck Jones 1972).
"""

import dataclasses
import json
import os
from typing import Literal, Self

import numpy as np
import scipy.sparse

from keras_tfm.configs import Config, parse_json
from keras_tfm.word_vectors.bag_of_words import term_counts
from keras_tfm.word_vectors.not_fitted import Learns
from keras_tfm.word_vectors.vocabulary import Texts, Vocabulary, split


@dataclasses.dataclass(frozen=True)
class TfIdfConfig(Config):
    """`smooth`, `sublinear` and `norm` of `TfIdf`."""

    smooth: bool = True
    sublinear: bool = False
    norm: Literal["l1", "l2"] | None = "l2"


class TfIdf(Learns):
    """Texts as sparse rows (S, V): for each word of the vocabulary, tf(w, s) idf(w).

    tf(w, s) is the count of word w in text s. idf(w) is ln(S / df), where df of the S fitted texts contain w.
    With `smooth` the numbers equal the numbers of scikit-learn's TfidfVectorizer; without it, that class adds
    1 to the idf.

    Args:
        smooth: whether idf(w) is ln((1 + S) / (1 + df)) + 1, which is never 0.
        sublinear: whether tf is 1 + ln of the count.
        norm: "l2" or "l1", by which each row is scaled to length 1, or None.

    >>> tf_idf = keras_tfm.word_vectors.TfIdf(norm=None).fit(["the cat sat", "the dog"])
    >>> tf_idf.vocabulary.words
    ['the', 'cat', 'dog', 'sat']
    >>> tf_idf.transform(["the cat"]).toarray().round(2)
    array([[1.  , 1.41, 0.  , 0.  ]])
    """

    learnt = ("vocabulary", "idf")
    vocabulary: Vocabulary
    idf: np.ndarray

    def __init__(self, smooth: bool = True, sublinear: bool = False, norm: Literal["l1", "l2"] | None = "l2"):
        self.config = TfIdfConfig(smooth, sublinear, norm)

    def fit(self, texts: Texts, vocabulary: Vocabulary | None = None) -> Self:
        """Compute the idf (V,) of the words of `vocabulary`, by default of all words of `texts`.

        Raises ValueError if there is no text, or without `smooth` if no text contains some word.
        """
        if vocabulary is None:
            texts = list(split(texts))
            vocabulary = Vocabulary.from_texts(texts)
        counts = term_counts(texts, vocabulary)
        num_texts = counts.shape[0]
        in_texts = np.bincount(counts.indices, minlength=len(vocabulary))
        if not num_texts:
            raise ValueError("`texts` must hold texts; there are none.")
        if not self.config.smooth and not in_texts.all():
            word = vocabulary.words[int(np.argmin(in_texts))]
            raise ValueError(
                f"`vocabulary` must hold words of the texts; {word!r} stands in none: smooth it."
            )
        is_smooth = int(self.config.smooth)
        self.idf = np.log((num_texts + is_smooth) / (in_texts + is_smooth)) + is_smooth
        self.vocabulary = vocabulary
        return self

    def transform(self, texts: Texts) -> scipy.sparse.csr_array:
        """The weights of the known words in `texts`: (texts, V), float64."""
        rows = term_counts(texts, self.vocabulary).astype("f8")
        if self.config.sublinear:
            rows.data = 1 + np.log(rows.data)
        rows.data *= self.idf[rows.indices]
        if self.config.norm is not None:
            sizes = np.abs(rows).sum(1) if self.config.norm == "l1" else np.sqrt(rows.power(2).sum(1))
            rows.data /= np.repeat(np.where(sizes > 0, sizes, 1), np.diff(rows.indptr))
        return rows

    def fit_transform(self, texts: Texts, vocabulary: Vocabulary | None = None) -> scipy.sparse.csr_array:
        """`fit`, and `transform` of the same texts."""
        texts = list(split(texts))
        return self.fit(texts, vocabulary).transform(texts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write words, counts, idf and options to the safetensors file `path`."""
        from keras_tfm.training.weights import write_tensors

        about = {"config": json.dumps(dataclasses.asdict(self.config))}
        about |= {"words": json.dumps(self.vocabulary.words), "total": str(self.vocabulary.total)}
        write_tensors({"idf": self.idf, "counts": self.vocabulary.counts}, path, about)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote. Raises CheckpointError for any other file."""
        from keras_tfm.training.safetensors import CheckpointError, read_tensors

        tensors, about = read_tensors(path)
        try:
            made = cls(**dataclasses.asdict(TfIdfConfig.from_json(parse_json(about["config"]))))
            words = parse_json(about["words"])
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise ValueError("`words` must be a list of strings")
            vocabulary = Vocabulary(words, tensors["counts"], int(about["total"]))
            idf = tensors["idf"].astype("f8")
            if vocabulary.words != words or idf.shape != (len(words),) or not np.isfinite(idf).all():
                raise ValueError("`idf` must hold a number for each word, the most frequent first")
        except (KeyError, ValueError) as error:
            raise CheckpointError(path, None, "words and their idf", str(error)[:200]) from None
        made.vocabulary, made.idf = vocabulary, idf
        return made
