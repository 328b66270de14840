"""Sentences as vectors: similar sentences get similar vectors."""

import dataclasses
from collections.abc import Iterable
from typing import Literal, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Config, Length, Refusal
from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.tokenizers.huggingface import read_huggingface_tokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.heads.pooling import pooled_tokens
from keras_tfm.tasks.asking import AskedTask
from keras_tfm.tasks.signatures import Signature
from keras_tfm.tasks.task import check_vocabulary, encodes_texts
from keras_tfm.tasks.text.text_signature import text_signature
from keras_tfm.training.folder import Path

Pooling = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


@dataclasses.dataclass(frozen=True)
class SentenceEncoderConfig(Config):
    """The vectors of a `SentenceEncoder`.

    Args:
        max_length: how many tokens of a sentence are read, special tokens included.
        normalize: whether vectors have length 1.
        pooling: what a vector is made of, the hidden states of a text's tokens: the first one ("cls"), the
            last one ("lasttoken"), the maximum of each feature ("max"), the mean, their sum over the square
            root of their number ("mean_sqrt_len_tokens"), the mean weighted by positions from 1
            ("weightedmean"). The vectors of several stand side by side, in the order of
            `heads.pooling.TOKEN_POOLINGS`.

    Raises:
        ValueError: without a pooling, and for one that is named twice.
    """

    max_length: Length = 128
    normalize: bool = True
    pooling: tuple[Pooling, ...] = ("mean",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pooling or len(set(self.pooling)) < len(self.pooling):
            raise ValueError(f"`pooling` must be one or more different poolings; it is {self.pooling}.")


class SentenceEncoder(AskedTask):
    """Turns strings into vectors: an encoder's hidden states, pooled over the tokens, by default to their
    mean.

    Vectors have the encoder's width D, with several poolings D times their number. Reimers and Gurevych 2019,
    "Sentence-BERT", section 3. The dot product of two vectors of length 1 is their cosine similarity.

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
        if not self.takes(backbone):
            raise Refusal("backbone", "an encoder of texts", type(backbone).__name__)
        if not 3 <= self.config.max_length <= backbone.config.max_length:
            raise ValueError(
                f"`max_length` must lie in [3, {backbone.config.max_length}]; it is {self.config.max_length}."
            )
        check_vocabulary(backbone.config, tokenizer)

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        return encodes_texts(model)

    @classmethod
    def from_huggingface(
        cls, name: Path, max_length: int | None = None, normalize: bool | None = None
    ) -> Self:
        """The encoder in the folder `name` (or of this hub id), without its head.

        A folder of sentence-transformers, with modules.json, says how texts are cut and pooled and whether
        vectors are normalised; of any other folder 128 tokens are read, and vectors are means of length 1.
        `max_length` and `normalize` replace what the folder says.

        Raises:
            CheckpointError, DataError: if a file of the folder is missing or not as it must be, and for
                modules and options of sentence-transformers that are not computed here.
        """
        from keras_tfm.convert import find_folder, from_huggingface
        from keras_tfm.convert.sentence_folder import read_sentence_folder

        folder, fields = read_sentence_folder(find_folder(name))
        backbone = from_huggingface(folder, with_head=False)
        tokenizer = read_huggingface_tokenizer(folder, encloses=True)
        if fields.pop("lowercase", False) and not getattr(tokenizer, "lowercase", False):
            problem = "do_lower_case is true, and its tokenizer distinguishes case"
            raise DataError(folder, None, f"{problem}: set it to false, and give texts in lower case")
        most = getattr(backbone.config, "max_length", 128)  # T5, which is no encoder, has no limit
        length = max_length or min(fields.get("max_length") or (most if fields else 128), most)
        fields = {"normalize": True, **fields, "max_length": length}
        if normalize is not None:
            fields["normalize"] = normalize
        return cls(backbone, tokenizer, SentenceEncoderConfig(**fields))

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for `transformers` and sentence-transformers: config.json, model.safetensors,
        tokenizer.json, and modules.json with the files of its modules.
        """
        from keras_tfm.convert import save_huggingface
        from keras_tfm.convert.folder import max_length_writer
        from keras_tfm.convert.sentence_folder import sentence_writer

        config = self.config
        write = sentence_writer(config.pooling, config.normalize, config.max_length, self.model.config.dim)
        writers = [write, max_length_writer(config.max_length)]
        save_huggingface(self.model, folder, overwrite, tokenizer=self.tokenizer, writers=writers)

    def _vectors(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The model's inputs (B, T) to the "vector" (B, P D) of each row, of P poolings."""
        hidden = self.model(inputs, training=False)["sequence_output"]
        vectors = pooled_tokens(hidden, inputs["padding_mask"], self.config.pooling)
        return {"vector": tf.math.l2_normalize(vectors, axis=-1) if self.config.normalize else vectors}

    def predict(self, texts: Iterable[str], /, *, batch_size: int = 64) -> np.ndarray:
        """The vectors of the strings `texts`, (N, P D) with P poolings."""
        vectors = [answer["vector"] for answer in self.ask(texts, batch_size)]
        return np.array(vectors, "float32").reshape(-1, len(self.config.pooling) * self.model.config.dim)

    def similarity(self, texts: Iterable[str], others: Iterable[str]) -> np.ndarray:
        """The cosine similarity of each of `texts` and each of `others`, (N, M), from -1 to 1."""
        one, other = (self.predict(side) for side in (texts, others))
        if not self.config.normalize:
            one, other = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (one, other))
        return one @ other.T

    def as_line(self, answer: np.ndarray) -> str:
        return " ".join(f"{x:.6g}" for x in answer)

    def signature(self) -> Signature:
        names, length = {*self.model.input, "padding_mask"}, self.config.max_length
        return text_signature(self.tokenizer, length, names, self._vectors, {"kind": "arrays"})
