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
    """V words, each with a vector of D numbers: `words`, a list, and `matrix`, float32 (V, D).

    `vectors["cat"]` is a row, `"cat" in vectors` and `len(vectors)` do what they say. A word has one vector
    in every sentence. ValueError for no words, words that are no strings or stand twice, another number of
    rows, and numbers that are not finite.

        vectors = WordVectors.read("glove.6B.100d.txt")
        vectors.neighbours("frog", count=3)
        model = keras.Sequential([vectors.embedding(), keras.layers.LSTM(64)])
        model(vectors.token_ids(["a", "frog"])[None])
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
        """The rows of `tokens`, int32; -1 for a word that has none."""
        return np.fromiter(map(self._ids.get, tokens, repeat(-1)), np.int32)

    @functools.cached_property
    def unit(self) -> np.ndarray:
        """The vectors at length 1, (V, D), whose products are cosines; one of zeros stays so."""
        peaks = np.abs(self.matrix).max(1, keepdims=True)  # so that no square is too large for float32
        scaled = self.matrix / np.where(peaks > 0, peaks, 1)
        return scaled / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1)

    def neighbours(self, word: str | np.ndarray, count: int = 10) -> list[tuple[str, float]]:
        """The `count` words of the greatest cosine with a word, itself apart, or with a vector (D,), and that
        cosine, the nearest first. ValueError for an unknown word.
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
        """The rows of `embedding` for `tokens`, int32: 2 + the word's own, or 1 for an unknown word."""
        return np.maximum(self.ids(tokens) + FIRST_WORD, UNKNOWN)

    def embedding(self, trainable: bool = False) -> "keras.layers.Embedding":
        """A Keras `Embedding` of V + 2 rows that holds the vectors: row 0, of zeros, is padding, which it
        masks, row 1, the mean vector, is for unknown words, the words follow from 2 on. `token_ids` gives
        such ids, as does `keras.layers.TextVectorization(vocabulary=vectors.words, standardize=None)`.
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
        """The vectors of a file: word2vec's text, which begins with the numbers of words and of dimensions,
        GloVe's, which does not, or .npz. ValueError, with file and line, for rows of different lengths, a
        count that is not that of the header, words that stand twice, numbers that are none or not finite, and
        what is not UTF-8.
        """
        return cls(*read(path))

    def write(self, path: Path, format: Format | None = None) -> None:
        """Write "word2vec" text, "glove" text or "npz", by default npz for names that end so and otherwise
        word2vec's text; reading gives the same numbers, bit by bit. The file appears whole. ValueError for
        another format, and for words with white space in a text.
        """
        format = format or ("npz" if str(path).endswith(".npz") else "word2vec")
        if format not in ("word2vec", "glove", "npz"):
            raise ValueError(f"`format` must be word2vec, glove or npz; it is {format!r}.")
        write(path, self.words, self.matrix, format)
