"""What stands where a text has a blank, wholly in the graph."""

import numpy as np
import tensorflow as tf

from keras_tfm.data.bert_tokenizer import BERTTokenizer
from keras_tfm.training.model import FunctionalModel


class Blanks:
    """Strings to strings by a masked language `model` and its `tokenizer`, of texts up to `max_length`
    tokens.

    `fill(texts)` puts the likeliest piece, a special one never, in the place of each blank of strings (B,),
    the tokenizer's `blank`, but for those beyond `max_length`. `candidates(texts, count)` are the `count`
    likeliest of M blanks at most: (ids, probabilities), both (B, M, count), and which of the M are blanks,
    (B, M). `pieces` are the tokens as they read, BERT's with its ##.
    """

    def __init__(self, model, tokenizer, max_length):
        self._tokenizer, self._max_length = tokenizer, max_length
        outputs = model.output
        logits = outputs["mlm"] if isinstance(outputs, dict) else outputs
        inputs = {name: x for name, x in model.input.items() if name != "span_boundaries"}
        self._model = FunctionalModel(inputs, logits)  # the same weights, without other heads
        if isinstance(tokenizer, BERTTokenizer):
            self.pieces = list(tokenizer.vocabulary)
            self._words = [piece.removeprefix("##") for piece in self.pieces]
        else:
            self.pieces = [symbol.decode("utf-8", "replace") for symbol in tokenizer.symbols]
            self._words = [piece.strip() for piece in self.pieces]
        self.fill = tf.function(
            self._filled, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
        )
        self.candidates = tf.function(self._likeliest, autograph=False, reduce_retracing=True)

    def _likeliest(self, texts, count):
        token_ids, padding_mask = self._encode(texts)
        places = tf.ragged.boolean_mask(
            tf.zeros_like(token_ids) + tf.range(tf.shape(token_ids)[1]), token_ids == self._tokenizer.mask_id
        )
        width = tf.maximum(1, tf.cast(tf.reduce_max(places.row_lengths()), tf.int32))
        positions = places.to_tensor(0, shape=tf.stack([tf.shape(token_ids)[0], width]))  # (B, M)
        inputs = {"token_ids": token_ids, "padding_mask": padding_mask, "mask_positions": positions}
        if "segment_ids" in self._model.input:
            inputs["segment_ids"] = tf.zeros_like(token_ids)
        logits = self._model(inputs)
        size = self._tokenizer.vocabulary_size  # a model may have more
        special = tf.constant([i in self._tokenizer.special_ids for i in range(size)])
        logits = tf.where(special, -np.inf, tf.cast(logits[..., :size], tf.float32))
        probabilities = tf.nn.softmax(logits)
        likeliest, ids = tf.math.top_k(probabilities, count)
        return ids, likeliest, tf.sequence_mask(places.row_lengths(), width)

    def _filled(self, texts):
        ids, _, is_blank = self._likeliest(texts, 1)
        blank = self._tokenizer.blank
        words = tf.ragged.boolean_mask(tf.gather(tf.constant(self._words), ids[..., 0]), is_blank)
        parts = tf.strings.split(texts, blank)  # one more than there are blanks
        missing = parts.row_lengths() - words.row_lengths() - 1  # of a text that was cut
        blanks = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(missing)], blank), missing)
        words = tf.concat([words, blanks, tf.fill([parts.nrows(), 1], "")], axis=1)
        joined = parts.with_flat_values(parts.flat_values + words.flat_values)
        return tf.strings.reduce_join(joined, axis=1)

    def _encode(self, texts):
        """Ids and padding mask (B, S) of [CLS] text [SEP]."""
        tokenizer = self._tokenizer
        pieces = tokenizer.tokenize(texts)[:, : self._max_length - 2]
        ends = tf.ones([pieces.nrows(), 1], tf.int32)
        token_ids = tf.concat([ends * tokenizer.start_id, pieces, ends * tokenizer.end_id], axis=1)
        lengths = token_ids.row_lengths()
        width = tf.reduce_max(tf.concat([lengths, [1]], axis=0))
        shape = tf.stack([tf.shape(lengths, tf.int64)[0], width])
        return token_ids.to_tensor(tokenizer.pad_id, shape=shape), tf.sequence_mask(lengths, width)
