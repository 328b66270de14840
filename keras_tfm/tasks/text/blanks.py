"""Filling in blanks, computed in the graph."""

import json
import pathlib

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.encoding import model_inputs, pack_texts
from keras_tfm.data.tokenizers.bert import BERTTokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.training.model import FunctionalModel


class Blanks:
    """Fills the blanks of strings by a masked language `model` and its `tokenizer`.

    `fill(texts)` replaces each blank, the tokenizer's `blank`, by the likeliest token that is not a special
    one; blanks beyond `max_length` tokens stay. `candidates(texts, count)` gives the `count` likeliest tokens
    for up to M blanks per text: ids and probabilities, (B, M, count) each, and which of the M are blanks,
    (B, M). `pieces` are the tokens as they are written, BERT's with its ##.
    """

    def __init__(self, model: keras.Model, tokenizer: Tokenizer, max_length: int):
        self._tokenizer, self._max_length = tokenizer, max_length
        outputs = model.output
        logits = outputs["mlm"] if isinstance(outputs, dict) else outputs
        inputs = {name: x for name, x in model.input.items() if name != "span_boundaries"}
        self.model = FunctionalModel(inputs, logits)  # the same weights, without other heads
        if isinstance(tokenizer, BERTTokenizer):
            self.pieces = tokenizer.tokens
            self.words = [piece.removeprefix("##") for piece in self.pieces]
        else:
            self.pieces = [symbol.decode("utf-8", "replace") for symbol in tokenizer.symbols]
            self.words = [piece.strip() for piece in self.pieces]
        self.fill = tf.function(
            self._filled, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
        )
        self.candidates = tf.function(self._likeliest, autograph=False, reduce_retracing=True)

    def write(self, folder: pathlib.Path) -> None:
        """Write the tokenizer's files, and symbols.json, how each token is written in a blank."""
        self._tokenizer.save_huggingface(folder)
        symbols = [word.encode().decode("latin-1") for word in self.words]  # bytes, as characters up to 255
        (folder / "symbols.json").write_text(json.dumps(symbols) + "\n", "utf-8")

    def _likeliest(self, texts: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        packed = pack_texts(self._tokenizer, self._max_length, texts)
        inputs = model_inputs(packed, self._tokenizer.pad_id)
        token_ids = inputs["token_ids"]  # (B, S)
        places = tf.ragged.boolean_mask(
            tf.zeros_like(token_ids) + tf.range(tf.shape(token_ids)[1]), token_ids == self._tokenizer.mask_id
        )
        width = tf.maximum(1, tf.cast(tf.reduce_max(places.row_lengths()), tf.int32))
        positions = places.to_tensor(0, shape=tf.stack([tf.shape(token_ids)[0], width]))  # (B, M)
        inputs["mask_positions"] = positions
        logits = self.model({name: inputs[name] for name in self.model.input})
        size = self._tokenizer.vocabulary_size  # the model may have more rows
        special = tf.constant([i in self._tokenizer.special_ids for i in range(size)])
        logits = tf.where(special, -np.inf, tf.cast(logits[..., :size], tf.float32))
        probabilities = tf.nn.softmax(logits)
        likeliest, ids = tf.math.top_k(probabilities, count)
        return ids, likeliest, tf.sequence_mask(places.row_lengths(), width)

    def _filled(self, texts: tf.Tensor) -> tf.Tensor:
        ids, _, is_blank = self._likeliest(texts, 1)
        blank = self._tokenizer.blank
        words = tf.ragged.boolean_mask(tf.gather(tf.constant(self.words), ids[..., 0]), is_blank)
        parts = tf.strings.split(texts, blank)  # one more than there are blanks
        missing = parts.row_lengths() - words.row_lengths() - 1  # blanks that were cut off
        blanks = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(missing)], blank), missing)
        words = tf.concat([words, blanks, tf.fill([parts.nrows(), 1], "")], axis=1)
        joined = parts.with_flat_values(parts.flat_values + words.flat_values)
        return tf.strings.reduce_join(joined, axis=1)
