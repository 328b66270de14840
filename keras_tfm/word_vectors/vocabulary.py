"""Which words a corpus has, and how often: the long tail that all counting begins with."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat

import numpy as np

# A text is a string, split at white space, or its words.
Texts = Iterable[str | Sequence[str]]


class Vocabulary:
    """Words with their counts, the most frequent first, ties in alphabetical order; a word's id is its place.

    `words` is a list of V strings, `counts` an int64 array (V,), `total` the number of running words that
    they were counted among, the left out ones too. No id is kept for padding or unknown words: `ids` gives
    -1 for these, and `WordVectors.embedding` moves all ids by two to make room. ValueError for no words,
    words that stand twice, and counts that are not positive or of another number.

        vocabulary = Vocabulary.from_texts(["the cat and the dog", "the end"])
        vocabulary.words  # ["the", "and", "cat", "dog", "end"]
        vocabulary.ids(["the", "cow"])  # [0, -1]
    """

    def __init__(self, words: Sequence[str], counts: Sequence[int] | np.ndarray, total: int | None = None):
        numbers = np.asarray(counts)
        if not len(words) or numbers.shape != (len(words),):
            raise ValueError(
                f"`counts` must hold one number for each of at least one word; it has the shape "
                f"{numbers.shape} for {len(words):,} words."
            )
        if numbers.dtype.kind not in "iu" or numbers.min() < 1:
            raise ValueError("`counts` must hold whole numbers from 1 on.")
        self.words, self.counts = _sorted(list(words), numbers.astype(np.int64))
        self.total = int(self.counts.sum()) if total is None else int(total)
        if self.total < self.counts.sum():
            raise ValueError(f"`total` must be at least the sum of `counts`; it is {self.total:,}.")
        self._ids = dict(zip(self.words, range(len(self.words)), strict=True))
        if len(self._ids) < len(self.words):
            twice = next(word for word, number in Counter(self.words).items() if number > 1)
            raise ValueError(f"`words` must be different; {twice!r} stands twice.")

    @classmethod
    def from_texts(cls, texts: Texts, min_count: int = 1, max_size: int | None = None) -> "Vocabulary":
        """Counts the words of `texts`, an iterable of strings (split at white space) or of lists of words.

        Words of less than `min_count` occurrences are left out, and all but the `max_size` most frequent.
        ValueError where nothing is left.
        """
        check_limits(min_count, max_size)
        counter: Counter[str] = Counter()
        for words in split(texts):
            counter.update(words)
        if not counter:
            raise ValueError("`texts` must hold words; there are none.")
        return cls(list(counter), list(counter.values())).limited(min_count, max_size)

    def limited(self, min_count: int = 1, max_size: int | None = None) -> "Vocabulary":
        """The words of at least `min_count` occurrences, of which at most the `max_size` most frequent."""
        check_limits(min_count, max_size)
        size = int(np.searchsorted(-self.counts, -min_count, side="right"))
        if not size:
            most = f"{self.words[0]!r} occurs most often, {self.counts[0]:,} times"
            raise ValueError(f"`min_count` must leave words; it is {min_count:,}, and {most}.")
        size = min(size, max_size or size)
        return type(self)(self.words[:size], self.counts[:size], self.total)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def ids(self, tokens: Iterable[str]) -> np.ndarray:
        """The ids of `tokens`, int32, in their order; -1 for a word that is not in the vocabulary."""
        return np.fromiter(map(self._ids.get, tokens, repeat(-1)), np.int32)

    def rank(self, word: str) -> int:
        """The place of `word` by frequency, 1 for the most frequent; KeyError where it is unknown."""
        return self._ids[word] + 1

    def shares(self) -> np.ndarray:
        """What share of all running words each word is, (V,); by rank it falls as a power: the long tail."""
        return self.counts / self.total

    def coverage(self, size: int | None = None) -> float:
        """The share of all running words that are among the `size` most frequent words, or among all."""
        return float(self.counts[:size].sum() / self.total)


def split(texts: Texts) -> Iterable[Sequence[str]]:
    """Yields the words of each text. ValueError for what is no text, and for one string given as `texts`."""
    if isinstance(texts, str | bytes):
        raise ValueError("`texts` must be an iterable of texts; it is one string.")
    for number, text in enumerate(texts):
        if isinstance(text, str):
            yield text.split()
        elif isinstance(text, list | tuple) and {str}.issuperset(map(type, text)):
            yield text
        else:
            raise ValueError(f"`texts` must hold strings or lists of words; text {number} is {text!r:.60}.")


def check_limits(min_count: int, max_size: int | None) -> None:
    """ValueError for limits of a vocabulary below 1."""
    for name, number in (("min_count", min_count), ("max_size", 1 if max_size is None else max_size)):
        if number < 1:
            raise ValueError(f"`{name}` must be at least 1; it is {number}.")


def _sorted(words: list[str], counts: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Both by count, the highest first, then by word."""
    alphabetical = np.array(sorted(range(len(words)), key=words.__getitem__))
    order = alphabetical[np.argsort(-counts[alphabetical], kind="stable")]
    return [words[index] for index in order], counts[order]
