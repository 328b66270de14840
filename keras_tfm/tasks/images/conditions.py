"""What an `ImageGenerator` makes pictures of: nothing but noise, the name of a class, or a text.

Each is a condition: it checks the second column of examples, makes the model's inputs of it, and of what
`predict` and an export are asked.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Refusal
from keras_tfm.data.batches.encoding import model_inputs
from keras_tfm.data.batches.epochs import HeldOut, hold_out
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer
from keras_tfm.serving.examples import check_column, not_id, not_text
from keras_tfm.tasks.columns import columns_of, rows_of
from keras_tfm.tasks.image_text.pairs import checked_texts, hold_out_pairs, tokens_of, tokens_of_all
from keras_tfm.tasks.images.enlarging import SMALL
from keras_tfm.tasks.task import check_vocabulary


class Condition(abc.ABC):
    """What pictures are made of. Abstract.

    `name` is the argument of `generate`, the input of exports; `column` the second column of examples, None
    without one; `specs` describe the model's inputs for a batch.
    """

    name: str
    column: str | None
    specs: Mapping[str, tf.TensorSpec]

    @abc.abstractmethod
    def checked(self, column: Any, count: int) -> Any:
        """The second column of `count` examples as it is stored; ValueError if it is not as it must be."""

    @abc.abstractmethod
    def inputs(self, column: Any) -> dict[str, np.ndarray]:
        """The model's inputs (N, ...) of a stored column, for training."""

    @abc.abstractmethod
    def refusal(self, example: str) -> str | None:
        """Why no picture can be made of a string, or None."""

    @abc.abstractmethod
    def of_strings(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """The model's inputs for strings (B,), in a graph too, which fails for others than it can answer."""

    @abc.abstractmethod
    def absent(self, count: int) -> dict[str, tf.Tensor]:
        """The model's inputs for `count` pictures without a condition."""

    def hold_out(self, examples: Any, held: HeldOut, seed: int) -> tuple[Any, Any]:
        """Split examples into some to train on and others for validation."""
        columns = columns_of(examples)
        classes = columns[1] if len(columns) > 1 else None
        parts = hold_out(len(columns[0]), seed, held, classes)
        train, rest = (rows_of(examples, rows) for rows in parts)
        return train, rest


class Nothing(Condition):
    """Pictures of no class and no text: any string asks for one."""

    name, column = "classes", None
    specs: Mapping[str, tf.TensorSpec] = {}

    def checked(self, column: Any, count: int) -> Any:
        raise NotImplementedError

    def inputs(self, column: Any) -> dict[str, np.ndarray]:
        return {}

    def refusal(self, example: str) -> str | None:
        return None

    def of_strings(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        return {}

    def absent(self, count: int) -> dict[str, tf.Tensor]:
        return {}


class Classes(Condition):
    """Pictures of classes, by their names. A stored column holds their places, integers (N,)."""

    name, column = "classes", "labels"
    specs: Mapping[str, tf.TensorSpec] = {"classes": tf.TensorSpec([None], tf.int32)}

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def checked(self, column: Any, count: int) -> np.ndarray:
        check_column(column, "labels", not_id)
        if len(column) != count:
            raise ValueError(f"`labels` must be one for each of {count} images; they are {len(column)}.")
        for label in column:
            if reason := self.refusal(str(label)):
                raise ValueError(f"`labels`: {reason}")
        places = {name: place for place, name in enumerate(self.names)}
        return np.array([places[str(label)] for label in column], "int32")

    def inputs(self, column: Any) -> dict[str, np.ndarray]:
        return {"classes": column}

    def refusal(self, example: str) -> str | None:
        if example in self.names:
            return None
        return f"expected one of the classes {', '.join(self.names)[:200]}, got {example[:80]!r}"

    def of_strings(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        is_class = strings[:, None] == tf.constant(self.names)
        are_known, problem = tf.reduce_all(tf.reduce_any(is_class, 1)), "Expected names of classes, got"
        with tf.control_dependencies([tf.debugging.Assert(are_known, [problem, strings])]):
            return {"classes": tf.argmax(is_class, 1, tf.int32)}

    def absent(self, count: int) -> dict[str, tf.Tensor]:
        return {"classes": tf.fill([count], len(self.names))}


class Texts(Condition):
    """Pictures of texts, whose tokens fill `max_length` places. A stored column is the list of texts."""

    name, column = "texts", "texts"

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.around = SpecialTokens((tokenizer.start_id,), (tokenizer.end_id,))
        kinds = {"token_ids": tf.int32, "padding_mask": tf.bool}
        self.specs = {name: tf.TensorSpec([None, max_length], dtype) for name, dtype in kinds.items()}

    def checked(self, column: Any, count: int) -> list[str]:
        return checked_texts(column, count, "images")

    def inputs(self, column: Any) -> dict[str, np.ndarray]:
        packed = tokens_of_all(column, self.tokenizer, self.around, self.max_length)
        return {name: x.numpy() for name, x in self._padded(packed["token_ids"]).items()}

    def refusal(self, example: str) -> str | None:
        if not example.strip():
            return f"expected a text, got {example!r:.60}"
        length = int(self._tokens(tf.constant([example]))["lengths"][0])
        if length > self.max_length:
            return f"expected a text of at most {self.max_length} tokens, got {length}: {example[:60]!r}"
        return None

    def of_strings(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        packed = self._tokens(strings)
        fit, problem = (
            tf.reduce_all(packed["lengths"] <= self.max_length),
            f"Expected texts of at most {self.max_length} tokens, got",
        )
        with tf.control_dependencies([tf.debugging.Assert(fit, [problem, strings])]):
            return self._padded(packed["token_ids"])

    def absent(self, count: int) -> dict[str, tf.Tensor]:
        shape = (count, self.max_length)
        return {
            "token_ids": tf.fill(shape, self.tokenizer.pad_id),
            "padding_mask": tf.zeros(shape, tf.bool),
        }

    def hold_out(self, examples: Any, held: HeldOut, seed: int) -> tuple[Any, Any]:
        return hold_out_pairs(examples, held, seed)

    def _tokens(self, strings: tf.Tensor) -> dict[str, Any]:
        return tokens_of(strings, self.tokenizer, self.around, self.max_length)

    def _padded(self, token_ids: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        """Inputs (B, max_length): of one shape, so that one function answers texts of all lengths."""
        inputs = model_inputs({"token_ids": token_ids}, self.tokenizer.pad_id)
        missing = [[0, 0], [0, self.max_length - tf.shape(inputs["token_ids"])[1]]]
        inputs["token_ids"] = tf.pad(inputs["token_ids"], missing, constant_values=self.tokenizer.pad_id)
        inputs["padding_mask"] = tf.pad(inputs["padding_mask"], missing)
        return {name: tf.ensure_shape(x, [None, self.max_length]) for name, x in inputs.items()}


def condition_of(backbone: keras.Model, class_names: Sequence[str], tokenizer: Tokenizer | None) -> Condition:
    """The condition of a diffusion model, by its inputs; ValueError for others than classes and texts, and
    for a tokenizer or classes that do not fit.
    """
    others = set(backbone.input) - {"images", "timesteps", "log_snr", *SMALL}
    reads_texts = others == {"token_ids", "padding_mask"}
    num_classes = getattr(backbone.config, "num_classes", 0)
    if reads_texts and tokenizer is None:
        raise Refusal("tokenizer", "given, as the model reads texts", None)
    if tokenizer is not None and not reads_texts:
        raise Refusal("tokenizer", "left out, as the model reads no texts", type(tokenizer).__name__)
    unknown = set() if reads_texts else others - {"classes"}
    if unknown or num_classes != len(class_names):
        rest = f" and reads {', '.join(sorted(unknown))}" if unknown else ""
        wanted = f"a model of {len(class_names)} classes, `class_names`, that reads nothing else"
        raise Refusal("backbone", wanted, f"one of {num_classes}{rest}")
    if tokenizer is not None:
        check_vocabulary(backbone.config, tokenizer)
        return Texts(tokenizer, backbone.config.max_length)
    return Classes(class_names) if class_names else Nothing()


def reason_against(condition: Condition, example: Any) -> str | None:
    """Why no picture can be made of any object, or None."""
    return not_text(example) or condition.refusal(example)


def classes_of(examples: Any) -> tuple[str, ...]:
    """The names of the classes of examples, in order; () for images alone."""
    return tuple(map(str, np.unique(examples[1]))) if isinstance(examples, tuple) else ()
