"""Sentences as vectors: similar sentences get similar vectors."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Config, Length
from keras_tfm.data.batches.encoding import are_cut, model_inputs, pack_texts
from keras_tfm.data.batches.lengths import rows_by_length
from keras_tfm.data.tokenizers.huggingface import read_huggingface_tokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.heads.classification import pooled_of
from keras_tfm.tasks.served_texts import served_texts
from keras_tfm.tasks.signatures import Endpoints, Served
from keras_tfm.tasks.task import Task, check_vocabulary, describe_backbone
from keras_tfm.training.folder import Path


@dataclasses.dataclass(frozen=True)
class SentenceEncoderConfig(Config):
    """The vectors of a `SentenceEncoder`.

    Args:
        max_length: how many tokens of a sentence are read, special tokens included.
        normalize: whether vectors have length 1.
    """

    max_length: Length = 128
    normalize: bool = True


class SentenceEncoder(Task):
    """Turns strings into vectors (D,): the mean of an encoder's hidden states over the tokens.

    Reimers and Gurevych 2019, "Sentence-BERT", section 3. The dot product of two vectors of length 1 is their
    cosine similarity.

    >>> tokenizer = keras_tfm.data.BERTTokenizer.train(["the cat sat", "a dog ran"], 300)
    >>> backbone = keras_tfm.models.BERT.from_size("tiny", vocabulary_size=tokenizer.vocabulary_size)
    >>> keras_tfm.tasks.SentenceEncoder(backbone, tokenizer).predict(["a cat ran"]).shape
    (1, 128)
    """

    name = "sentence-vectors"
    config_class = SentenceEncoderConfig

    def __init__(
        self, backbone: keras.Model, tokenizer: Tokenizer, config: SentenceEncoderConfig | None = None
    ):
        self.model, self.tokenizer = backbone, tokenizer
        self.config = config or SentenceEncoderConfig()
        if not 3 <= self.config.max_length <= backbone.config.max_length:
            raise ValueError(
                f"`max_length` must lie in [3, {backbone.config.max_length}]; it is {self.config.max_length}."
            )
        check_vocabulary(backbone.config, tokenizer)
        self._encode = tf.function(self.encode, autograph=False, reduce_retracing=True)

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        """Whether `model` is a text encoder without a head."""
        is_bare = isinstance(model.output, dict) and "sequence_output" in model.output
        return is_bare and "token_ids" in model.input and not hasattr(model, "step")

    @classmethod
    def from_huggingface(cls, name: Path, max_length: int | None = None, normalize: bool = True) -> Self:
        """The encoder in the folder `name` (or of this hub id), without its head.

        Raises:
            CheckpointError, DataError: if a file of the folder is missing or not as it must be.
        """
        from keras_tfm.convert import find_folder, from_huggingface

        folder = find_folder(name)
        backbone = from_huggingface(folder, with_head=False)
        length = max_length or min(128, backbone.config.max_length)
        tokenizer = read_huggingface_tokenizer(folder, encloses=True)
        return cls(backbone, tokenizer, SentenceEncoderConfig(length, normalize))

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for `transformers`: config.json, model.safetensors and tokenizer.json."""
        from keras_tfm.convert import save_huggingface

        save_huggingface(self.model, folder, overwrite, tokenizer=self.tokenizer)

    def encode(self, texts: tf.Tensor) -> tf.Tensor:
        """Strings (B,) to vectors (B, D). Runs in a graph."""
        packed = pack_texts(self.tokenizer, self.config.max_length, texts)
        packed = {name: x for name, x in packed.items() if name in self.model.input}
        return self._vectors(model_inputs(packed, self.tokenizer.pad_id))

    def _vectors(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """The model's inputs (B, T) to vectors (B, D)."""
        vectors = pooled_of(inputs, self.model(inputs, training=False), "mean")
        return tf.math.l2_normalize(vectors, axis=-1) if self.config.normalize else vectors

    def predict(self, texts: Iterable[str], batch_size: int = 64) -> np.ndarray:
        """The vectors of the strings `texts`, (N, D)."""
        texts = list(texts)
        vectors = np.zeros((len(texts), self.model.config.dim), "float32")
        for rows in rows_by_length(map(len, texts), batch_size, "text"):
            vectors[rows] = self._encode(tf.constant([texts[row] for row in rows]))
        return vectors

    def similarity(self, texts: Iterable[str], others: Iterable[str]) -> np.ndarray:
        """The cosine similarity of each of `texts` and each of `others`, (N, M), from -1 to 1."""
        one, other = (self.predict(side) for side in (texts, others))
        if not self.config.normalize:
            one, other = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (one, other))
        return one @ other.T

    def count_truncated(self, texts: Sequence[str]) -> int:
        """How many of `texts` have more tokens than the model reads, and are cut."""
        return int(are_cut(self.tokenizer, self.config.max_length, texts).sum())

    def as_line(self, answer: np.ndarray) -> str:
        return " ".join(f"{x:.6g}" for x in answer)

    def export_endpoints(self) -> Endpoints:
        return {
            "serving_default": (
                lambda text: {"vector": self.encode(text)},
                [tf.TensorSpec([None], tf.string, "text")],
            )
        }

    def served(self) -> Served:
        return served_texts(
            self.tokenizer,
            self.config.max_length,
            {*self.model.input, "padding_mask"},
            lambda inputs: {"vector": self._vectors(inputs)},
            lambda texts: pack_texts(self.tokenizer, self.config.max_length, tf.constant(texts)),
            {"kind": "arrays"},
        )

    def describe_model(self) -> dict[str, Any]:
        return describe_backbone(self.model)
