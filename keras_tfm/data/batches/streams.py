"""Batches of text larger than memory, for language models and masked language models, in the graph.

The parts of a stream are read in a random order, several at once, tokenized and cut into rows, which are
shuffled in a buffer. Memory holds that buffer and, for each open part, a few chunks of text and the tokens
that did not fill a row. All of these are saved with an iterator, which then continues exactly.
"""

import abc
import os

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.encoding import surround
from keras_tfm.data.batches.epochs import Batches, shuffled
from keras_tfm.data.batches.masking import Masking
from keras_tfm.data.batches.sentence_pairs import of_one_text
from keras_tfm.data.sources.text_stream import TextStream
from keras_tfm.data.tokenizers.tokenizer import Tokenizer

READ_AT_ONCE = 16  # parts of the stream that are read at once
TOKENIZED_AT_ONCE = 4  # pieces taken from each of them in turn


class StreamBatches(Batches):
    """Batches of a stream; an epoch is the next `epoch_batches` batches. Abstract.

    With a `seed` each pass over the stream has another order of its parts, and each `buffer` rows are
    shuffled; without it the order of the stream is kept. A subclass makes rows and batches of rows.
    """

    def __init__(
        self, stream: TextStream, tokenizer: Tokenizer, num_rows: int, epoch_batches: int, seed, buffer: int
    ):
        if min(num_rows, epoch_batches, buffer) < 1:
            raise ValueError(
                "epoch_batches, buffer and rows a batch: expected 1 or more, "
                f"got {epoch_batches}, {buffer} and {num_rows}"
            )
        self.num_batches, self.num_rows, self.num_bytes = epoch_batches, num_rows, stream.num_bytes
        self._stream, self._tokenizer, self._seed, self._buffer = stream, tokenizer, seed, buffer
        parts = stream.parts()
        self._num_parts = len(parts)
        self._firsts = tf.constant(np.cumsum([0, *map(len, parts)]), tf.int64)  # a part's first segment
        segments = [segment for part in parts for segment in part]
        paths, begins, ends, sizes, *flags = zip(*segments, strict=True)
        places = (tf.constant(x, tf.int64) for x in (begins, ends, sizes))
        self._segments = (tf.constant(list(map(os.fsencode, paths))), *places, *map(tf.constant, flags))

    @abc.abstractmethod
    def _rows(self, pieces: tf.data.Dataset) -> tf.data.Dataset:
        """Tuples of the rows that become complete with these pieces of a part.

        The arguments are the pieces' ids, ragged (P, None), whether a document begins with each piece, (P,),
        and whether the part ends with them.
        """

    @abc.abstractmethod
    def _batch(self, number: tf.Tensor, rows: tuple) -> tuple:
        """`(inputs, labels, weights)` for rows; `number` counts all batches."""

    def _epoch(self, number: tf.Tensor) -> tf.data.Dataset:
        return self._endless().skip(number * self.num_batches).take(self.num_batches)

    def _endless(self) -> tf.data.Dataset:
        passes = tf.data.Dataset.counter()
        if self._seed is None:
            numbers = passes.flat_map(lambda _: tf.data.Dataset.range(self._num_parts))
            rows = numbers.flat_map(self._rows_of_part)
        else:
            at_once = min(READ_AT_ONCE, self._num_parts)
            rows = passes.flat_map(self._drawn).interleave(self._rows_of_part, at_once, 1).batch(self._buffer)
            rows = rows.enumerate().map(self._shuffle).prefetch(1).unbatch()
        rows = rows.batch(self.num_rows, drop_remainder=True)
        return rows.enumerate().map(self._batch)

    def _drawn(self, number: tf.Tensor) -> tf.data.Dataset:
        order = shuffled(self._num_parts, self._seed, number)
        return tf.data.Dataset.from_tensor_slices(tf.cast(order, tf.int64))

    def _shuffle(self, number: tf.Tensor, rows: tuple) -> tuple:
        # ~: a seed unlike the parts' seed
        order = shuffled(self._buffer, self._seed, ~number)
        return tf.nest.map_structure(lambda x: tf.gather(x, order), rows)

    def _rows_of_part(self, number: tf.Tensor) -> tf.data.Dataset:
        numbers = tf.data.Dataset.range(self._firsts[number], self._firsts[number + 1])
        pieces = numbers.flat_map(lambda i: self._stream.pieces(*(tf.gather(x, i) for x in self._segments)))
        ends = tf.gather(self._segments[-1], self._firsts[number + 1] - 1)
        last = tf.data.Dataset.from_tensors((tf.constant([""]), ends[None], tf.constant(True)))
        pieces = pieces.map(lambda texts, flags: (texts, flags, tf.constant(False))).concatenate(last)
        return self._rows(pieces.map(self._tokenize, TOKENIZED_AT_ONCE)).unbatch()

    def _tokenize(self, texts: tf.Tensor, flags: tf.Tensor, is_last: tf.Tensor) -> tuple:
        return self._tokenizer.tokenize(texts), flags, is_last


