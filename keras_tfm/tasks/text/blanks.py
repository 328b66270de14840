"""Filling in blanks."""

import json
import pathlib

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.data.tokenizers.bert import BERTTokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.tasks.signatures import Signature
from keras_tfm.tasks.text.text_signature import text_signature, write_tokenizer
from keras_tfm.training.model import FunctionalModel

MOST_BLANKS = 8  # of a row: a text with more becomes several rows


class Blanks:
    """Fills the blanks of strings by a masked language `model` and its `tokenizer`.

    `pieces` are the tokens as they are written, BERT's with its ##, and `words` as they stand in a blank.
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

    def logits(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """The logits of each blank, (B, M, V), -inf for special tokens."""
        size = self._tokenizer.vocabulary_size  # the model may have more rows
        special = tf.constant([i in self._tokenizer.special_ids for i in range(size)])
        logits = self.model({name: inputs[name] for name in self.model.input})[..., :size]
        return tf.where(special, -np.inf, tf.cast(logits, tf.float32))

    def signature(self) -> Signature:
        """The likeliest token of each blank, and its log probability."""
        tokenizer = self._tokenizer
        answers = {"kind": "filled", "blank": tokenizer.blank}
        rows = {"kind": "blanks", "blank": tokenizer.mask_id, "most": MOST_BLANKS}
        names = self.model.input
        signature = text_signature(tokenizer, self._max_length, names, self._likeliest, answers, **rows)
        blank = f" {tokenizer.blank} "
        examples = [
            blank + text[: len(text) // 2] + blank * (1 + row) + text[len(text) // 2 :]
            for row, text in enumerate(signature.examples)
        ]
        positions = {"mask_positions": tf.TensorSpec([None, MOST_BLANKS], tf.int32)}
        return signature._replace(
            inputs={**signature.inputs, **positions}, write_files=self._write, examples=examples
        )

    def candidates(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The "ids" of the `count` likeliest tokens of each blank, an input, and their "probabilities"."""
        probabilities, ids = tf.math.top_k(tf.nn.softmax(self.logits(inputs)), inputs["count"])
        return {"ids": ids, "probabilities": probabilities}

    def _likeliest(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        logits = self.logits(inputs)
        highest = tf.reduce_max(logits, axis=-1, keepdims=True)
        scores = -tf.math.log(tf.reduce_sum(tf.exp(logits - highest), axis=-1))
        return {"ids": tf.argmax(logits, axis=-1, output_type=tf.int32), "scores": scores}

    def _write(self, folder: pathlib.Path) -> None:
        """Write the tokenizer's files, and symbols.json, how each token is written in a blank."""
        write_tokenizer(self._tokenizer, folder)
        symbols = [word.encode().decode("latin-1") for word in self.words]  # bytes, as characters up to 255
        (folder / "symbols.json").write_text(json.dumps(symbols) + "\n", "utf-8")
