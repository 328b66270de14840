"""Plain text to blocks: all documents in one stream of tokens, which is cut into rows without padding.

Each document begins with the start token. A token's label is the next token, and the end token for the last
one. `segment_ids` number the documents of a row: a token attends only to its own document, where positions
start at 0. In GPT-3's similar packing (Brown et al. 2020, appendix B) tokens also see the documents before.

    documents   a b c d e   and   f g       rows of 4, S start, E end

    token_ids     S a b c    d e S f    g . . .
    segment_ids   1 1 1 1    0 0 1 1    0 . . .
    labels        a b c d    e E f g    E . . .
"""

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.epochs import Batches, HeldOut, hold_out, shuffled
from keras_tfm.data.sources.text_stream import PAUSE
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.log import Bar

CHUNK = 1 << 16  # characters that are tokenized together
MANY = 20  # from this number of texts on, whole texts are held out; of fewer, the end of each


class TextBlocks(Batches):
    """Training batches `(inputs, labels, weights)` of `texts`, one document each.

        inputs["token_ids"], ["padding_mask"], ["segment_ids"]   (B, T)
        labels                                                   (B, T)  the next tokens
        weights                                                  (B, T)  1.0 for a label, 0.0 for padding

    T is `max_length`, and B follows from `batch_tokens`; both are smaller for short texts, so that there are
    `min_batches` batches if possible. An epoch has every token once as a label, in `num_batches` batches.
    With a `seed`, each epoch cuts the stream at other places and shuffles the rows. The last row and the last
    batch may end in padding. `num_tokens` is the number of labels, `num_bytes` the number of the texts' bytes
    in UTF-8. Raises ValueError if the texts are empty.

    >>> tokenizer = keras_tfm.data.CharacterTokenizer("abc")
    >>> blocks = keras_tfm.data.TextBlocks(["abc", "cab"], tokenizer, max_length=4, min_batches=1)
    >>> inputs, labels, weights = next(iter(blocks.dataset()))
    >>> labels.numpy().tolist()  # the characters, and each text's end (2)
    [[4, 5, 6, 2], [6, 4, 5, 2]]
    """

    def __init__(
        self,
        texts: Sequence[str],
        tokenizer: Tokenizer,
        *,
        max_length: int = 256,
        batch_tokens: int = 4096,
        min_batches: int = 10,
        seed: int | None = None,
    ):
        if not any(texts):
            raise ValueError("texts: expected some text, got none")
        stream, is_start = _stream(texts, tokenizer)
        self.num_tokens = len(stream)
        self.num_bytes = sum(len(text.encode("utf-8", "replace")) for text in texts)
        self.length = min(max_length, self.num_tokens)
        self.num_blocks = -(-self.num_tokens // self.length)
        rows = max(1, min(batch_tokens // self.length, self.num_blocks // min_batches))
        self.num_rows = rows
        self.num_batches = -(-self.num_blocks // rows)
        self._seed = seed
        self._end_id = tokenizer.end_id
        with tf.device("cpu"):  # they may be larger than an accelerator's memory
            self._stream, self._is_start = tf.constant(stream), tf.constant(is_start)

    def _epoch(self, number: tf.Tensor) -> tf.data.Dataset:
        first, order = tf.zeros((), tf.int64), tf.range(self.num_blocks)
        if self._seed is not None:
            order = shuffled(self.num_blocks, self._seed, number)
            seed = tf.stack([tf.constant(self._seed, tf.int64), ~number])  # ~: a seed unlike the order's
            first = tf.random.stateless_uniform([], seed, 0, self.num_tokens, tf.int64, alg="philox")
        missing = self.num_batches * self.num_rows - self.num_blocks
        rows = tf.concat([order, tf.fill([missing], self.num_blocks)], axis=0)
        rows = tf.reshape(tf.cast(rows, tf.int64), (self.num_batches, self.num_rows))
        return tf.data.Dataset.from_tensor_slices(rows).map(lambda blocks: self._batch(blocks, first))

    def _batch(self, blocks: tf.Tensor, first: tf.Tensor) -> tuple:
        """The rows `blocks` (B,) of the stream, which is treated as a circle and starts at `first`."""
        places = blocks[:, None] * self.length + tf.range(self.length, dtype=tf.int64)  # (B, T)
        mask = places < self.num_tokens
        here = (first + places) % self.num_tokens
        after = (here + 1) % self.num_tokens
        labels = tf.where(tf.gather(self._is_start, after), self._end_id, tf.gather(self._stream, after))
        segment_ids = tf.cumsum(tf.cast(tf.gather(self._is_start, here), tf.int32), axis=1)
        keep = tf.cast(mask, tf.int32)
        inputs = {
            "token_ids": tf.gather(self._stream, here) * keep,
            "padding_mask": mask,
            "segment_ids": segment_ids * keep,
        }
        return inputs, labels * keep, tf.cast(mask, tf.float32)


def _stream(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """All documents in one array, each after a start token, int32 (N,); and where starts are, bool (N,)."""
    parts, flags = [], []
    for batch in Bar(list(_batches_of_chunks(texts)), "tokenizing", unit="chunk"):
        rows = tokenizer.tokenize([chunk for chunk, _ in batch])
        starts = tf.RaggedTensor.from_row_lengths(
            tf.fill([sum(is_first for _, is_first in batch)], tokenizer.start_id),
            [int(is_first) for _, is_first in batch],
        )
        parts.append(tf.concat([starts, rows], axis=1).flat_values.numpy())
        is_start = tf.concat([tf.ones_like(starts, tf.bool), tf.zeros_like(rows, tf.bool)], axis=1)
        flags.append(is_start.flat_values.numpy())
    return np.concatenate(parts), np.concatenate(flags)


def _batches_of_chunks(texts: Sequence[str]) -> Iterator[list[tuple[str, bool]]]:
    """(chunk, whether a document begins with it), some at once, together about `CHUNK` characters or more."""
    batch, size = [], 0
    for text in texts:
        for number, chunk in enumerate(_chunks(text)):
            batch.append((chunk, not number))
            size += len(chunk)
            if size >= CHUNK:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def _chunks(text: str) -> Iterator[str]:
    """Parts of `text`, of about `CHUNK` characters, whose tokens together are the tokens of the whole."""
    while len(text) > CHUNK:
        pause = PAUSE.search(text, CHUNK)
        if pause is None:
            break
        yield text[: pause.start()]
        text = text[pause.start() :]
    yield text


def hold_out_texts(texts, seed):
    """(Training texts, validation texts): a random 2 %, at most 500; of few texts the last tenth of each."""
    if len(texts) >= MANY:
        parts = hold_out(len(texts), seed, HeldOut(0.02, 500))
        return tuple([texts[row] for row in rows] for rows in parts)
    places = [len(text) - len(text) // 10 for text in texts]
    both = zip(texts, places, strict=True)
    train, validation = zip(*((text[:place], text[place:]) for text, place in both), strict=True)
    if not any(validation):
        raise ValueError("At least 10 characters are needed, some for training and some for validation.")
    return list(train), list(validation)
