"""Sentences as vectors, like ones close together."""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_tfm.configs import Config, Length
from keras_tfm.data.encoding import are_cut, model_inputs, pack_texts
from keras_tfm.data.huggingface import read_huggingface_tokenizer
from keras_tfm.data.lengths import rows_by_length
from keras_tfm.data.tokenizer_kinds import load_tokenizer
from keras_tfm.heads.classification import pooled_of
from keras_tfm.tasks.encoder_task import check_vocabulary
from keras_tfm.tasks.task import Task, describe_backbone, make_backbone


@dataclasses.dataclass(frozen=True)
class SentenceEncoderConfig(Config):
    """`max_length` bounds the tokens of a sentence, special ones included; what exceeds it is not read.
    `normalize` gives vectors the length 1.
    """

    max_length: Length = 128
    normalize: bool = True


class SentenceEncoder(Task):
    """Strings to vectors (D,): the mean of an encoder's hidden states over the tokens.

    Reimers and Gurevych 2019, "Sentence-BERT", section 3. The dot product of two vectors of length 1 is the
    cosine of their angle, which measures how alike the sentences are.
    """

    name = "sentence-vectors"
    config_class = SentenceEncoderConfig

    def __init__(self, backbone, tokenizer, config=None):
        self.model, self.tokenizer = backbone, tokenizer
        self.config = config or SentenceEncoderConfig()
        if not 3 <= self.config.max_length <= backbone.config.max_length:
            raise ValueError(
                f"`max_length` must lie in [3, {backbone.config.max_length}]; it is {self.config.max_length}."
            )
        check_vocabulary(backbone.config, tokenizer)
        self._encode = tf.function(self.encode, autograph=False, reduce_retracing=True)

    @classmethod
    def from_huggingface(cls, name, max_length=None, normalize=True):
        """The encoder in the folder `name`, or of this hub id; a head is left behind.

        CheckpointError or DataError where something is not as it must be.
        """
        from keras_tfm.convert import find_folder, from_huggingface

        folder = find_folder(name)
        backbone = from_huggingface(folder, with_head=False)
        length = max_length or min(128, backbone.config.max_length)
        tokenizer = read_huggingface_tokenizer(folder)
        return cls(backbone, tokenizer, SentenceEncoderConfig(length, normalize))

    def save_huggingface(self, folder, overwrite=False):
        """Write a new `folder` for `transformers`: config.json, model.safetensors and tokenizer.json."""
        from keras_tfm.convert import save_huggingface

        save_huggingface(self.model, folder, overwrite, tokenizer=self.tokenizer)

    def encode(self, texts):
        """Strings (B,) to vectors (B, D), wholly in the graph."""
        packed = pack_texts(self.tokenizer, self.config.max_length, texts)
        packed = {name: x for name, x in packed.items() if name in self.model.input}
        inputs = model_inputs(packed, self.tokenizer.pad_id)
        vectors = pooled_of(inputs, self.model(inputs, training=False), "mean")  # (B, D)
        return tf.math.l2_normalize(vectors, axis=-1) if self.config.normalize else vectors

    def predict(self, texts, batch_size=64):
        """The vectors of the strings `texts`: an array (N, D)."""
        texts = list(texts)
        vectors = np.zeros((len(texts), self.model.config.dim), "float32")
        for rows in rows_by_length(map(len, texts), batch_size, "text"):
            vectors[rows] = self._encode(tf.constant([texts[row] for row in rows]))
        return vectors

    def similarity(self, texts, others):
        """The cosine of each of `texts` and each of `others`: an array (N, M), from -1 to 1."""
        one, other = (self.predict(side) for side in (texts, others))
        if not self.config.normalize:
            one, other = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (one, other))
        return one @ other.T

    def count_truncated(self, texts):
        """How many of `texts` have more tokens than the model reads, and are cut."""
        return int(are_cut(self.tokenizer, self.config.max_length, texts).sum())

    def as_line(self, answer):
        return " ".join(f"{x:.6g}" for x in answer)

    def export_endpoints(self):
        return {
            "serving_default": (
                lambda text: {"vector": self.encode(text)},
                [tf.TensorSpec([None], tf.string, "text")],
            )
        }

    def export_resources(self):
        return [self.tokenizer]

    def describe_model(self):
        return describe_backbone(self.model)

    def save_parts(self, folder):
        self.tokenizer.save(folder)

    @classmethod
    def load_parts(cls, folder, config, model):
        return cls(make_backbone(model), load_tokenizer(folder), config)
