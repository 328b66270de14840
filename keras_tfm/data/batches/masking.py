"""Masking for pre-training, in the graph: it chooses the tokens to predict and replaces them.

By default 15 % of the tokens that are not special are chosen; 80 % of these become [MASK], 10 % a random
token, and 10 % stay (Devlin et al. 2019, section 3.1). The units of choice are tokens, whole words (the
authors' release of 2019) or spans of words (Joshi et al. 2020, "SpanBERT", section 3.1). Here spans do not
touch each other, so that the tokens beside a span are never masked. Every draw is a function of a seed.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

MAX_SPAN, SPAN_END = 10, 0.2  # words in a span: a geometric distribution, truncated at the longest
MAX_TRIES = 48  # attempts to place spans in a row; nearly all rows need fewer
BY_UNIT = ("token", "word", "span")
NOT_CHOSEN = -1  # a replacement that means: the token stays and is not predicted


class Masking:
    """Masks ids (B, S): `masking(token_ids, seed, num_positions) -> (inputs, labels, weights)`.

    Args:
        begins_word: (V,), True for pieces that begin a word.
        special_ids: ids that are neither chosen nor used as random replacements.
        mask_id: the id of the mask token.
        unit: the unit of choice: "token", "word" or "span".
        share: the share of a row's tokens to choose. A fraction of a token is rounded up or down at random,
            so that the mean is exact. Words that would exceed it are skipped, spans are cut.
        mask_share, random_share: the shares of the chosen tokens that become `mask_id`, or random tokens; a
            span is treated as a whole.

    Raises:
        ValueError: for another unit, or shares out of range.

    >>> masking = keras_tfm.data.Masking(np.ones(50, bool), special_ids=[0, 1, 2], mask_id=2, share=0.5)
    >>> inputs, labels, weights = masking(np.array([[11, 12, 13, 14]]), seed=[1, 2], num_positions=2)
    >>> inputs["mask_positions"].shape, weights.numpy().tolist()
    (TensorShape([1, 2]), [[1.0, 1.0]])
    """

    def __init__(
        self,
        begins_word: Sequence[bool] | np.ndarray,
        special_ids: Iterable[int],
        mask_id: int,
        unit: str = "token",
        share: float = 0.15,
        mask_share: float = 0.8,
        random_share: float = 0.1,
    ) -> None:
        if unit not in BY_UNIT:
            raise ValueError(f"unit: expected one of {', '.join(BY_UNIT)}, got {unit!r}")
        for name, value in (("share", share), ("mask_share", mask_share), ("random_share", random_share)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name}: expected 0 to 1, got {value}")
        if mask_share + random_share > 1:
            raise ValueError(
                f"mask_share + random_share: expected 1 at most, got {mask_share + random_share}"
            )
        self.unit, self.share = unit, share
        self.mask_share, self.random_share = mask_share, random_share
        self._begins_word = tf.constant(np.asarray(begins_word, bool))
        self._special_ids = sorted(set(special_ids))
        self._mask_id = mask_id

    @classmethod
    def of(cls, tokenizer, unit="token", **shares) -> "Masking":
        """The masking for a `tokenizer` that has `begins_word`, `special_ids` and `mask_id`."""
        return cls(tokenizer.begins_word, tokenizer.special_ids, tokenizer.mask_id, unit, **shares)

    def max_positions(self, num_tokens: int) -> int:
        """How many tokens are chosen at most in a row of `num_tokens` that are not special."""
        return int(np.ceil(self.share * num_tokens))

    def __call__(self, token_ids: tf.Tensor, seed: tf.Tensor, num_positions: int) -> tuple:
        """(inputs, labels, weights) as `replace` returns them, for ids (B, S) and a `seed` (2,).

        `num_positions` must be at least `share` of S.
        """
        return self.replace(token_ids, self.draw(token_ids, seed, num_positions), num_positions)

    def draw(self, token_ids: tf.Tensor, seed: tf.Tensor, num_positions: int) -> tf.Tensor:
        """Random `replacements` (B, S), as `replace` takes them; at most `num_positions` in a row."""
        seeds = tf.unstack(tf.random.split(tf.cast(seed, tf.int32), 4, alg="philox"))
        token_ids = tf.cast(token_ids, tf.int32)
        eligible = self.eligible(token_ids)
        begins = tf.gather(self._begins_word, token_ids) if self.unit != "token" else tf.ones_like(eligible)
        wanted = self.share * tf.reduce_sum(tf.cast(eligible, tf.float32), axis=1)
        budget = tf.cast(wanted + _uniform(seeds[0], tf.shape(wanted)), tf.int32)  # (B,)
        budget = tf.minimum(budget, num_positions)
        choose = choose_spans if self.unit == "span" else choose_words
        chosen, groups = choose(eligible, begins, budget, seeds[1])
        return tf.where(chosen, self._replacements(token_ids, groups, seeds[2], seeds[3]), NOT_CHOSEN)

    def replace(self, token_ids: tf.Tensor, replacements: tf.Tensor, num_positions: int | None = None):
        """(inputs, labels, weights) of ids (B, S) for given `replacements` (B, S).

        A replacement is the new id of a chosen token, perhaps its own, and `NOT_CHOSEN` for all others.

        inputs["token_ids"]        (B, S)     int32    with tokens masked
        inputs["mask_positions"]   (B, M)     int32    ascending
        inputs["span_boundaries"]  (B, M, 2)  int32    with spans: positions before and after each one's span
        labels                     (B, M)     int32    the original ids
        weights                    (B, M)     float32  1.0, and 0.0 where fewer than M are chosen

        M is `num_positions`, by default the largest number in a row. More chosen tokens, or ids outside the
        vocabulary, raise InvalidArgumentError. With the unit "span", adjacent chosen tokens form one span.
        """
        token_ids, replacements = (tf.cast(x, tf.int32) for x in (token_ids, replacements))
        chosen = replacements != NOT_CHOSEN
        count = tf.reduce_max(tf.reduce_sum(tf.cast(chosen, tf.int32), axis=1))
        num_positions = tf.maximum(count, 0) if num_positions is None else num_positions
        size = self._begins_word.shape[0]
        checks = [
            tf.debugging.assert_equal(
                tf.shape(replacements), tf.shape(token_ids), "replacements: expected the shape of token_ids"
            ),
            tf.debugging.assert_less_equal(
                count, num_positions, "replacements: expected num_positions a row at most"
            ),
            tf.debugging.assert_equal(
                (replacements >= NOT_CHOSEN) & (replacements < size),
                True,
                f"replacements: expected ids below {size} or NOT_CHOSEN, {NOT_CHOSEN}",
            ),
        ]
        with tf.control_dependencies([check for check in checks if check is not None]):  # None where eager
            positions, weights = _positions_of(chosen, num_positions)
        inputs = {"token_ids": tf.where(chosen, replacements, token_ids), "mask_positions": positions}
        if self.unit == "span":
            boundaries = tf.gather(_boundaries(chosen), positions, batch_dims=1)  # (B, M, 2)
            inputs["span_boundaries"] = tf.where(weights[..., None] > 0, boundaries, 0)
            # Positions that only fill up the row become 1, right after their boundary (0, 0).
            inputs["mask_positions"] += tf.cast(weights == 0, tf.int32)
        labels = tf.gather(token_ids, positions, batch_dims=1)
        return inputs, tf.where(weights > 0, labels, 0), weights

    def eligible(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Which ids (B, S) may be chosen."""
        special = tf.constant(self._special_ids, tf.int32)
        return ~tf.reduce_any(token_ids[..., None] == special, axis=-1)

    def _replacements(self, token_ids, groups, decision_seed, id_seed):
        """The mask, a random id or the same id for every token; the first token of its group decides."""
        draws = tf.gather(_uniform(decision_seed, tf.shape(token_ids)), groups, batch_dims=1)
        size = self._begins_word.shape[0] - len(self._special_ids)
        others = tf.random.stateless_uniform(tf.shape(token_ids), id_seed, 0, size, tf.int32, alg="philox")
        for special_id in self._special_ids:  # in ascending order: each moves the drawn ids beyond itself
            others += tf.cast(others >= special_id, tf.int32)
        replaced = tf.where(draws < self.mask_share + self.random_share, others, token_ids)
        return tf.where(draws < self.mask_share, self._mask_id, replaced)


