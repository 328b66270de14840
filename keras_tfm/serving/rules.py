"""What is allowed as the next token, and where a text ends: the rules of `keras_tfm.generation`, in NumPy."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .beams import log_softmax
from .tokens import symbols_of


class Rules(NamedTuple):
    """How the scores of a step are changed, in this order; the arguments are as in `DecodingOptions`.

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
    sequence_bias: Sequence[tuple[Sequence[int], float]] = ()
    forbidden_sequences: Sequence[Sequence[int]] = ()
    prompt_repetition_penalty: float = 1.0
    prompt_no_repeat_ngram_size: int = 0
    length_decay: tuple[int, float] | None = None
    first_suppressed_ids: Sequence[int] = ()
    renormalize: bool = False

    def __call__(self, scores, texts, number, prompts):
        """The `scores`, changed in place: `texts` are the ids of each row so far, of which `number` are new,
        and `prompts` what it was asked: a source, or what the text begins with.
        """
        forbidden = [
            (ids, -np.inf) for ids in self.forbidden_sequences if len(ids) > 1 or ids[0] not in self.end_ids
        ]
        for row, text, prompt in zip(scores, texts, prompts, strict=True):
            add_biases(row, text, self.sequence_bias)
            penalise(row, prompt, 1 / self.prompt_repetition_penalty)
            penalise(row, text, self.repetition_penalty)
            row[repeating(text, text, self.no_repeat_ngram_size)] = -np.inf
            row[repeating(text, prompt, self.prompt_no_repeat_ngram_size)] = -np.inf
            add_biases(row, text, forbidden)
        if number < self.min_new_tokens:
            scores[:, list(self.end_ids)] = -np.inf
        if number == 0 and self.forced_first_id is not None:
            force(scores, [self.forced_first_id])
        if number == self.max_new_tokens - 1 and self.forced_last_ids:
            force(scores, self.forced_last_ids)
        if self.length_decay is not None and number > self.length_decay[0]:
            growth = np.float32(self.length_decay[1]) ** np.float32(number - self.length_decay[0]) - 1
            ends = scores[:, list(self.end_ids)]
            scores[:, list(self.end_ids)] += np.abs(np.where(np.isfinite(ends), ends, 0)) * growth
        scores[:, list(self.suppressed_ids)] = -np.inf
        if number == (self.forced_first_id is not None):
            scores[:, list(self.first_suppressed_ids)] = -np.inf
        if self.renormalize:
            scores[:] = log_softmax(scores)
        return scores


def add_biases(row, text, biases):
    """Add to the scores of a `row` the numbers of the sequences that a token would complete."""
    for *before, last, bias in [(*ids, bias) for ids, bias in biases]:
        if len(text) >= len(before) and text[len(text) - len(before) :] == before:
            row[last] += bias


def penalise(row, ids, penalty):
    """Make the `ids` less likely in a `row` of scores, by `penalty`."""
    if penalty != 1 and len(ids):
        seen = np.unique(ids)
        row[seen] = np.where(row[seen] < 0, row[seen] * penalty, row[seen] / penalty)


def repeating(text, other, size):
    """The ids that would repeat, after the list `text`, `size` ids in a row of the list `other`."""
    if not size or len(text) < size - 1:
        return []
    before = size - 1
    last = text[len(text) - before :]
    places = range(len(other) - before)
    return [other[place + before] for place in places if other[place : place + before] == last]


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