class StreamBlocks(StreamBatches):
    r"""Training batches `(inputs, labels, weights)` of a stream, each like a batch of `TextBlocks`.

        inputs["token_ids"], ["padding_mask"], ["segment_ids"]   (B, T)
        labels                                                   (B, T)  the next tokens
        weights                                                  (B, T)  1.0 for a label, 0.0 for padding

    T is `max_length`, and B follows from `batch_tokens`. A pass over the stream has every token once as a
    label, except where a part of the stream begins inside a document; the last row of a part may end in
    padding. An epoch is the next `epoch_batches` batches. `seed` and `buffer` are as in `StreamBatches`.

    >>> import pathlib
    >>> _ = pathlib.Path("text.txt").write_text("abcab\n" * 9)
    >>> stream, tokenizer = keras_tfm.data.TextStream("text.txt"), keras_tfm.data.CharacterTokenizer("abc\n")
    >>> batches = keras_tfm.data.StreamBlocks(stream, tokenizer, max_length=8, batch_tokens=16)
    >>> next(iter(batches.dataset()))[0]["token_ids"].numpy().tolist()
    [[1, 5, 6, 7, 5, 6, 4, 5], [6, 7, 5, 6, 4, 5, 6, 7]]
    """

    def __init__(
        self,
        stream: TextStream,
        tokenizer: Tokenizer,
        *,
        max_length: int = 256,
        batch_tokens: int = 4096,
        epoch_batches: int = 1000,
        seed: int | None = None,
        buffer: int = 4096,
    ):
        self.length = max_length
        super().__init__(stream, tokenizer, max(1, batch_tokens // max_length), epoch_batches, seed, buffer)

    def _rows(self, pieces: tf.data.Dataset) -> tf.data.Dataset:
        length, start_id, end_id = self.length, self._tokenizer.start_id, self._tokenizer.end_id

        def cut(state, element):
            rows, flags, is_last = element
            # If a document ends with the part, the next one is present with its start token only.
            starts = tf.RaggedTensor.from_row_lengths(
                tf.fill([tf.reduce_sum(tf.cast(flags, tf.int32))], start_id), tf.cast(flags, tf.int64)
            )
            tokens = tf.concat([state[0], tf.concat([starts, rows], axis=1).flat_values], axis=0)
            is_start = tf.concat([tf.ones_like(starts, tf.bool), tf.zeros_like(rows, tf.bool)], axis=1)
            is_start = tf.concat([state[1], is_start.flat_values], axis=0)
            num_labels = tf.maximum(tf.size(tokens) - 1, 0)
            num_rows = tf.where(is_last, -(-num_labels // length), num_labels // length)
            mask = tf.range(num_rows * length) < num_labels
            missing = [[0, tf.maximum(num_rows * length - num_labels, 0)]]
            here, after = (tf.pad(x, missing)[: num_rows * length] for x in (tokens[:-1], tokens[1:]))
            begins, next_begins = (
                tf.pad(x, missing)[: num_rows * length] for x in (is_start[:-1], is_start[1:])
            )
            labels = tf.where(next_begins & mask, end_id, after)
            blocks = tuple(tf.reshape(x, (-1, length)) for x in (here, labels, begins, mask))  # (rows, T)
            rest = num_rows * length
            return (tokens[rest:], is_start[rest:]), blocks

        return pieces.scan((tf.zeros([0], tf.int32), tf.zeros([0], tf.bool)), cut)

    def _batch(self, number: tf.Tensor, rows: tuple) -> tuple:
        token_ids, labels, begins, mask = rows
        segment_ids = tf.cumsum(tf.cast(begins, tf.int32), axis=1) * tf.cast(mask, tf.int32)
        inputs = {"token_ids": token_ids, "padding_mask": mask, "segment_ids": segment_ids}
        return inputs, labels, tf.cast(mask, tf.float32)


class StreamSentencePairs(StreamBatches):
    """Batches of masked texts of a stream, as `SentencePairs` makes with the objective "none".

    A row is [CLS] text [SEP], cut where it is full, even inside a sentence; the last row of a document has
    the rest. B is `batch_size`, S is `max_length`. An epoch is the next `epoch_batches` batches, each with
    new masks. `seed` and `buffer` are as in `StreamBatches`. Raises ValueError for other objectives, whose
    pairs need all documents in memory.

    >>> import pathlib
    >>> _ = pathlib.Path("text.txt").write_text("A cat sat. " * 9)
    >>> tokenizer = keras_tfm.data.BERTTokenizer("[PAD] [UNK] [CLS] [SEP] [MASK] a cat sat .".split())
    >>> stream, masking = keras_tfm.data.TextStream("text.txt"), keras_tfm.data.Masking.of(tokenizer)
    >>> batches = keras_tfm.data.StreamSentencePairs(stream, tokenizer, masking, batch_size=2, buffer=4)
    >>> inputs, labels, weights = next(iter(batches.dataset()))
    >>> inputs["token_ids"].shape, labels.shape
    (TensorShape([2, 128]), TensorShape([2, 19]))
    """

    def __init__(
        self,
        stream: TextStream,
        tokenizer: Tokenizer,
        masking: Masking,
        *,
        objective: str = "none",
        max_length: int = 128,
        batch_size: int = 32,
        epoch_batches: int = 1000,
        seed: int = 0,
        buffer: int = 4096,
        segments: bool = True,
    ):
        if objective != "none":
            raise ValueError(
                f'objective: expected "none", got {objective!r}; pairs need all documents in memory: use '
                "SentencePairs"
            )
        if max_length < 4:
            raise ValueError(f"max_length: expected 4 or more, got {max_length}")
        self.objective, self.max_length, self.batch_size = objective, max_length, batch_size
        self._masking, self._segment_ids = masking, segments
        self.num_positions = masking.max_positions(max_length - 2)
        super().__init__(stream, tokenizer, batch_size, epoch_batches, seed, buffer)

    def _tokenize(self, texts: tf.Tensor, flags: tf.Tensor, is_last: tf.Tensor) -> tuple:
        # As in `SentencePairs`, line breaks do not matter, and each text is tokenized as after a space.
        texts = tf.strings.strip(tf.strings.regex_replace(texts, r"[ \t]*\n\s*", " "))
        return self._tokenizer.tokenize_words(texts), flags, is_last

    def _rows(self, pieces: tf.data.Dataset) -> tf.data.Dataset:
        room = self.max_length - 2

        def cut(rest, element):
            texts, flags, is_last = element
            # The first document is the unfinished one; it is complete when another one begins.
            goes_on = ~flags[0]
            head = tf.cond(goes_on, lambda: tf.concat([rest, texts[0]], axis=0), lambda: rest)
            others = tf.cond(goes_on, lambda: texts[1:], lambda: texts)
            documents = tf.concat([tf.RaggedTensor.from_row_lengths(head, [tf.size(head)]), others], axis=0)
            sizes = tf.cast(documents.row_lengths(), tf.int32)
            has_ended = (tf.range(tf.size(sizes)) < tf.size(sizes) - 1) | is_last
            counts = tf.where(has_ended, -(-sizes // room), sizes // room)
            firsts = tf.ragged.range(counts) * room  # (documents, rows)
            owners = firsts.value_rowids()
            begins = firsts.flat_values + tf.gather(tf.cast(documents.row_starts(), tf.int32), owners)
            lengths = tf.minimum(tf.gather(sizes, owners) - firsts.flat_values, room)
            places = begins[:, None] + tf.minimum(tf.range(room), tf.maximum(lengths - 1, 0)[:, None])
            rows = tf.gather(documents.flat_values, places)  # (rows, room), filled up with the last id
            kept = tf.where(has_ended[-1], sizes[-1], counts[-1] * room)
            return documents[-1][kept:], (rows, lengths)

        return pieces.scan(tf.zeros([0], tf.int32), cut)

    def _batch(self, number: tf.Tensor, rows: tuple) -> tuple:
        tokens, lengths = rows
        texts = tf.RaggedTensor.from_tensor(tokens, lengths=lengths)
        tokenizer = self._tokenizer
        texts = surround(texts, [tokenizer.start_id], [tokenizer.end_id])
        token_ids = texts.to_tensor(tokenizer.pad_id, shape=(self.batch_size, self.max_length))
        padding_mask = tf.sequence_mask(texts.row_lengths(), self.max_length)
        seed = tf.stack([tf.constant(self._seed, tf.int64), number])
        inputs, labels, weights = self._masking(token_ids, seed, self.num_positions)
        inputs["padding_mask"] = padding_mask
        if self._segment_ids:
            inputs["segment_ids"] = tf.zeros_like(token_ids)
        return of_one_text(inputs, labels, weights)