def choose_words(eligible, begins, budget, seed) -> tuple[tf.Tensor, tf.Tensor]:
    """Choose whole words in random order, except words that would exceed the `budget` (B,).

    Returns which tokens are chosen, (B, S), and the position of each, (B, S). If every token `begins` a word,
    the words are tokens.
    """
    words, _, lengths = _words(eligible, begins)
    first = tf.where(lengths > 0, _uniform(seed, tf.shape(words)), 2.0)
    order = tf.argsort(first, axis=1)
    lengths = tf.gather(lengths, order, batch_dims=1)

    def take(taken, left, _):
        """Take the next words up to the first that exceeds what is `left`; skip words that are too long."""
        fits = (lengths > 0) & ~taken & (lengths <= left[:, None])
        costs = tf.where(fits, lengths, 0)
        more = fits & (tf.cumsum(costs, axis=1) <= left[:, None])
        left -= tf.reduce_sum(tf.where(more, lengths, 0), axis=1)
        return taken | more, left, tf.reduce_any(more)

    taken, *_ = tf.while_loop(
        lambda taken, left, goes_on: goes_on, take, (tf.zeros_like(eligible), budget, tf.constant(True))
    )
    taken = tf.gather(taken, tf.argsort(order, axis=1), batch_dims=1)
    chosen = tf.gather(taken, words, batch_dims=1) & eligible
    return chosen, tf.zeros_like(words) + tf.range(tf.shape(words)[1])


