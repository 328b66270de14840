"""Words and their tags: which spans they make, what stands apart of words, and I- tags without B-."""

import collections
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from keras_tfm.tasks.records import rounded


def marks_of(sentences: Iterable[Sequence[str]]) -> str:
    """The punctuation that stands in sentences as words of their own more often than at the end of a word.

    >>> keras_tfm.tasks.text.spans.marks_of([["Mr.", "and", "Mrs.", "Fox", ",", "too", "!"], ["Run", "!"]])
    '!,'
    """
    alone: collections.Counter[str] = collections.Counter()
    joined: collections.Counter[str] = collections.Counter()
    for word in (word for words in sentences for word in words if word):
        ends = {word[0], word[-1]}
        (alone if set(word) == ends and len(ends) == 1 else joined).update(ends)
    return "".join(
        sorted(mark for mark in alone if unicodedata.category(mark)[0] == "P" and alone[mark] > joined[mark])
    )


def repaired(tags: Iterable[str]) -> list[str]:
    """The tags with B- in place of an I- that goes on with nothing: behind O, or another kind.

    >>> keras_tfm.tasks.text.spans.repaired(["O", "I-PER", "I-PER", "I-LOC"])
    ['O', 'B-PER', 'I-PER', 'B-LOC']
    """
    found, before = [], "O"
    for tag in tags:
        goes_on = tag.startswith("I-") and before[:2] in ("B-", "I-") and before[2:] == tag[2:]
        found.append(f"B-{tag[2:]}" if tag.startswith("I-") and not goes_on else tag)
        before = tag
    return found


def spans_of(words: Sequence[str], tags: Sequence[str], scores: Sequence[float]) -> list[dict[str, Any]]:
    """The spans that B- and I- tags make, an I- without B- too: their "label" and "text", the numbers of the
    first word, "start", and of that after the last, "end", and the "score" of the least sure word.

    >>> keras_tfm.tasks.text.spans.spans_of(["Ada", "Byron", "ran"], ["B-PER", "I-PER", "O"], [0.9, 0.8, 0.7])
    [{'label': 'PER', 'text': 'Ada Byron', 'start': 0, 'end': 2, 'score': 0.8}]
    """
    spans = []
    for label, start, end in bounds_of(tags):
        score = rounded(min(scores[start:end], default=0.0))
        text = " ".join(words[start:end])
        spans.append({"label": label, "text": text, "start": start, "end": end, "score": score})
    return spans


def bounds_of(tags: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    """The (label, first word, word after the last) of each span."""
    tags, start = repaired(tags), 0
    while start < len(tags):
        label, end = tags[start][2:], start + 1
        if tags[start].startswith("B-"):
            while end < len(tags) and tags[end] == f"I-{label}":
                end += 1
            yield label, start, end
        start = end
