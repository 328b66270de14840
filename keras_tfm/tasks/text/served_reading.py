"""Tasks that read texts in other ways than one row per example, as functions of token ids."""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.encoding import Ragged, model_inputs, pack_texts
from keras_tfm.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from keras_tfm.tasks.signatures import Arrays, Served
from keras_tfm.tasks.text.served_texts import made_up_texts, served_texts

MOST_BLANKS = 8  # of a row: a text with more becomes several rows


def served_blanks(task: Any) -> Served:
    """A `MaskedLanguageModel`: the likeliest token of each blank, and its log probability."""
    model, tokenizer, length = task._blanks.model, task.tokenizer, task.config.max_length
    size, most = tokenizer.vocabulary_size, MOST_BLANKS
    special = tf.constant([i in tokenizer.special_ids for i in range(size)])

    def run(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        logits = model({name: inputs[name] for name in model.input})[..., :size]
        logits = tf.where(special, -np.inf, tf.cast(logits, tf.float32))  # (B, most, V)
        highest = tf.reduce_max(logits, axis=-1, keepdims=True)
        scores = -tf.math.log(tf.reduce_sum(tf.exp(logits - highest), axis=-1))
        return {"ids": tf.argmax(logits, axis=-1, output_type=tf.int32), "scores": scores}

    def encode(texts: list[str]) -> Arrays:
        packed = model_inputs(pack_texts(tokenizer, length, tf.constant(texts)), tokenizer.pad_id)
        arrays = {name: x.numpy().astype("int32") for name, x in packed.items() if name in model.input}
        rows, positions = [], []
        for row, ids in enumerate(arrays["token_ids"]):
            places = np.flatnonzero(ids == tokenizer.mask_id)
            for first in range(0, len(places), most):
                some = places[first : first + most]
                rows.append(row)
                positions.append(np.pad(some, (0, most - len(some))))
        chosen = {name: x[rows] for name, x in arrays.items()}
        return {**chosen, "mask_positions": np.array(positions, "int32")}

    answers = {"kind": "filled", "blank": tokenizer.blank}
    served = served_texts(tokenizer, length, model.input, run, lambda texts: {}, answers)
    blank = f" {tokenizer.blank} "
    examples = [
        blank + text[: len(text) // 2] + blank * (1 + row) + text[len(text) // 2 :]
        for row, text in enumerate(made_up_texts(tokenizer, length))
    ]
    return served._replace(
        inputs={**served.inputs, "mask_positions": tf.TensorSpec([None, most], tf.int32)},
        reads={**served.reads, "kind": "blanks", "blank": tokenizer.mask_id, "most": most},
        write_reader=task._blanks.write,
        examples=examples,
        encode=encode,
    )


def served_choices(task: Any) -> Served:
    """A `ChoiceAnswerer`: a number for each text with one of its choices."""

    def run(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        logits = task._run({name: x[:, None] for name, x in inputs.items()})  # (B, 1)
        return {"score": tf.cast(logits[:, 0], tf.float32)}

    def encode(examples: list) -> Ragged:
        texts, choices = zip(*examples, strict=True)
        return task._encode(list(texts), list(choices))

    tokenizer, length = task.tokenizer, task.config.max_length
    served = served_texts(tokenizer, length, task.model.input, run, encode, {"kind": "choice"}, pairs=True)
    texts = made_up_texts(tokenizer, length)
    examples = [(text, [texts[-1 - row], texts[row - 1]]) for row, text in enumerate(texts)]
    return served._replace(reads={**served.reads, "kind": "choices"}, examples=examples)


def served_questions(task: Any) -> Served:
    """A `QuestionAnswerer`: the logits of the first and of the last token of an answer."""
    config, tokenizer = task.config, task.tokenizer

    def run(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {side: tf.cast(x, tf.float32) for side, x in task.model(inputs, training=False).items()}

    def encode(examples: list) -> Ragged:
        return task._inputs(task._encode(*zip(*examples, strict=True)))

    threshold = config.null_threshold if config.unanswerable else None
    answers = {"kind": "span", "longest": config.max_answer_length, "threshold": threshold}
    served = served_texts(tokenizer, config.max_length, task.model.input, run, encode, answers)
    texts = made_up_texts(tokenizer, config.max_length)
    questions = [text for row, text in enumerate(texts) if row not in task._too_long(texts)]
    reads = {name: x for name, x in served.reads.items() if name != "pairs"}
    # Without some of its special tokens the library would number the added tokens of sentence pieces anew.
    ordinary = isinstance(tokenizer, SentencePieceTokenizer) or list(tokenizer.ordinary)
    return served._replace(
        reads={**reads, "kind": "questions", "stride": config.stride, "ordinary": ordinary},
        examples=[(question, " ".join(texts[row:])) for row, question in enumerate(questions)],
    )
