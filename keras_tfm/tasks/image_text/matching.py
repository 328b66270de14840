"""The configuration of a matcher of images and texts, and the options of one with fresh weights."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from keras_tfm.configs import Config, Count, Length, Option
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.tokenizers.clip import CLIPTokenizer
from keras_tfm.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer
from keras_tfm.heads import Contrastive
from keras_tfm.models import CLIP, SigLIP
from keras_tfm.tasks.learning import ModelOptions

SIGMOID = {"logit_scale": float(np.log(10)), "logit_bias": -10.0}  # Zhai et al. 2023, section 3.2
# {name on the command line: (class, what trains its tokenizer, arguments of its head)}
FAMILIES: dict[str, Any] = {
    "clip": (CLIP, CLIPTokenizer.train, {}),
    "siglip": (SigLIP, SentencePieceTokenizer.train_canonical, SIGMOID),
}


@dataclasses.dataclass(frozen=True)
class ImageTextMatcherConfig(Preprocessing):
    """The preprocessing of a matcher.

    `around` are the special tokens before and after each text, by default start and end for CLIP's tokenizer
    and only the end for others.
    """

    around: SpecialTokens | None = None

    def around_with(self, tokenizer: Tokenizer) -> SpecialTokens:
        """`around`, or its default for the tokenizer."""
        start = (tokenizer.start_id,) if isinstance(tokenizer, CLIPTokenizer) else ()
        return self.around or SpecialTokens(start, (tokenizer.end_id,))


@dataclasses.dataclass(frozen=True)
class MatcherOptions(ModelOptions):
    """An image encoder and a text encoder with fresh weights, and a vocabulary.

    >>> options = keras_tfm.tasks.MatcherOptions(family="siglip")
    >>> type(options.base()).__name__
    'SigLIPConfig'
    """

    set_here: ClassVar[Mapping[str, str]] = {
        "vocabulary_size": "--vocabulary",
        "max_length": "--max-length",
        "end_id": "--vocabulary",
    }

    family: Annotated[
        Literal["clip", "siglip"],
        Option("clip learns to choose a text among those of a batch, siglip to judge each pair by itself"),
    ] = "clip"
    size: Annotated[
        str, Option("a published size of the family, or tiny, for images of some 32 x 32 pixels")
    ] = "tiny"
    vocabulary_size: Annotated[
        Count, Option("pieces at most, fewer for small files", flag="--vocabulary")
    ] = 8_000
    max_length: Annotated[Length, Option("tokens of a text at most, after which it is cut")] = 64

    def base(self) -> Any:
        return FAMILIES[self.family][0].config_of_size(self.size)

    def make(
        self, texts: Sequence[str], changes: Mapping[str, Any], image_size: int | None
    ) -> tuple[Contrastive, Tokenizer]:
        """The model, with fields of its configuration changed, and a tokenizer learnt of the texts."""
        family, train, arguments = FAMILIES[self.family]
        tokenizer = train(texts, self.vocabulary_size)
        own = {"vocabulary_size": tokenizer.vocabulary_size, "max_length": self.max_length}
        if self.family == "clip":
            own["end_id"] = tokenizer.end_id
        if image_size is not None:
            own["image_size"] = image_size
        config = family.config_class.from_json(dataclasses.asdict(self.base()) | dict(changes) | own)
        return Contrastive(family(config), **arguments), tokenizer


@dataclasses.dataclass(frozen=True)
class HeadArguments(Config):
    """The arguments of `Contrastive` other than the model."""

    logit_scale: float = float(np.log(1 / 0.07))
    logit_bias: float | None = None
