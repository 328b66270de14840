"""Words with their vectors: look-up, neighbours, files, and a Keras `Embedding` that holds them."""

import functools
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from keras_tfm.word_vectors.vector_files import Format, Path, read, write

if TYPE_CHECKING:
    import keras

PADDING, UNKNOWN, FIRST_WORD = 0, 1, 2  # rows of an embedding, as Keras's StringLookup has them


class WordVectors:
    """Words with one vector each; `vectors["cat"]` is a row, and `in` and `len` work too.

    Args:
        words: V different strings.
        matrix: their vectors, (V, D); kept as float32.

    Raises:
        ValueError: if there are no words, a word occurs twice, or the matrix has another number of rows or
            numbers that are not finite.

    >>> matrix = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> vectors = keras_tfm.word_vectors.WordVectors(["frog", "toad", "car"], matrix)
    >>> [word for word, cosine in vectors.neighbours("frog", count=2)]
    ['toad', 'car']
    >>> vectors.embedding()(vectors.token_ids(["a", "frog"])[None]).shape
    TensorShape([1, 2, 2])
    """

    def __init__(self, words: Sequence[str], matrix: np.ndarray):
        self.words = list(words)
        self.matrix = np.asarray(matrix, np.float32)
        if not self.words or self.matrix.ndim != 2 or len(self.matrix) != len(self.words):
            raise ValueError(
                f"`matrix` must have a row for each of at least one word; it has the shape "
                f"{self.matrix.shape} for {len(self.words):,} words."
            )
        if not {str}.issuperset(map(type, self.words)):
            raise ValueError("`words` must be strings.")
        if not np.isfinite(self.matrix).all():
            row = int(np.isfinite(self.matrix).all(1).argmin())
            raise ValueError(f"`matrix` must be finite; the row of {self.words[row]!r} is not.")
        self._ids = dict(zip(self.words, range(len(self.words)), strict=True))
        if len(self._ids) < len(self.words):
            raise ValueError("`words` must be different; some stand twice.")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __getitem__(self, word: str) -> np.ndarray:
        return self.matrix[self._ids[word]]

    def ids(self, tokens: Iterable[str]) -> np.ndarray:
        """The row numbers of `tokens`, int32; -1 for an unknown word."""
        return np.fromiter(map(self._ids.get, tokens, repeat(-1)), np.int32)

    @functools.cached_property
    def unit(self) -> np.ndarray:
        """The vectors scaled to length 1, (V, D), so that their inner products are cosines; zeros stay
        zeros.
        """
        peaks = np.abs(self.matrix).max(1, keepdims=True)  # so that no square is too large for float32
        scaled = self.matrix / np.where(peaks > 0, peaks, 1)
        return scaled / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1)

    def neighbours(self, word: str | np.ndarray, count: int = 10) -> list[tuple[str, float]]:
        """The `count` words with the greatest cosines, and these, the nearest word first.

        `word` is a word, which is left out of the answer, or a vector (D,). Raises ValueError for an unknown
        word.
        """
        if isinstance(word, str):
            if word not in self:
                raise ValueError(f"`word` must be one of the {len(self):,} words; it is {word!r}.")
            near = self.unit @ self.unit[self._ids[word]]
            near[self._ids[word]] = -np.inf
        else:
            near = self.unit @ (word / (np.linalg.norm(word) or 1))
        count = min(count, len(self) - isinstance(word, str))
        best = np.argpartition(-near, max(count - 1, 0))[:count]
        best = best[np.argsort(-near[best], kind="stable")]
        return [(self.words[k], float(near[k])) for k in best]

    def token_ids(self, tokens: Iterable[str]) -> np.ndarray:
        """The ids of `tokens` for `embedding`, int32: 2 + the row number, or 1 for an unknown word."""
        return np.maximum(self.ids(tokens) + FIRST_WORD, UNKNOWN)

    def embedding(self, trainable: bool = False) -> "keras.layers.Embedding":
        """A Keras `Embedding` with V + 2 rows that starts with these vectors.

        Row 0, all zeros, is padding, which the layer masks; row 1, the mean vector, is for unknown words; the
        words follow from row 2 on. `token_ids` returns such ids, and so does
        `keras.layers.TextVectorization(vocabulary=vectors.words, standardize=None)`.
        """
        import keras

        others = [np.zeros_like(self.matrix[:1]), self.matrix.mean(0, keepdims=True)]
        table = np.concatenate([*others, self.matrix])
        layer = keras.layers.Embedding(*table.shape, mask_zero=True, trainable=trainable)
        layer.build()
        layer.set_weights([table])
        return layer

    @classmethod
    def read(cls, path: Path) -> "WordVectors":
        """Read a file: word2vec's text format, whose first line has the sizes, its .bin, GloVe's text format,
        without sizes, all plain, .gz or .xz; or .npz.

        Raises ValueError, naming file and line, for rows of different lengths, a number of words that is not
        the header's, a word that occurs twice, numbers that are malformed or not finite, and bytes that are
        not UTF-8.
        """
        return cls(*read(path))

    def write(self, path: Path, format: Format | None = None) -> None:
        """Write a file in the `format` "word2vec", "glove" or "npz"; reading it gives exactly these numbers.

        The default is npz for a name that ends in .npz, and word2vec's text otherwise, compressed for a name
        that ends in .gz or .xz. The file is renamed into place when it is complete. Raises ValueError for
        another format, and if a word of a text file contains white space.
        """
        format = format or ("npz" if str(path).lower().endswith(".npz") else "word2vec")
        if format not in ("word2vec", "glove", "npz"):
            raise ValueError(f"`format` must be word2vec, glove or npz; it is {format!r}.")
        write(path, self.words, self.matrix, format)
