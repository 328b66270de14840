"""A language model small enough to know everything about: the next token depends on the last one alone."""

import itertools

import numpy as np
from keras import ops


class Markov:
    """A `start`/`step` model of the table (V, V) of logits; its cache counts, as others' do."""

    def __init__(self, table):
        self.table = np.asarray(table, "float32")
        self.log_probabilities = self.table - np.log(
            np.exp(self.table.astype("float64")).sum(-1, keepdims=True)
        )

    def start(self, batch_size, max_length, context=None):
        return ops.zeros((), "int32"), ops.zeros((batch_size,), "int32")

    def step(self, token_ids, cache, padding_mask=None):
        count, row = cache
        return ops.take(self.table, token_ids, axis=0), (count + ops.shape(token_ids)[1], row)

    def sequences(self, first, length, length_penalty, end_id):
        """All that can follow the token `first`: [(score, tokens)], the best first."""
        found = []
        for n in range(1, length + 1):
            for tokens in itertools.product(range(len(self.table)), repeat=n):
                if end_id in tokens[:-1] or (n < length and tokens[-1] != end_id):
                    continue
                score = sum(self.log_probabilities[a, b] for a, b in itertools.pairwise((first, *tokens)))
                found.append((score / n**length_penalty, tokens))
        return sorted(found, reverse=True)


def markov(size=5, seed=0, scale=2.0):
    """A table drawn at random."""
    return Markov(np.random.default_rng(seed).normal(size=(size, size)) * scale)
