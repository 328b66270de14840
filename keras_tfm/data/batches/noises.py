"""BART's noises, in the graph: changes of a text that a model learns to undo.

Lewis et al. 2020, "BART", section 2.2: token masking, token deletion, text infilling, sentence permutation
and document rotation. Each is a function `noise(token_ids, seed)` of ragged ids (B, None) without special
tokens, and returns ragged ids; every draw is a function of the seed. `Denoising` applies several one after
another, and `OneOf` one of several for each text.

    original             A B C . D E .
    TokenMasking         A _ C . _ E .
    TokenDeletion        A C . E .
    TextInfilling        A _ . D _ E .      one mask for "B C", one for an empty span
    SentencePermutation  D E . A B C .
    DocumentRotation     C . D E . A B
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_tfm.serving.examples import shown

Noise = Callable[[tf.RaggedTensor, tf.Tensor], tf.RaggedTensor]


def check_ragged(token_ids: Any) -> None:
    """Raise ValueError unless `token_ids` are ragged: of padding in an array nothing says that it is."""
    if not isinstance(token_ids, tf.RaggedTensor):
        raise ValueError(
            f"token_ids: expected a RaggedTensor (B, None), got {shown(token_ids)}: "
            "`tf.RaggedTensor.from_tensor(token_ids, padding=pad_id)` makes one"
        )


@dataclasses.dataclass(frozen=True)
class TokenMasking:
    """Replaces a random `share` of a text's tokens by `mask_id`.

    A fraction of a token is rounded up or down at random, so that the mean is exact. Raises ValueError for a
    share outside [0, 1].

    >>> noise = keras_tfm.data.TokenMasking(mask_id=3, share=1.0)
    >>> noise(tf.ragged.constant([[11, 12], [13]]), seed=[1, 2]).to_list()
    [[3, 3], [3]]
    """

    mask_id: int
    share: float = 0.15

    def __post_init__(self):
        _check_share(self.share)

    def __call__(self, token_ids: tf.RaggedTensor, seed: tf.Tensor) -> tf.RaggedTensor:
        check_ragged(token_ids)
        is_masked = _drawn(token_ids, self.share, seed)
        tokens = tf.where(is_masked, self.mask_id, token_ids.to_tensor())
        return tf.RaggedTensor.from_tensor(tokens, lengths=token_ids.row_lengths())


@dataclasses.dataclass(frozen=True)
class TokenDeletion:
    """Removes a random `share` of a text's tokens; the model has to find where tokens are missing.

    A fraction of a token is rounded up or down at random; one token always stays. Raises ValueError for a
    share outside [0, 1].

    >>> noise = keras_tfm.data.TokenDeletion(share=0.5)
    >>> noise(tf.ragged.constant([[11, 12, 13, 14], [15]]), seed=[1, 2]).row_lengths().numpy().tolist()
    [2, 1]
    """

    share: float = 0.15

    def __post_init__(self):
        _check_share(self.share)

    def __call__(self, token_ids: tf.RaggedTensor, seed: tf.Tensor) -> tf.RaggedTensor:
        check_ragged(token_ids)
        tokens = token_ids.to_tensor()  # (B, S)
        is_text = tf.sequence_mask(token_ids.row_lengths(), tf.shape(tokens)[1])
        return tf.ragged.boolean_mask(tokens, is_text & ~_drawn(token_ids, self.share, seed, least_left=1))


@dataclasses.dataclass(frozen=True)
class TextInfilling:
    """Replaces spans of a text by one `mask_id` each.

    `share` of the tokens, rounded up, is removed in spans. Their lengths are drawn from Poisson(`mean_span`),
    the last one cut; a span of length 0 inserts a mask. All places are equally likely. Raises ValueError for
    numbers out of range.

    >>> noise = keras_tfm.data.TextInfilling(mask_id=3, share=0.5, mean_span=2.0)
    >>> text = noise(tf.ragged.constant([[11, 12, 13, 14]]), seed=[1, 2]).to_list()[0]
    >>> [token for token in text if token != 3].__len__()  # two of four tokens stay
    2
    """

    mask_id: int
    share: float = 0.3
    mean_span: float = 3.0

    def __post_init__(self):
        if not 0 <= self.share < 1 or self.mean_span <= 0:
            raise ValueError(
                "share, mean_span: expected 0 <= share < 1 and more than 0, "
                f"got {self.share} and {self.mean_span}"
            )

    def __call__(self, token_ids: tf.RaggedTensor, seed: tf.Tensor) -> tf.RaggedTensor:
        check_ragged(token_ids)
        lengths = tf.cast(token_ids.row_lengths(), tf.int32)
        tokens = token_ids.to_tensor()  # (B, S)
        num_rows, width = tf.unstack(tf.shape(tokens))
        seeds = tf.unstack(tf.random.split(seed, 2, alg="philox"))
        budget = tf.cast(tf.math.ceil(self.share * tf.cast(lengths, tf.float32)), tf.int32)
        # 2 S spans: all but a vanishing share of texts use up their budget with fewer.
        drawn = tf.random.stateless_poisson([num_rows, 2 * width], seeds[0], self.mean_span, tf.int32)
        before = tf.cumsum(drawn, axis=1, exclusive=True)
        is_used = before < budget[:, None]
        spans = tf.where(is_used, tf.minimum(drawn, budget[:, None] - before), 0)  # (B, 2 S) lengths
        num_spans = tf.reduce_sum(tf.cast(is_used, tf.int32), axis=1)
        num_units = lengths - tf.reduce_sum(spans, axis=1) + num_spans  # what stays, and the masks
        is_mask = choose(num_units, num_spans, 3 * width, seeds[1])  # (B, 3 S)
        masks = tf.cumsum(tf.cast(is_mask, tf.int32), axis=1, exclusive=True)
        skipped = tf.pad(tf.cumsum(spans, axis=1), [[0, 0], [1, 0]])
        skipped = tf.gather(skipped, tf.minimum(masks, 2 * width), batch_dims=1)
        place = tf.range(3 * width) - masks + skipped
        units = tf.gather(tokens, tf.clip_by_value(place, 0, tf.maximum(width - 1, 0)), batch_dims=1)
        return tf.RaggedTensor.from_tensor(tf.where(is_mask, self.mask_id, units), lengths=num_units)


@dataclasses.dataclass(frozen=True)
class SentencePermutation:
    """Puts the sentences of each text into a random order; a sentence ends with one of `sentence_end_ids`.

    >>> noise = keras_tfm.data.SentencePermutation(sentence_end_ids=[9])
    >>> sorted(noise(tf.ragged.constant([[11, 9, 12, 13, 9]]), seed=[1, 2]).to_list()[0])
    [9, 9, 11, 12, 13]
    """

    sentence_end_ids: Sequence[int]

    def __call__(self, token_ids: tf.RaggedTensor, seed: tf.Tensor) -> tf.RaggedTensor:
        check_ragged(token_ids)
        tokens = token_ids.to_tensor()  # (B, S)
        ends = tf.constant(self.sentence_end_ids, tokens.dtype)
        is_end = tf.reduce_any(tokens[..., None] == ends, axis=-1)
        sentence = tf.cumsum(tf.cast(is_end, tf.int32), axis=1, exclusive=True)
        draws = tf.random.stateless_uniform(tf.shape(tokens), seed)
        is_text = tf.sequence_mask(token_ids.row_lengths(), tf.shape(tokens)[1])
        keys = tf.where(is_text, tf.gather(draws, sentence, batch_dims=1), 2.0)
        return _taken(token_ids, tf.argsort(keys, axis=1, stable=True))


@dataclasses.dataclass(frozen=True)
class DocumentRotation:
    """Rotates each text so that it begins with a random one of its tokens.

    >>> noise = keras_tfm.data.DocumentRotation()
    >>> noise(tf.ragged.constant([[11, 12, 13]]), seed=[1, 2]).row_lengths().numpy().tolist()
    [3]
    """

    def __call__(self, token_ids: tf.RaggedTensor, seed: tf.Tensor) -> tf.RaggedTensor:
        check_ragged(token_ids)
        lengths = tf.cast(token_ids.row_lengths(), tf.int32)[:, None]  # (B, 1)
        draws = tf.random.stateless_uniform(tf.shape(lengths), seed)
        first = tf.cast(draws * tf.cast(lengths, tf.float32), tf.int32)
        places = first + tf.range(tf.cast(token_ids.bounding_shape(1), tf.int32))  # (B, S)
        return _taken(token_ids, places % tf.maximum(lengths, 1))


@dataclasses.dataclass(frozen=True)
class OneOf:
    """Applies a random one of `noises` to each text. Raises ValueError if there are none.

    >>> noise = keras_tfm.data.OneOf([keras_tfm.data.TokenMasking(3, 1.0), keras_tfm.data.TokenDeletion(0.0)])
    >>> noise(tf.ragged.constant([[11, 12]]), seed=[1, 2]).to_list() in ([[3, 3]], [[11, 12]])
    True
    """

    noises: Sequence[Noise]

    def __post_init__(self):
        if not self.noises:
            raise ValueError("noises: expected one or more, got none")

    def __call__(self, token_ids: tf.RaggedTensor, seed: tf.Tensor) -> tf.RaggedTensor:
        check_ragged(token_ids)
        seeds = tf.unstack(tf.random.split(seed, 1 + len(self.noises), alg="philox"))
        texts = [noise(token_ids, own) for noise, own in zip(self.noises, seeds[1:], strict=True)]
        num_rows = tf.cast(token_ids.nrows(), tf.int32)
        chosen = tf.random.stateless_uniform([num_rows], seeds[0], 0, len(self.noises), tf.int32)
        return tf.gather(tf.concat(texts, axis=0), chosen * num_rows + tf.range(num_rows))


def choose(num_items: tf.Tensor, num_chosen: tf.Tensor, width, seed: tf.Tensor) -> tf.Tensor:
    """A random choice of `num_chosen` among the first `num_items` of each row: (B, width), bool."""
    draws = tf.random.stateless_uniform([tf.shape(num_items)[0], width], seed)
    draws = tf.where(tf.sequence_mask(num_items, width), draws, 2.0)
    rank = tf.argsort(tf.argsort(draws, axis=1), axis=1)
    return rank < num_chosen[:, None]


def _drawn(token_ids, share, seed, least_left=0):
    """A random `share` of each text's tokens, but at least `least_left` not chosen: (B, S), bool."""
    lengths = tf.cast(token_ids.row_lengths(), tf.int32)
    seeds = tf.unstack(tf.random.split(seed, 2, alg="philox"))
    wanted = share * tf.cast(lengths, tf.float32)
    count = tf.cast(wanted + tf.random.stateless_uniform(tf.shape(lengths), seeds[0]), tf.int32)
    count = tf.minimum(count, tf.maximum(lengths - least_left, 0))
    return choose(lengths, count, tf.cast(token_ids.bounding_shape(1), tf.int32), seeds[1])


def _taken(token_ids, places):
    """The tokens at `places` (B, S) of each text, with its length unchanged."""
    tokens = tf.gather(token_ids.to_tensor(), places, batch_dims=1)
    return tf.RaggedTensor.from_tensor(tokens, lengths=token_ids.row_lengths())


def _check_share(share):
    if not 0 <= share <= 1:
        raise ValueError(f"share: expected 0 to 1, got {share}")
