"""The words of a corpus and how often each occurs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat

import numpy as np

from keras_tfm.configs import FieldError, Refusal

# A text is a string, split at white space, or its words.
Texts = Iterable[str | Sequence[str]]


class Vocabulary:
    """Words and their counts, sorted by falling count and then alphabetically; a word's place is its id.

    Padding and unknown words have no ids of their own: `ids` returns -1 for an unknown word, and
    `WordVectors.embedding` shifts all ids by two to make room for both.

    Args:
        words: V different words.
        counts: how often each word occurs, V positive integers.
        total: how many running words the corpus has, including words that are not in `words`; by default the
            sum of the counts.

    Raises:
        ValueError: if there are no words, a word occurs twice, or the counts do not fit.

    >>> vocabulary = keras_tfm.word_vectors.Vocabulary.from_texts(["the cat and the dog", "the end"])
    >>> vocabulary.words
    ['the', 'and', 'cat', 'dog', 'end']
    >>> vocabulary.ids(["the", "cow"])
    array([ 0, -1], dtype=int32)
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
            raise FieldError("{words} must be different; {!r} stands twice.", twice)

    @classmethod
    def from_texts(cls, texts: Texts, min_count: int = 1, max_size: int | None = None) -> "Vocabulary":
        """Count the words of `texts`, an iterable of strings (split at white space) or of lists of words.

        Words that occur less than `min_count` times are left out, and all but the `max_size` most frequent.
        Raises ValueError if no word is left.
        """
        check_limits(min_count, max_size)
        counter: Counter[str] = Counter()
        for words in split(texts):
            counter.update(words)
        if not counter:
            raise ValueError("`texts` must hold words; there are none.")
        return cls(list(counter), list(counter.values())).limited(min_count, max_size)

    def limited(self, min_count: int = 1, max_size: int | None = None) -> "Vocabulary":
        """The vocabulary of the words that occur at least `min_count` times, at most `max_size` of them."""
        check_limits(min_count, max_size)
        size = int(np.searchsorted(-self.counts, -min_count, side="right"))
        if not size:
            most = f"{self.words[0]!r} occurs most often, {self.counts[0]:,} times"
            raise FieldError("{min_count} must leave words; it is {:,}, and {}.", min_count, most)
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
        """The rank of `word` by frequency, 1 for the most frequent word; KeyError for an unknown word."""
        return self._ids[word] + 1

    def shares(self) -> np.ndarray:
        """Each word's share of all running words: (V,). By rank it falls like a power (Zipf's law)."""
        return self.counts / self.total

    def coverage(self, size: int | None = None) -> float:
        """The share of all running words that are among the `size` most frequent words, or among all."""
        return float(self.counts[:size].sum() / self.total)


def split(texts: Texts) -> Iterable[Sequence[str]]:
    """Yields the words of each text. Raises ValueError if an element is no text, or `texts` is one string."""
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
    """Raises ValueError for a limit of a vocabulary below 1."""
    for name, number in (("min_count", min_count), ("max_size", 1 if max_size is None else max_size)):
        if number < 1:
            raise Refusal(name, "at least 1", number)


def _sorted(words: list[str], counts: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Both by count, the highest first, then by word."""
    alphabetical = np.array(sorted(range(len(words)), key=words.__getitem__))
    order = alphabetical[np.argsort(-counts[alphabetical], kind="stable")]
    return [words[index] for index in order], counts[order]
