"""Beam search: the scores, the order and the ends of `keras_tfm.generation.BeamSearch`, in NumPy."""

from typing import Literal

import numpy as np

LOW = np.float32(-1e9)  # below any score


class BeamSearch:
    """Looks for the likeliest continuations; the arguments as for `keras_tfm.generation.BeamSearch`,
    and `rules` and `ends` of this package.
    """

    def __init__(
        self,
        rules,
        ends,
        beam_size: int,
        length_penalty: float,
        early_stopping: bool | Literal["never"],
    ):
        if not -100 <= length_penalty <= 100:  # beyond, powers of lengths overflow
            raise ValueError(f"length_penalty: expected a number from -100 to 100, got {length_penalty:g}")
        self._rules, self._ends, self._width = rules, ends, beam_size
        self._penalty, self._early = length_penalty, early_stopping

    def __call__(self, cache, logits, texts, prompts):
        """The best continuation of each of N `texts`, lists of ids, of which `cache` has read all, and whose
        next tokens have these `logits` (N, V); `prompts` are as in `Rules`.
        """
        count, width = len(texts), self._width
        cache.repeat(width)
        logits = np.repeat(logits, width, axis=0)
        firsts = [len(text) for text in texts]
        texts, prompts = ([ids for ids in rows for _ in range(width)] for rows in (texts, prompts))
        scores = np.full((count, width), LOW)  # of each text's equal beams only the first counts yet
        scores[:, 0] = 0
        best = [_Best(width) for _ in firsts]
        for number in range(self._rules.max_new_tokens):
            logits = self._rules(log_softmax(logits), texts, number, prompts)
            logits = logits.reshape(count, width, -1) + scores[:, :, None]
            num_candidates = min(max(2, 1 + self._ends.count) * width, logits[0].size)
            chosen, tokens, all_end = [], [], True
            for place, first in enumerate(firsts):
                values, choice = highest(logits[place].ravel(), num_candidates)
                rows = choice // logits.shape[2] + width * place
                ids = (choice % logits.shape[2]).tolist()
                candidates = [[*texts[row], token] for row, token in zip(rows, ids, strict=True)]
                is_last = number + 1 == self._rules.max_new_tokens
                ends = np.array([is_last or self._ends(text[first:]) for text in candidates])
                all_end = all_end and bool(ends.all())
                best[place].collect(values, candidates, ends, number + 1, self._penalty, self._early)
                scores[place], running = highest(values + np.where(ends, LOW, np.float32(0)), width)
                chosen += rows[running].tolist()
                tokens += [ids[i] for i in running]
                length = number + 1
                if self._early == "never" and self._penalty > 0:
                    length = self._rules.max_new_tokens
                best[place].decide(scores[place, 0] / np.float32(length) ** self._penalty)
            texts = [[*texts[row], token] for row, token in zip(chosen, tokens, strict=True)]
            wants_more = self._early is not True or not all(found.is_full for found in best)
            if all_end or not wants_more or not any(found.can_improve for found in best):
                break
            cache.reorder(np.array(chosen))
            logits = cache.read(np.array(tokens, "int32")[:, None])
        return [found.texts[0][first:] for found, first in zip(best, firsts, strict=True)]


class _Best:
    """The best texts of one prompt that have ended, `width` at most, and whether others can be better yet."""

    def __init__(self, width):
        self.texts, self._scores, self._width, self.can_improve = [], [], width, True

    @property
    def is_full(self):
        return len(self.texts) == self._width

    def collect(self, scores, candidates, ends, length, penalty, early):
        """Let candidates that end, among the `width` best, compete with the texts that ended before."""
        if not self.can_improve or (self.is_full and early is True):
            return
        for place in np.flatnonzero(ends[: self._width]):
            self._scores.append(scores[place] / np.float32(length) ** penalty)
            self.texts.append(candidates[place])
        order = sorted(range(len(self.texts)), key=lambda place: -self._scores[place])[: self._width]
        self.texts = [self.texts[place] for place in order]
        self._scores = [self._scores[place] for place in order]

    def decide(self, running):
        """Go on only while a running beam's score, `running`, would beat the worst of these."""
        self.can_improve = self.can_improve and (not self.is_full or bool(running > self._scores[-1]))


def highest(values, count):
    """The `count` highest of the vector `values` and their places, the first of equal ones first."""
    border = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > border)
    places = np.concatenate([above, np.flatnonzero(values == border)[: count - len(above)]])
    places = places[np.lexsort((places, -values[places]))]
    return values[places], places


def log_softmax(logits):
    """log of the probabilities (R, V)."""
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
