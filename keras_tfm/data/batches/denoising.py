"""Denoising objectives for encoder-decoders, in the graph: T5's span corruption and BART's denoising.

`SpanCorruption` replaces spans of a text by sentinels, and the target consists of these spans (Raffel et al.
2020, section 3.1.4). `Denoising` applies noises to a text, and the target is the whole text (Lewis et al.
2020, section 2.2). Every draw is a function of a seed.
"""

from collections.abc import Sequence

import tensorflow as tf

from keras_tfm.data.batches.epochs import Batches, shuffled
from keras_tfm.data.batches.noises import Noise, check_ragged, choose


class SpanCorruption:
    """T5's span corruption: `corruption(token_ids, seed) -> (inputs, labels, weights)`.

    The ids (B, None) have no special tokens. All ways to choose the spans are equally likely, except that the
    first token of a text always stays. More spans than sentinels raise InvalidArgumentError.

    Args:
        sentinel_ids: the ids that replace the spans, the first one first. In the target each sentinel
            precedes its span.
        start_id: the decoder's first token.
        end_id: ends source and target.
        pad_id: pads both.
        share: the share of a text's tokens that are in spans.
        mean_span: the mean length of a span.

    Raises:
        ValueError: for numbers out of range, or no sentinels.

    >>> corruption = keras_tfm.data.SpanCorruption([2, 3], start_id=0, end_id=1)
    >>> inputs, labels, weights = corruption(tf.ragged.constant([[11, 12, 13, 14, 15, 16]]), seed=[1, 2])
    >>> inputs["token_ids"].shape, labels.shape  # a sentinel for one token, and the end; both and that token
    (TensorShape([1, 7]), TensorShape([1, 3]))
    """

    def __init__(
        self,
        sentinel_ids: Sequence[int],
        start_id: int,
        end_id: int,
        pad_id: int = 0,
        share: float = 0.15,
        mean_span: float = 3.0,
    ) -> None:
        if not 0 < share < 1 or mean_span < 1 or not len(sentinel_ids):
            raise ValueError(
                "share, mean_span, sentinel_ids: expected 0 < share < 1, 1 or more, and some, "
                f"got {share}, {mean_span} and {len(sentinel_ids)}"
            )
        self.share, self.mean_span = share, mean_span
        self._sentinel_ids = tf.constant(sentinel_ids, tf.int32)
        self._start_id, self._end_id, self._pad_id = start_id, end_id, pad_id

    @classmethod
    def of(cls, tokenizer, **options) -> "SpanCorruption":
        """The corruption for the ids of a `tokenizer` that has `sentinel_ids`."""
        ids = tokenizer.sentinel_ids, tokenizer.start_id, tokenizer.end_id, tokenizer.pad_id
        return cls(*ids, **options)

    def __call__(self, token_ids: tf.RaggedTensor, seed: tf.Tensor) -> tuple:
        check_ragged(token_ids)
        lengths = tf.cast(token_ids.row_lengths(), tf.int32)
        width = tf.cast(token_ids.bounding_shape(1), tf.int32)
        return self.take_out(token_ids, self.noise(lengths, width, seed))

    def take_out(self, token_ids: tf.RaggedTensor, is_noise: tf.Tensor) -> tuple:
        """`(inputs, labels, weights)` for chosen tokens.

        `is_noise`, bool, is True for the tokens to remove; it is ragged like the ids, or (B, S) with the
        length of the longest text. Adjacent tokens form one span. The text after the last span has a sentinel
        in the target too, as in the paper's figure 2:

        Thank you <X> me to your party <Y> week    ->    <X> for inviting <Y> last <Z>
        """
        check_ragged(token_ids)
        if isinstance(is_noise, tf.RaggedTensor):
            is_noise = is_noise.to_tensor()
        tokens = tf.cast(token_ids.to_tensor(), tf.int32)  # (B, S)
        is_text = tf.sequence_mask(token_ids.row_lengths(), tf.shape(tokens)[1])
        tf.debugging.assert_equal(
            tf.shape(is_noise), tf.shape(tokens), "is_noise: expected the shape of token_ids"
        )
        is_noise, is_kept = is_noise & is_text, ~is_noise & is_text
        source = self._marked(tokens, is_kept, is_noise)
        # A text that begins with a span needs an additional sentinel in front of the span.
        front = tf.reduce_any(is_noise[:, :1], axis=1, keepdims=True)
        target = self._marked(
            tf.pad(tokens, [[0, 0], [1, 0]]),
            tf.pad(is_noise, [[0, 0], [1, 0]]),
            tf.concat([front, is_kept], axis=1),
        )
        ends = tf.fill([token_ids.nrows(), 1], self._end_id)
        source, target = (tf.concat([text, ends], axis=1) for text in (source, target))
        return _to_batch(source, target, self._start_id, self._pad_id)

    def noise(self, lengths: tf.Tensor, width: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Which tokens of texts of `lengths` (B,) are removed: (B, `width`), bool."""
        size = tf.cast(lengths, tf.float32)
        num_noise = tf.clip_by_value(tf.cast(tf.round(size * self.share), tf.int32), 1, lengths - 1)
        num_noise = tf.where(lengths < 2, 0, num_noise)
        num_spans = tf.cast(tf.round(tf.cast(num_noise, tf.float32) / self.mean_span), tf.int32)
        num_spans = tf.clip_by_value(num_spans, 1, tf.minimum(num_noise, lengths - num_noise))
        seeds = tf.unstack(tf.random.split(seed, 2, alg="philox"))
        parts = [
            _partition(count, num_spans, width, part)
            for count, part in zip((lengths - num_noise, num_noise), seeds, strict=True)
        ]
        runs = tf.reshape(tf.stack(parts, axis=2), [tf.shape(lengths)[0], -1])  # kept, taken, kept, ...
        places = tf.broadcast_to(tf.range(width), [tf.shape(lengths)[0], width])
        run = tf.searchsorted(tf.cumsum(runs, axis=1), places, side="right")
        return (run % 2 == 1) & tf.sequence_mask(lengths, width) & (num_noise > 0)[:, None]

    def _marked(self, tokens, stays, goes) -> tf.RaggedTensor:
        """The tokens (B, S) where `stays`, and one sentinel for each run of tokens where `goes`."""
        begins = goes & ~tf.pad(goes[:, :-1], [[0, 0], [1, 0]])
        number = tf.cumsum(tf.cast(begins, tf.int32), axis=1)
        most = tf.size(self._sentinel_ids)
        check = tf.debugging.assert_less_equal(number, most, "More spans than sentinels: shorten the texts.")
        with tf.control_dependencies([check] if check is not None else []):  # None where it is eager
            sentinels = tf.gather(self._sentinel_ids, tf.clip_by_value(number - 1, 0, most - 1))
        return tf.ragged.boolean_mask(tf.where(begins, sentinels, tokens), stays | begins)


class Denoising:
    """BART's denoising: `denoising(token_ids, seed) -> (inputs, labels, weights)`.

    The ids (B, None) have no special tokens. The target is the unchanged text. BART was trained with
    permuted sentences and 30 % of the tokens infilled, as in the example.

    Args:
        noises: applied to the source one after another; see `keras_tfm.data.batches.noises`.
        begin_id, end_id: begin and end source and target.
        pad_id: pads both.
        start_id: the decoder's first token, by default `end_id`.

    >>> noises = [keras_tfm.data.SentencePermutation([9]), keras_tfm.data.TextInfilling(mask_id=3)]
    >>> denoising = keras_tfm.data.Denoising(noises, begin_id=0, end_id=2, pad_id=1)
    >>> inputs, labels, weights = denoising(tf.ragged.constant([[11, 12, 9, 13, 14, 9]]), seed=[1, 2])
    >>> labels.numpy().tolist()
    [[0, 11, 12, 9, 13, 14, 9, 2]]
    """

    def __init__(
        self,
        noises: Sequence[Noise],
        begin_id: int,
        end_id: int,
        pad_id: int,
        start_id: int | None = None,
    ):
        self.noises = tuple(noises)
        self._begin_id, self._end_id, self._pad_id = begin_id, end_id, pad_id
        self._start_id = end_id if start_id is None else start_id

    def __call__(self, token_ids: tf.RaggedTensor, seed: tf.Tensor) -> tuple:
        check_ragged(token_ids)
        source = token_ids = tf.cast(token_ids, tf.int32)
        for number, noise in enumerate(self.noises):
            source = noise(source, tf.random.fold_in(seed, number, alg="philox"))
        begins, ends = (tf.fill([token_ids.nrows(), 1], x) for x in (self._begin_id, self._end_id))
        source, target = (tf.concat([begins, text, ends], axis=1) for text in (source, token_ids))
        return _to_batch(source, target, self._start_id, self._pad_id)


class DenoisingBatches(Batches):
    """Batches of texts, ids (N, None), to which a `SpanCorruption` or `Denoising` is applied.

    An epoch has each text once, in `num_batches` batches of `batch_size`, the last of which may be smaller.
    Every epoch has other corruptions and another order; both follow from `seed` and the epoch's number.
    Raises ValueError if there is no text.

    >>> token_ids = keras_tfm.data.CharacterTokenizer("abc").tokenize(["abba", "cab"])
    >>> corruption = keras_tfm.data.SpanCorruption(sentinel_ids=[7, 8], start_id=1, end_id=2)
    >>> batches = keras_tfm.data.DenoisingBatches(token_ids, corruption, batch_size=2)
    >>> inputs, labels, weights = next(iter(batches.dataset()))
    >>> inputs["token_ids"].shape, labels.shape
    (TensorShape([2, 5]), TensorShape([2, 3]))
    """

    def __init__(
        self,
        token_ids: tf.RaggedTensor,
        corruption: SpanCorruption | Denoising,
        batch_size: int = 32,
        seed: int = 0,
    ) -> None:
        check_ragged(token_ids)
        self.num_texts = int(token_ids.nrows())
        if not self.num_texts or batch_size < 1:
            raise ValueError(
                f"token_ids, batch_size: expected 1 or more, got {self.num_texts} and {batch_size}"
            )
        self.num_batches = -(-self.num_texts // batch_size)
        self._batch_size, self._seed, self._corruption = batch_size, seed, corruption
        with tf.device("cpu"):  # they may be larger than an accelerator's memory
            self._token_ids = tf.identity(token_ids)

    def _epoch(self, number: tf.Tensor) -> tf.data.Dataset:
        rows = shuffled(self.num_texts, self._seed, number)
        seed = tf.stack([tf.constant(self._seed, tf.int64), number])

        def batch(index):
            texts = tf.gather(self._token_ids, rows[index * self._batch_size :][: self._batch_size])
            return self._corruption(texts, tf.random.fold_in(seed, index, alg="philox"))

        return tf.data.Dataset.range(self.num_batches).map(batch)


def _partition(num_items, num_parts, width, seed) -> tf.Tensor:
    """A random partition of `num_items` (B,) into `num_parts` (B,) runs of at least one: (B, width)."""
    begins = tf.pad(choose(num_items - 1, num_parts - 1, width, seed), [[0, 0], [1, 0]])[:, :-1]
    part = tf.cumsum(tf.cast(begins, tf.int32), axis=1)
    part = part + width * tf.range(tf.shape(num_items)[0])[:, None]
    is_item = tf.cast(tf.sequence_mask(num_items, width), tf.int32)
    counts = tf.math.unsorted_segment_sum(is_item, part, tf.size(is_item))
    return tf.reshape(counts, tf.shape(is_item))


def _to_batch(source: tf.RaggedTensor, target: tf.RaggedTensor, start_id, pad_id) -> tuple:
    """`(inputs, labels, weights)` as `keras_tfm.data` documents them, of ids that end in the end token."""
    labels = target.to_tensor(pad_id)  # (B, T)
    mask = tf.ones_like(target, tf.bool).to_tensor(False)
    starts = tf.fill([target.nrows(), 1], start_id)
    inputs = {
        "token_ids": source.to_tensor(pad_id),  # (B, S)
        "padding_mask": tf.ones_like(source, tf.bool).to_tensor(False),
        "decoder_token_ids": tf.concat([starts, target[:, :-1]], axis=1).to_tensor(pad_id),
        "decoder_padding_mask": mask,
    }
    return inputs, labels, tf.cast(mask, tf.float32)
