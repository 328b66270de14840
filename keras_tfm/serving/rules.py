"""What is allowed as the next token, and where a text ends: the rules of `keras_tfm.generation`, in NumPy."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .tokens import symbols_of


class Rules(NamedTuple):
    """How the scores of a step are changed, in this order; the arguments are those of `DecodingOptions`.

    Scores are float32 (R, V): logits or, of beams, log probabilities.
    """

    max_new_tokens: int
    end_ids: Sequence[int] = ()
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    min_new_tokens: int = 0
    forced_first_id: int | None = None
    forced_last_ids: Sequence[int] = ()
    suppressed_ids: Sequence[int] = ()

    def __call__(self, scores, texts, number):
        """The `scores`, changed in place: `texts` are the ids of each row so far, prompts included, of which
        `number` are new.
        """
        for row, text in zip(scores, texts, strict=True):
            if self.repetition_penalty != 1:
                seen = np.unique(text)
                x = row[seen]
                row[seen] = np.where(x < 0, x * self.repetition_penalty, x / self.repetition_penalty)
            if self.no_repeat_ngram_size:
                row[repeating(text, self.no_repeat_ngram_size)] = -np.inf
        if number < self.min_new_tokens:
            scores[:, list(self.end_ids)] = -np.inf
        if number == 0 and self.forced_first_id is not None:
            force(scores, [self.forced_first_id])
        if number == self.max_new_tokens - 1 and self.forced_last_ids:
            force(scores, self.forced_last_ids)
        scores[:, list(self.suppressed_ids)] = -np.inf
        return scores


def repeating(text, size):
    """The ids that would repeat `size` ids in a row of the list `text`."""
    before = size - 1
    last = text[len(text) - before :]
    places = range(len(text) - before) if len(text) >= before else ()
    return [text[place + before] for place in places if text[place : place + before] == last]


def force(scores, ids):
    """Forbid all tokens but these."""
    scores[:] = -np.inf
    scores[:, list(ids)] = 0


class Ends:
    """Whether a text ends: with one of `end_ids`, or once one of the strings `stop` occurs in what
    symbols.json spells its ids as. `count` is how many tokens may end it at one step, as far as is known.
    """

    def __init__(self, folder, end_ids, stop=()):
        self._ids, self._stop = set(end_ids), [string.encode() for string in stop]
        self.count = len(self._ids) + bool(stop)
        if stop:
            self._symbols = symbols_of(folder)

    def __call__(self, new):
        """`new` are the ids after the prompt, one at least."""
        if new[-1] in self._ids or not self._stop:
            return new[-1] in self._ids
        known = range(len(self._symbols))
        spelled = b"".join(self._symbols[token_id] for token_id in new if token_id in known)
        return any(string in spelled for string in self._stop)
