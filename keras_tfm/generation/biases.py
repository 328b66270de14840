"""Logit processors that published checkpoints bring along: sequences with a bias or forbidden, a growing wish
to end, tokens that do not come first. `processors` says what a processor is.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from keras import ops

from keras_tfm.generation.processors import MINUS_INFINITY, Value, as_ids, is_one_of, require


class SequenceBias(Value):
    """Adds a number to the logit of the token that would complete a sequence.

    Args:
        biases: (ids, number) for each sequence of one token or more; -inf forbids it. The tokens before the
            last one may stand in the prompt.

    Raises:
        ValueError: for an empty sequence and, when it is called, for ids outside the vocabulary.

    >>> written = keras_tfm.generation.processors.Written(np.array([[1, 2]]), np.ones((1, 2), bool), 2, 1)
    >>> processor = keras_tfm.generation.SequenceBias([([0], 1.0), ([2, 1], 5.0), ([1, 1], 7.0)])
    >>> processor(np.zeros((1, 3), "float32"), written).numpy().tolist()
    [[1.0, 5.0, 0.0]]
    """

    def __init__(self, biases: Iterable[tuple[Sequence[int], float]]) -> None:
        numbers = {as_ids("sequence_bias", ids): float(bias) for ids, bias in biases}
        self.biases = tuple(numbers.items())
        if not all(ids for ids, _ in self.biases):
            raise ValueError("`sequence_bias` must have one token or more in each sequence; one has none.")

    def __call__(self, logits, written):
        size = logits.shape[-1]
        if (most := max((max(ids) for ids, _ in self.biases), default=0)) >= size:
            raise ValueError(f"`sequence_bias` must be in the vocabulary of {size:,}; one id is {most}.")
        single = np.zeros(size, "float32")
        longer: dict[int, list] = {}
        for ids, bias in self.biases:
            if len(ids) == 1:
                single[ids[0]] = bias
            else:
                longer.setdefault(len(ids) - 1, []).append((ids, bias))
        logits = logits + single
        for length, sequences in longer.items():
            logits = logits + self._completed(sequences, length, size, written)
        return logits

    @staticmethod
    def _completed(sequences, length, size, written):
        """The sum (R, V) of the biases of `sequences`, whose first `length` tokens are the last ones."""
        rows, width = ops.shape(written.token_ids)
        if isinstance(width, int) and width < length:
            return 0.0
        start = ops.maximum(written.length - length, 0)
        last = ops.slice(written.token_ids, (0, start), (rows, length))
        is_real = ops.slice(written.mask, (0, start), (rows, length))
        firsts = np.array([ids[:-1] for ids, _ in sequences], "int32")  # (S, length)
        completes = ops.all(last[:, None] == firsts, axis=-1)  # (R, S)
        completes = completes & ops.all(ops.cast(is_real, "bool"), axis=-1, keepdims=True)
        completes = completes & (written.length >= length)
        added = ops.where(completes, np.array([bias for _, bias in sequences], "float32"), 0.0)
        row = ops.arange(rows, dtype="int32")[:, None]
        token = np.array([ids[-1] for ids, _ in sequences], "int32")
        places = ops.stack([row + 0 * token, 0 * row + token], axis=-1)  # (R, S, 2)
        return ops.scatter(places, added, (rows, size))


class SuppressFirst(Value):
    """Forbids `token_ids` as the generated token `number`, by default the first.

    >>> written = keras_tfm.generation.processors.Written(np.array([[5, 6]]), np.ones((1, 2), bool), 2, 2)
    >>> keras_tfm.generation.SuppressFirst([1])(np.zeros((1, 3), "float32"), written).numpy().tolist()
    [[0.0, -inf, 0.0]]
    """

    def __init__(self, token_ids: int | Iterable[int], number: int = 0) -> None:
        require("number", number, lambda n: n >= 0, "must be at least 0", whole=True)
        self.token_ids, self.number = as_ids("token_ids", token_ids), number

    def __call__(self, logits, written):
        is_suppressed = is_one_of(self.token_ids, logits.shape[-1]) & (written.num_new == self.number)
        return ops.where(is_suppressed, MINUS_INFINITY, logits)


class LengthDecay(Value):
    """Makes the end likelier with each token after the first `start` ones: of n tokens more, it adds
    |logit| (`factor`^n - 1) to the logits of `end_ids`.

    >>> written = keras_tfm.generation.processors.Written(np.array([[5, 6]]), np.ones((1, 2), bool), 2, 0)
    >>> processor = keras_tfm.generation.LengthDecay(1, 3.0, end_ids=[0])  # two tokens are generated
    >>> processor(np.array([[-2.0, 0.0]], "float32"), written).numpy().tolist()
    [[2.0, 0.0]]
    """

    def __init__(self, start: int, factor: float, end_ids: Iterable[int]) -> None:
        require("start", start, lambda n: n >= 0, "must be at least 0", whole=True)
        require("factor", factor, lambda x: x > 0, "must be above 0")
        self.start, self.factor, self.end_ids = int(start), float(factor), as_ids("end_ids", end_ids)

    def __call__(self, logits, written):
        more = ops.maximum(written.num_new - self.start, 0)
        growth = ops.power(ops.cast(self.factor, "float32"), ops.cast(more, "float32")) - 1.0
        is_end = is_one_of(self.end_ids, logits.shape[-1]) & ops.isfinite(logits)
        return ops.where(is_end, logits + ops.abs(logits) * growth, logits)


class Renormalize(Value):
    """Makes log-probabilities of the logits again, after other processors.

    >>> scores = keras_tfm.generation.Renormalize()(np.zeros((1, 2), "float32"), None)
    >>> np.exp(scores).tolist()
    [[0.5, 0.5]]
    """

    def __call__(self, logits, written):
        return ops.log_softmax(logits)