def choose_spans(eligible, begins, budget, seed) -> tuple[tf.Tensor, tf.Tensor]:
    """Choose spans of words until the `budget` (B,) is spent; the last span is cut to it.

    Lengths are drawn by `span_lengths`, places uniformly. Returns which tokens are chosen, (B, S), and where
    each one's span begins, (B, S), or its own position for the others. A span consists of eligible tokens and
    does not touch another one.
    """
    words, starts, lengths = _words(eligible, begins)
    places = tf.range(tf.shape(words)[1])
    ends = tf.gather(starts + lengths, words, batch_dims=1)  # (B, S) where the token's word ends
    is_start = eligible & (tf.gather(starts, words, batch_dims=1) == places)

    def place(attempt, chosen, groups, left):
        seeds = tf.unstack(tf.random.split(tf.random.fold_in(seed, attempt, alg="philox"), 2, alg="philox"))
        scores = tf.where(is_start, _uniform(seeds[0], tf.shape(words)), -1.0)
        start = tf.argmax(scores, axis=1, output_type=tf.int32)[:, None]  # (B, 1)
        first = tf.gather(words, start, batch_dims=1)
        last = first + span_lengths(tf.shape(first), seeds[1])
        whole = (words >= first) & (words < last)
        span = whole & (ends - start <= left[:, None])
        beside = tf.pad(chosen, [[0, 0], [1, 1]])
        beside = beside[:, :-2] | beside[:, 1:-1] | beside[:, 2:]
        is_free = tf.reduce_all(~whole | (eligible & ~beside), axis=1, keepdims=True)
        reaches = tf.reduce_max(tf.where(whole, words, -1), axis=1, keepdims=True) == last - 1
        span = span & is_free & reaches
        left -= tf.reduce_sum(tf.cast(span, tf.int32), axis=1)
        return attempt + 1, chosen | span, tf.where(span, start, groups), left

    state = (0, tf.zeros_like(eligible), tf.zeros_like(words) + places, budget)
    _, chosen, groups, _ = tf.while_loop(
        lambda attempt, chosen, groups, left: tf.reduce_any(left > 0), place, state,
        maximum_iterations=MAX_TRIES,
    )  # fmt: skip
    return chosen, groups


def span_lengths(shape, seed) -> tf.Tensor:
    """Numbers of words from 1 to 10, int32, from a truncated geometric distribution, p = 0.2 (mean 3.80)."""
    probabilities = SPAN_END * (1 - SPAN_END) ** np.arange(MAX_SPAN)
    limits = np.cumsum(probabilities / probabilities.sum())[:-1].astype("float32")
    return 1 + tf.reduce_sum(tf.cast(_uniform(seed, shape)[..., None] >= limits, tf.int32), axis=-1)


def _words(eligible, begins) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The words in rows of tokens; a token that is not eligible is a word of its own.

    Returns the number of each token's word, (B, S), and for each number the word's start and its count of
    eligible tokens, (B, S) each, 0 after the last word.
    """
    apart = ~eligible
    begins = begins | apart | tf.pad(apart[:, :-1], [[0, 0], [1, 0]], constant_values=True)
    words = tf.cumsum(tf.cast(begins, tf.int32), axis=1) - 1  # (B, S)
    shape = tf.shape(words)
    rows = words + shape[1] * tf.range(shape[0])[:, None]
    places = tf.zeros_like(words) + tf.range(shape[1])

    def by_word(values):
        return tf.reshape(tf.math.unsorted_segment_sum(values, rows, tf.size(words)), shape)

    return words, by_word(tf.where(begins, places, 0)), by_word(tf.cast(eligible, tf.int32))


def _boundaries(chosen) -> tf.Tensor:
    """The positions before and after each token's run of `chosen` tokens (B, S): (B, S, 2)."""
    goes_on = chosen & tf.pad(chosen, [[0, 0], [1, 0]])[:, :-1]
    runs = tf.cumsum(tf.cast(~goes_on, tf.int32), axis=1)  # ascending: a run is a stretch of one number
    return tf.stack([tf.searchsorted(runs, runs) - 1, tf.searchsorted(runs, runs, side="right")], axis=-1)


def _positions_of(chosen, num_positions) -> tuple[tf.Tensor, tf.Tensor]:
    """The positions (B, M) of `chosen` tokens (B, S), filled up with 0, and weights that are 0.0 there."""
    size = tf.shape(chosen)[1]
    backwards = tf.where(chosen, size - tf.range(size), 0)
    backwards = tf.pad(backwards, [[0, 0], [0, tf.maximum(0, num_positions - size)]])
    values, _ = tf.math.top_k(backwards, num_positions)  # (B, M)
    return tf.where(values > 0, size - values, 0), tf.cast(values > 0, tf.float32)


def _uniform(seed, shape) -> tf.Tensor:
    return tf.random.stateless_uniform(shape, seed, alg="philox")
