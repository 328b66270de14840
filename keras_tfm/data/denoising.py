"""Texts spoilt for an encoder-decoder to mend, in the graph: T5's span corruption and BART's denoising.

`SpanCorruption` takes spans out of a text and asks for them alone, each by its sentinel (Raffel et al. 2020,
section 3.1.4). `Denoising` puts one mask for each span, shuffles the sentences, and asks for the whole text
(Lewis et al. 2020, section 2.2). Every draw is a function of a seed.
"""

from collections.abc import Sequence

import tensorflow as tf

from keras_tfm.data.epochs import finished, one_after_another, shuffled


class SpanCorruption:
    """`corruption(token_ids, seed)` of ids (B, None) without special tokens: `(inputs, labels, weights)`.

    `share` of a text's tokens, rounded, is taken out in spans of `mean_span` on average, rounded to a number
    of spans; all such partitions are equally likely, and a text of two tokens or more begins with one that
    stays. A span becomes the next of `sentinel_ids`, and the target is each sentinel with its span, then
    `end_id`. More spans than sentinels raise InvalidArgumentError, numbers that cannot be ValueError.
    """

    def __init__(self, sentinel_ids, start_id, end_id, pad_id=0, share=0.15, mean_span=3.0):
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
        """Corrupts what `tokenizer` gives, one with `sentinel_ids`."""
        ids = tokenizer.sentinel_ids, tokenizer.start_id, tokenizer.end_id, tokenizer.pad_id
        return cls(*ids, **options)

    def __call__(self, token_ids: tf.RaggedTensor, seed: tf.Tensor) -> tuple:
        lengths = tf.cast(token_ids.row_lengths(), tf.int32)
        tokens = tf.cast(token_ids.to_tensor(), tf.int32)  # (B, S)
        is_noise = self.noise(lengths, tf.shape(tokens)[1], seed)
        is_kept = tf.sequence_mask(lengths, tf.shape(tokens)[1]) & ~is_noise
        source, target = (
            self._marked(tokens, stays, goes) for stays, goes in ((is_kept, is_noise), (is_noise, is_kept))
        )
        ends = tf.fill([token_ids.nrows(), 1], self._end_id)
        source, target = (tf.concat([text, ends], axis=1) for text in (source, target))
        return _to_batch(source, target, self._start_id, self._pad_id)

    def noise(self, lengths: tf.Tensor, width: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Which of the tokens of texts of `lengths` (B,) are taken out: (B, `width`), bool."""
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
        """The tokens (B, S) that stay, and a sentinel for each run of those that go."""
        begins = goes & ~tf.pad(goes[:, :-1], [[0, 0], [1, 0]])
        number = tf.cumsum(tf.cast(begins, tf.int32), axis=1)
        most = tf.size(self._sentinel_ids)
        check = tf.debugging.assert_less_equal(number, most, "More spans than sentinels: shorten the texts.")
        with tf.control_dependencies([check] if check is not None else []):  # None where it is eager
            sentinels = tf.gather(self._sentinel_ids, tf.clip_by_value(number - 1, 0, most - 1))
        return tf.ragged.boolean_mask(tf.where(begins, sentinels, tokens), stays | begins)


class Denoising:
    """`denoising(token_ids, seed)` of ids (B, None) without special tokens: `(inputs, labels, weights)`.

    The source is `begin_id`, the text's sentences, which end in one of `sentence_end_ids`, in another order,
    and `end_id`; of its tokens `share`, rounded up, is taken out in spans of lengths drawn from
    Poisson(`mean_span`), the last one cut, each of which becomes one `mask_id`: so one of length 0 puts it in
    between. All places for the spans are equally likely. The target is `begin_id`, the text as it was, and
    `end_id`; the decoder's first token is `start_id`, by default `end_id`. ValueError for impossible numbers.
    """

    def __init__(
        self,
        mask_id: int,
        begin_id: int,
        end_id: int,
        pad_id: int,
        sentence_end_ids: Sequence[int] = (),
        *,
        start_id: int | None = None,
        share: float = 0.3,
        mean_span: float = 3.0,
    ):
        if not 0 <= share < 1 or mean_span <= 0:
            raise ValueError(
                f"share, mean_span: expected 0 <= share < 1 and more than 0, got {share} and {mean_span}"
            )
        self.share, self.mean_span = share, mean_span
        self._mask_id, self._begin_id, self._end_id, self._pad_id = mask_id, begin_id, end_id, pad_id
        self._start_id = end_id if start_id is None else start_id
        self._sentence_end_ids = tuple(sentence_end_ids)

    def __call__(self, token_ids: tf.RaggedTensor, seed: tf.Tensor) -> tuple:
        seeds = tf.unstack(tf.random.split(seed, 2, alg="philox"))
        token_ids = tf.cast(token_ids, tf.int32)
        source = self.infill(self.permute(token_ids, seeds[0]), seeds[1])
        begins, ends = (tf.fill([token_ids.nrows(), 1], x) for x in (self._begin_id, self._end_id))
        source, target = (tf.concat([begins, text, ends], axis=1) for text in (source, token_ids))
        return _to_batch(source, target, self._start_id, self._pad_id)

    def permute(self, token_ids: tf.RaggedTensor, seed: tf.Tensor) -> tf.RaggedTensor:
        """The sentences of each text in any order."""
        tokens = token_ids.to_tensor()  # (B, S)
        is_end = tf.zeros_like(tokens, tf.bool)
        for token_id in self._sentence_end_ids:
            is_end = is_end | (tokens == token_id)
        sentence = tf.cumsum(tf.cast(is_end, tf.int32), axis=1, exclusive=True)
        draws = tf.random.stateless_uniform(tf.shape(tokens), seed)
        is_text = tf.sequence_mask(token_ids.row_lengths(), tf.shape(tokens)[1])
        keys = tf.where(is_text, tf.gather(draws, sentence, batch_dims=1), 2.0)
        order = tf.argsort(keys, axis=1, stable=True)
        return tf.RaggedTensor.from_tensor(
            tf.gather(tokens, order, batch_dims=1), lengths=token_ids.row_lengths()
        )

    def infill(self, token_ids: tf.RaggedTensor, seed: tf.Tensor) -> tf.RaggedTensor:
        """Each text with spans of it, some of them empty, replaced by a mask."""
        lengths = tf.cast(token_ids.row_lengths(), tf.int32)
        tokens = token_ids.to_tensor(self._pad_id)  # (B, S)
        num_rows, width = tf.unstack(tf.shape(tokens))
        seeds = tf.unstack(tf.random.split(seed, 2, alg="philox"))
        budget = tf.cast(tf.math.ceil(self.share * tf.cast(lengths, tf.float32)), tf.int32)
        # Twice the width: enough spans to use up the budget, but for one text in ever so many.
        drawn = tf.random.stateless_poisson([num_rows, 2 * width], seeds[0], self.mean_span, tf.int32)
        before = tf.cumsum(drawn, axis=1, exclusive=True)
        is_used = before < budget[:, None]
        spans = tf.where(is_used, tf.minimum(drawn, budget[:, None] - before), 0)  # (B, 2 S) lengths
        num_spans = tf.reduce_sum(tf.cast(is_used, tf.int32), axis=1)
        num_units = lengths - tf.reduce_sum(spans, axis=1) + num_spans  # what stays, and the masks
        is_mask = _choose(num_units, num_spans, 3 * width, seeds[1])  # (B, 3 S)
        masks = tf.cumsum(tf.cast(is_mask, tf.int32), axis=1, exclusive=True)
        skipped = tf.pad(tf.cumsum(spans, axis=1), [[0, 0], [1, 0]])
        skipped = tf.gather(skipped, tf.minimum(masks, 2 * width), batch_dims=1)
        place = tf.range(3 * width) - masks + skipped
        units = tf.gather(tokens, tf.clip_by_value(place, 0, tf.maximum(width - 1, 0)), batch_dims=1)
        return tf.RaggedTensor.from_tensor(tf.where(is_mask, self._mask_id, units), lengths=num_units)


class DenoisingBatches:
    """Batches of texts of ids (N, None) spoilt by `corruption`, a `SpanCorruption` or `Denoising`.

    An epoch has each text once, in `num_batches` batches of `batch_size`, the last of which may be smaller;
    in each it is drawn anew how texts are spoilt and which meet. All is fixed by `seed` and the epoch's
    number. ValueError where there is no text.
    """

    def __init__(self, token_ids: tf.RaggedTensor, corruption, batch_size: int = 32, seed: int = 0):
        self.num_texts = int(token_ids.nrows())
        if not self.num_texts or batch_size < 1:
            raise ValueError(
                f"token_ids, batch_size: expected 1 or more, got {self.num_texts} and {batch_size}"
            )
        self.num_batches = -(-self.num_texts // batch_size)
        self._batch_size, self._seed, self._corruption = batch_size, seed, corruption
        with tf.device("cpu"):  # they may be larger than an accelerator's memory
            self._token_ids = tf.identity(token_ids)

    def dataset(self, epoch: int = 0) -> tf.data.Dataset:
        """The batches of one epoch, which its number and the seed alone decide."""
        return finished(self._epoch(tf.constant(epoch, tf.int64)), self.num_batches)

    def epochs(self) -> tf.data.Dataset:
        """The batches of epoch 0, 1, … without end, for `fit(..., steps_per_epoch=num_batches)`."""
        return one_after_another(self._epoch, self.num_batches)

    def _epoch(self, number: tf.Tensor) -> tf.data.Dataset:
        rows = shuffled(self.num_texts, self._seed, number)
        seed = tf.stack([tf.constant(self._seed, tf.int64), number])

        def batch(index):
            texts = tf.gather(self._token_ids, rows[index * self._batch_size :][: self._batch_size])
            return self._corruption(texts, tf.random.fold_in(seed, index, alg="philox"))

        return tf.data.Dataset.range(self.num_batches).map(batch)


def _choose(num_items, num_chosen, width, seed) -> tf.Tensor:
    """`num_chosen` of the first `num_items` of each row, any as likely as any other: (B, width), bool."""
    draws = tf.random.stateless_uniform([tf.shape(num_items)[0], width], seed)
    draws = tf.where(tf.sequence_mask(num_items, width), draws, 2.0)
    rank = tf.argsort(tf.argsort(draws, axis=1), axis=1)
    return rank < num_chosen[:, None]


def _partition(num_items, num_parts, width, seed) -> tf.Tensor:
    """`num_items` (B,) in `num_parts` (B,) runs of one or more, any as likely as any other: (B, width)."""
    begins = tf.pad(_choose(num_items - 1, num_parts - 1, width, seed), [[0, 0], [1, 0]])[:, :-1]
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
