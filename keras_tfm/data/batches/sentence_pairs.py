"""Batches of masked pairs of texts for pre-training, made of whole sentences in the graph.

Devlin et al. 2019, section 3.1, and Lan et al. 2020, "ALBERT", section 3.1. As in their data, a text consists
of as many sentences as fill the row. The second text of a false pair is as long as the true pair's, and both
are cut in the same way, so that only the content of the texts distinguishes the pairs.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.epochs import Batches, shuffled
from keras_tfm.data.batches.masking import Masking
from keras_tfm.data.sources.documents import split_sentences
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.log import Bar

OBJECTIVES = ("next", "order", "none")


class SentencePairs(Batches):
    """Batches of masked pairs of texts from `documents`, strings with one paragraph per line.

        inputs["token_ids"], ["padding_mask"], ["segment_ids"]   (B, S)  [CLS] first [SEP] second [SEP]
        inputs["mask_positions"], labels, weights                (B, M)  as returned by `Masking`
        nsp                                                      (B,)    int32: 0 = true pair, 1 = false pair

    A batch is `(inputs, {"mlm": labels, "nsp": nsp}, {"mlm": weights, "nsp": 1.0 for each pair})`. Half of
    the pairs, at random, are false. An epoch has each run of sentences that fills a row once, in
    `num_batches` batches of `num_rows` rows; the last one may end in rows of padding. Every epoch has other
    pairs, masks and rows per batch, which follow from `seed` and the epoch's number. `num_dropped` documents
    have too few sentences for a pair.

    Args:
        masking: the `Masking` of the rows.
        objective: with "next" the second text of a false pair comes from another document, with "order" the
            two texts are exchanged. "none" has rows of one text, [CLS] text [SEP], and batches
            `(inputs, labels, weights)`; with masked spans, labels and weights are {"mlm", "sbo"}, the same
            twice, and the inputs have "span_boundaries".
        max_length: S.
        batch_size: B.
        num_drawings: the number of different epochs, which then recur with their batches in another order (1
            is static masking); None for no limit.
        segments: whether there are segment_ids.

    Raises:
        ValueError: if no document remains, or only one for the objective "next".

    >>> tokenizer = keras_tfm.data.BERTTokenizer("[PAD] [UNK] [CLS] [SEP] [MASK] a cat dog sat .".split())
    >>> documents, masking = ["A cat sat. A dog.", "A dog sat. A cat."], keras_tfm.data.Masking.of(tokenizer)
    >>> batches = keras_tfm.data.SentencePairs(documents, tokenizer, masking, max_length=16, batch_size=2)
    >>> inputs, labels, weights = next(iter(batches.dataset()))
    >>> inputs["token_ids"].shape, labels["mlm"].shape, labels["nsp"].shape
    (TensorShape([2, 16]), TensorShape([2, 2]), TensorShape([2]))
    """

    def __init__(
        self,
        documents: Sequence[str],
        tokenizer: Tokenizer,
        masking: Masking,
        *,
        objective: str = "next",
        max_length: int = 128,
        batch_size: int = 32,
        seed: int = 0,
        num_drawings: int | None = None,
        segments: bool = True,
    ):
        if objective not in OBJECTIVES:
            raise ValueError(f"objective: expected one of {', '.join(OBJECTIVES)}, got {objective!r}")
        self._num_special = 2 if objective == "none" else 3
        if max_length < self._num_special + 2:
            raise ValueError(f"max_length: expected {self._num_special + 2} or more, got {max_length}")
        if batch_size < 1 or num_drawings == 0:
            raise ValueError(
                f"batch_size, num_drawings: expected 1 or more, got {batch_size}, {num_drawings}"
            )
        self.objective, self.max_length, self.batch_size = objective, max_length, batch_size
        self._tokenizer, self._masking = tokenizer, masking
        self._seed, self._num_drawings, self._segments = seed, num_drawings, segments
        tokens, lengths, counts = _tokenize(documents, tokenizer)
        room = max_length - self._num_special
        rows = list(_stretches(lengths, counts, room, least=1 if objective == "none" else 2))
        self.num_rows = len(rows)
        self.num_dropped = len(counts) - len({document for document, *_ in rows})
        self.num_tokens = int(lengths.sum())
        if not rows or (objective == "next" and np.count_nonzero(counts) < 2):
            raise ValueError(
                f"documents: too few of {len(documents)} have enough sentences to make pairs of them"
            )
        self.num_batches = -(-self.num_rows // batch_size)
        self.num_positions = masking.max_positions(room)
        with tf.device("cpu"):  # they may be larger than an accelerator's memory
            self._tokens = tf.constant(tokens)
            self._starts = tf.constant(
                np.append(0, np.cumsum(lengths))
            )  # of sentences; the last one's end too
            self._first = tf.constant(np.append(0, np.cumsum(counts)))  # sentences of documents
            self._rows = tf.constant(rows, tf.int64)

    def _epoch(self, number: tf.Tensor) -> tf.data.Dataset:
        drawing = number % self._num_drawings if self._num_drawings else number
        rows = shuffled(self.num_rows, self._seed, drawing)
        missing = self.num_batches * self.batch_size - self.num_rows
        rows = tf.concat([tf.cast(rows, tf.int64), tf.fill([missing], tf.constant(-1, tf.int64))], axis=0)
        rows = tf.reshape(rows, [self.num_batches, self.batch_size])
        batches = shuffled(self.num_batches, self._seed, ~number)  # ~: a seed unlike the rows' seed
        seed = tf.stack([tf.constant(self._seed, tf.int64), drawing])
        return tf.data.Dataset.from_tensor_slices(batches).map(
            lambda batch: self._batch(rows[batch], tf.random.fold_in(seed, batch, alg="philox"))
        )

    def _batch(self, rows: tf.Tensor, seed: tf.Tensor) -> tuple:
        seeds = tf.unstack(tf.random.split(seed, 2, alg="philox"))
        is_row = rows >= 0
        rows = tf.gather(self._rows, tf.maximum(rows, 0))
        texts, label = self._draw(rows, seeds[0])
        token_ids, padding_mask, segment_ids = self._pack(texts, is_row)
        inputs, labels, weights = self._masking(token_ids, seeds[1], self.num_positions)
        inputs["padding_mask"] = padding_mask
        if self._segments:
            inputs["segment_ids"] = segment_ids
        if self.objective == "none":
            return of_one_text(inputs, labels, weights)
        inputs.pop("span_boundaries", None)
        return inputs, {"mlm": labels, "nsp": label}, {"mlm": weights, "nsp": tf.cast(is_row, tf.float32)}

    def _draw(self, rows: tf.Tensor, seed: tf.Tensor) -> tuple:
        """The two texts of each run (document, sentence, sentence after the last), (B, 3).

        Returns the start and stop of each text among all tokens, (B,) each, and whether the pair is false,
        (B,) int32.
        """
        seeds = tf.unstack(tf.random.split(seed, 3, alg="philox"))
        document, first, last = tf.unstack(rows, axis=1)
        start, stop = self._at(first), self._at(last)
        room = self.max_length - self._num_special
        coin = _integers(seeds[0], 2 * tf.ones_like(first))
        if self.objective == "none":
            front = tf.minimum(stop - start, room)
            start = tf.where(coin == 1, start, stop - front)
            return [(start, start + front), (start, start)], coin
        middle = self._at(first + 1 + _integers(seeds[1], last - first - 1))
        second, end = middle, stop
        if self.objective == "next":
            other, limit = self._elsewhere(document, stop - middle, seeds[2])
            second, end = tf.where(coin == 1, other, second), tf.where(coin == 1, limit, end)
        # The longer text is cut, the first one at its beginning and the second one at its end.
        length = tf.minimum(middle - start, tf.maximum(room - (end - second), room // 2))
        end = tf.minimum(end, second + room - length)
        pair = [(middle - length, middle), (second, end)]
        if self.objective == "order":
            is_turned = coin == 1
            pair = [
                tuple(tf.where(is_turned, *ends) for ends in zip(other, text, strict=True))
                for other, text in zip(pair[::-1], pair, strict=True)
            ]
        return pair, tf.cast(coin, tf.int32)

    def _elsewhere(
        self, document: tf.Tensor, length: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The start of a random sentence of another document, and the end of the sentences that have `length`
        tokens together, or of the document.
        """
        begin, end = tf.gather(self._first, document), tf.gather(self._first, document + 1)
        sentence = _integers(seed, self._first[-1] - (end - begin))
        sentence += tf.where(sentence >= begin, end - begin, 0)
        owner = tf.searchsorted(self._first, sentence, side="right", out_type=tf.int64)
        last = tf.searchsorted(self._starts, self._at(sentence) + length, out_type=tf.int64)
        return self._at(sentence), self._at(tf.minimum(last, tf.gather(self._first, owner)))

    def _at(self, sentence: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._starts, sentence)

    def _pack(self, texts: list, is_row: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Ids, padding mask and segments, (B, S) each, of rows with two texts or with one."""
        (first, first_end), (second, second_end) = ((x[:, None], y[:, None]) for x, y in texts)
        places = tf.range(self.max_length, dtype=tf.int64)[None]  # (1, S)
        border = 1 + first_end - first  # the place of the first [SEP]
        length = border + 1
        if self.objective != "none":
            length += 1 + second_end - second
        padding_mask = (places < length) & is_row[:, None]
        in_first = (places > 0) & (places < border)
        in_second = (places > border) & (places < length - 1)
        source = tf.where(in_first, first + places - 1, second + places - border - 1)
        is_text = (in_first | in_second) & is_row[:, None]
        token_ids = tf.gather(self._tokens, tf.where(is_text, source, 0))
        token_ids = tf.where(is_text, token_ids, self._tokenizer.end_id)
        token_ids = tf.where(places == 0, self._tokenizer.start_id, token_ids)
        token_ids = tf.where(padding_mask, token_ids, self._tokenizer.pad_id)
        return token_ids, padding_mask, tf.cast((places > border) & padding_mask, tf.int32)


def of_one_text(inputs: dict, labels: tf.Tensor, weights: tf.Tensor) -> tuple:
    """A masked batch without pairs; labels and weights by objective if spans are masked."""
    if "span_boundaries" in inputs:
        return inputs, {"mlm": labels, "sbo": labels}, {"mlm": weights, "sbo": weights}
    return inputs, labels, weights


def _tokenize(documents: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All tokens in one array, the numbers of tokens by sentence, and of sentences by document."""
    sentences = [split_sentences(document) for document in documents]
    counts = np.array([len(parts) for parts in sentences], np.int64)
    owners = np.repeat(np.arange(len(documents)), counts)
    lines = [sentence for parts in sentences for sentence in parts]
    tokens, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for start in Bar(range(0, len(lines), 16_384), "tokenizing documents", unit="chunk"):
        # As after a space, which stands before most sentences.
        token_ids = tokenizer.tokenize_words(lines[start : start + 16_384])
        tokens.append(token_ids.flat_values.numpy())
        lengths.append(token_ids.row_lengths().numpy())
    num_tokens = np.concatenate(lengths)
    owners = owners[num_tokens > 0]
    counts = np.bincount(owners, minlength=len(documents)).astype(np.int64)
    return np.concatenate(tokens), num_tokens[num_tokens > 0], counts


def _stretches(lengths, counts, room: int, least: int) -> Iterator[tuple[int, int, int]]:
    """Divide documents into runs of sentences: rows (document, sentence, sentence after the last).

    A run has `room` tokens, or reaches the end of its document, and has at least `least` sentences; what is
    left of a document belongs to the run before.
    """
    first = 0
    for document, count in enumerate(counts.tolist()):
        borders, num_tokens = [first], 0
        for sentence in range(first, first + count):
            num_tokens += lengths[sentence]
            if num_tokens >= room and sentence + 1 - borders[-1] >= least:
                borders.append(sentence + 1)
                num_tokens = 0
        last = first + count
        if last - borders[-1] < least and len(borders) > 1:
            borders.pop()
        if last - borders[-1] >= least:
            borders.append(last)
        yield from ((document, *pair) for pair in itertools.pairwise(borders))
        first = last


def _integers(seed: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
    """Uniform integers from 0 to `limits` - 1, (B,) int64; 0 where a limit is 0."""
    draws = tf.random.stateless_uniform(tf.shape(limits), seed, 0, 2**62, tf.int64, alg="philox")
    return draws % tf.maximum(limits, 1)
