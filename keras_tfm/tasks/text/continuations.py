"""Prompts and their continuations, computed in the graph: what a text generator exports."""

from typing import Any

import tensorflow as tf

from keras_tfm.data.batches.pairs import encode_prompts
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.generation import DecodingOptions, EndTokens, StopSequences
from keras_tfm.heads.language_model import LanguageModel


class Continuations:
    """Continues strings (B,) by at most `num_new` tokens, with a `model` and its `tokenizer`.

    `config` is that of a `TextGenerator`, `stop` ends a text, and `pad_id` fills the positions after the end.
    """

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        config: Any,
        stop: EndTokens | StopSequences,
        pad_id: int,
        num_new: int,
    ):
        self._model, self._tokenizer, self._config = model, tokenizer, config
        self._stop, self._pad_id, self._num_new = stop, pad_id, num_new

    def decode(self, text: tf.Tensor, **options: Any) -> dict[str, tf.Tensor]:
        """{"text": the prompts with their continuations}; `options` are fields of `DecodingOptions`."""
        inputs = encode_prompts(text, self._tokenizer, self._config.add_start)
        length, most = tf.shape(inputs["token_ids"])[1], self._model.backbone.config.max_length
        checks = [
            tf.debugging.assert_none_equal(text, "", message="A prompt is empty."),
            tf.debugging.assert_less_equal(
                length + self._num_new, most, f"Prompt and {self._num_new} new tokens exceed {most}."
            ),
        ]
        with tf.control_dependencies(checks):
            inputs = {name: tf.identity(x) for name, x in inputs.items()}
        chosen = self._config.decoding.choose(1, **options) | {"max_new_tokens": self._num_new}
        decoder = DecodingOptions(**chosen).decoder(self._model, self._stop, self._pad_id)
        return {"text": text + self._tokenizer.detokenize(decoder(**inputs)[:, length:])}

    def sample(
        self, text: tf.Tensor, temperature: tf.Tensor, top_p: tf.Tensor, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Like `decode`, with scalars that may differ in each call."""
        with tf.control_dependencies(sampling_checks(temperature, top_p)):
            text = tf.identity(text)
        return self.decode(text, temperature=temperature, top_p=top_p, seed=seed)


def sampling_checks(temperature: tf.Tensor, top_p: tf.Tensor) -> list:
    """Operations that fail if these scalars of a graph are out of range."""
    return [
        tf.debugging.assert_positive(temperature, "`temperature` must be above 0."),
        tf.debugging.assert_positive(top_p, "`top_p` must lie in (0, 1]."),
        tf.debugging.assert_less_equal(top_p, 1.0, "`top_p` must lie in (0, 1]."),
    ]
