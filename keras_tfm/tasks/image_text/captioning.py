"""The configuration of a captioner, and the options of one with fresh weights."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from keras_tfm.configs import Count, Length, Option, meant
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.tokenizers.kinds import train_tokenizer
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer
from keras_tfm.generation import DecodingDefaults
from keras_tfm.heads import LanguageModel
from keras_tfm.models import VisionEncoderDecoder, VisionEncoderDecoderConfig, tiny_config
from keras_tfm.models.multimodal.vision_encoder_decoder import ENCODERS, OF_ENCODER
from keras_tfm.tasks.learning import ModelOptions

FAMILIES = {name.lower(): family for name, family in sorted(ENCODERS.items())}
# The fields of a decoder of each size, where they are not the family's defaults.
DECODERS: dict[str, dict[str, Any]] = {
    "tiny": {"num_layers": 3, "dim": 128, "num_heads": 4},
    "base": {"dim": 768, "num_layers": 6, "num_heads": 12, "intermediate_dim": 3072},
}


@dataclasses.dataclass(frozen=True)
class CaptionerConfig(Preprocessing):
    """How a `Captioner` prepares images, which special tokens surround a caption, and how it decodes.

    Args:
        around: the ids before and after each caption, by default the tokenizer's start and end.
        decoding: the defaults of `generate`.
    """

    around: SpecialTokens | None = None
    decoding: DecodingDefaults = dataclasses.field(default_factory=DecodingDefaults)


@dataclasses.dataclass(frozen=True)
class CaptionerOptions(ModelOptions):
    """An image encoder and a text decoder with fresh weights, and a vocabulary.

    >>> options = keras_tfm.tasks.CaptionerOptions(encoder="deit", decoder="bart", max_length=32)
    >>> options.base().encoder, options.base().decoder, options.base().max_length
    ('DeiT', 'BART', 32)
    """

    set_here: ClassVar[Mapping[str, str]] = {
        "encoder": "--encoder",
        "decoder": "--decoder",
        "vocabulary_size": "--vocabulary",
        "max_length": "--max-length",
    }

    encoder: Annotated[str, Option(f"the family of the images' model: {', '.join(FAMILIES)}")] = "vit"
    decoder: Annotated[Literal["gpt2", "bart"], Option("the family of the text's model")] = "gpt2"
    size: Annotated[
        Literal["tiny", "base"],
        Option("of both models: tiny, for images of some 32 x 32 pixels, or base"),
    ] = "tiny"
    tokenizer: Annotated[
        Literal["bytes", "sentencepiece"], Option("byte-level pairs, or sub-words of SentencePiece")
    ] = "bytes"
    vocabulary_size: Annotated[
        Count, Option("pieces at most, fewer for small files", flag="--vocabulary")
    ] = 8_000
    max_length: Annotated[Length, Option("tokens of a caption at most, after which it is cut")] = 64

    def base(self) -> VisionEncoderDecoderConfig:
        if self.encoder not in FAMILIES:
            raise ValueError(
                f"There is no encoder {self.encoder!r}{meant(self.encoder, FAMILIES)}; there are "
                f"{', '.join(FAMILIES)}."
            )
        family = FAMILIES[self.encoder]
        encoder = dataclasses.asdict(tiny_config(family) if self.size == "tiny" else family.config_class())
        images = {name: encoder.pop(name) for name in OF_ENCODER}
        is_gpt2 = self.decoder == "gpt2"
        decoder = {} if is_gpt2 and self.size == "base" else dict(DECODERS[self.size])
        if self.decoder == "bart" and self.size == "tiny":
            decoder["intermediate_dim"] = 4 * decoder["dim"]
        return VisionEncoderDecoderConfig(
            **images,
            vocabulary_size=self.vocabulary_size,
            max_length=self.max_length,
            encoder=family.__name__,
            encoder_config=encoder,
            decoder="GPT2" if is_gpt2 else "BART",
            decoder_config=decoder,
        )

    def make(
        self, texts: Sequence[str], changes: Mapping[str, Any], image_size: int | None
    ) -> tuple[LanguageModel, Tokenizer]:
        """The model, with fields of its configuration changed, and a tokenizer learnt of the texts."""
        tokenizer = train_tokenizer(texts, self.tokenizer, self.vocabulary_size)
        own: dict[str, Any] = {"vocabulary_size": tokenizer.vocabulary_size, "max_length": self.max_length}
        if image_size is not None:
            own["image_size"] = image_size
        fields = dataclasses.asdict(self.base()) | dict(changes) | own
        if fields["decoder"] == "BART":
            ids = {f"{role}_id": getattr(tokenizer, f"{role}_id") for role in ("pad", "start", "end")}
            fields["decoder_config"] = fields["decoder_config"] | ids
        config = VisionEncoderDecoderConfig.from_json(fields)
        return LanguageModel(VisionEncoderDecoder(config)), tokenizer
