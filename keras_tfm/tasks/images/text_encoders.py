"""Text encoders that were trained before, on texts alone, and that an `Imagen` does not change (Saharia et
al. 2022, "Photorealistic Text-to-Image Diffusion Models with Deep Language Understanding", section 2.1).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras

from keras_tfm.configs import Refusal
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.models.pictures.text_imagen import ENCODERS, OF_ENCODER
from keras_tfm.tasks.images.generator_options import GeneratorOptions
from keras_tfm.tasks.task import load_any
from keras_tfm.tasks.task_folder import is_task_folder
from keras_tfm.tasks.text.sentence_encoder import SentenceEncoder
from keras_tfm.training.weights import assign_by_path, by_path


class TextReader(NamedTuple):
    """An encoder of texts, its tokenizer, and the `fields` of the `ImagenConfig` of a model that has such an
    encoder.
    """

    encoder: keras.Model
    tokenizer: Tokenizer
    fields: dict[str, Any]

    def teach(self, encoder: keras.Model) -> None:
        """Give an `encoder` these weights; it may have no pooler, and fewer positions."""
        given = by_path(self.encoder)
        assign_by_path(encoder, {path: given[path][: x.shape[0]] for path, x in by_path(encoder).items()})


def given_encoder(options: GeneratorOptions, changes: Mapping[str, Any]) -> TextReader | None:
    """What --text-encoder names, for texts of --max-length tokens, or None. It has no dropout and no pooler,
    and does not learn unless `changes` say so. ValueError for a model that is none of the `ENCODERS`, or
    holds fewer tokens, and for options and `changes` of an encoder.
    """
    if options.text_encoder is None:
        return None
    refuse_settled(options, changes, "--text-encoder")
    start = options.text_encoder
    task = load_any(start) if is_task_folder(start) else SentenceEncoder.from_huggingface(start)
    encoder, tokenizer = getattr(task.model, "backbone", task.model), getattr(task, "tokenizer", None)
    if tokenizer is None or ENCODERS.get(type(encoder).__name__) is not type(encoder):
        raise Refusal("text_encoder", f"one of {', '.join(ENCODERS)}", type(encoder).__name__)
    if options.max_length > encoder.config.max_length:
        most = f"at most {encoder.config.max_length}, which --text-encoder holds"
        raise Refusal("max_length", most, options.max_length)
    unused = {"dropout": 0.0, "attention_dropout": 0.0, "pooler": False}
    sizes = {name: unused.get(name, value) for name, value in dataclasses.asdict(encoder.config).items()}
    fields = {
        "encoder": type(encoder).__name__,
        "encoder_config": {name: value for name, value in sizes.items() if name not in OF_ENCODER},
        "vocabulary_size": encoder.config.vocabulary_size,
        "max_length": options.max_length,
        "trains_encoder": changes.get("trains_encoder", False),
    }
    return TextReader(encoder, tokenizer, fields)


def refuse_settled(options: GeneratorOptions, changes: Mapping[str, Any], flag: str, **settled: Any) -> None:
    """Raise ValueError for options of a tokenizer, and `changes` of an encoder, where the model that `flag`
    names has both. `settled` are the values that it gives to further options.
    """
    for name in ("tokenizer", "vocabulary_size", *settled):
        value, usual = getattr(options, name), getattr(GeneratorOptions, name)
        if value not in (usual, settled.get(name, usual)):
            raise Refusal(name, f"left out, as texts are read as {flag} reads them", value)
    for name in ("encoder", "encoder_config"):
        if name in changes:
            raise Refusal(name, f"left out, as the encoder is that of {flag}", changes[name])
