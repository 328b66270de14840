"""What a translator is made of: the options of its model and of its training, and its configuration."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from keras_tfm.configs import Between, Config, Count, Field, FieldError, Length, Option, Positive
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens
from keras_tfm.generation import DecodingDefaults
from keras_tfm.models.families import OnDemand
from keras_tfm.tasks.learning import MOST_TOKENS, VOCABULARY, ModelOptions, family_among
from keras_tfm.training.options import BATCH_TOKENS, EPOCHS, PEAK_RATE, TextTraining

TABLE = {"max_source_length", "max_target_length"}  # fields of a model with static attention
FAMILIES = OnDemand({"transformer": "Transformer", "recurrent": "RecurrentSeq2Seq", "gpt2": "GPT2"})
# What a fresh model learns best by in minutes. By 29,000 pairs of Multi30k and 18 minutes of one core a
# "tiny" Transformer came to BLEU 37, a "small" one, which had time for a quarter of the epochs, to 31.
HIGHEST_RATE, WIDTH = 2e-3, 128
FEW_PAIRS, MANY_PAIRS = 10_000, 100_000
LITTLE_TEXT, SOME_TEXT = 100_000, 1_000_000  # characters of both sides, in few pairs


class Usual(NamedTuple):
    """What is taken where nobody says otherwise."""

    epochs: int
    vocabulary_size: int = VOCABULARY
    batch_tokens: int = TextTraining.batch_tokens


# Less text wants fewer tokens and smaller steps. By 300 and by 3,000 pairs of Multi30k BLEU was 4.5 and 22 in
# the place of 2.0 and 19 by 8,000 tokens and batches of 4,096.
OF_LITTLE, OF_SOME, OF_FEW, OF_MORE = Usual(60, 1_000, 512), Usual(30, 3_000, 1_024), Usual(30), Usual(15)


def by_amount(name: str) -> str:
    """What is usual for a field, in words."""
    little, some, more = (f"{getattr(usual, name):,}" for usual in (OF_LITTLE, OF_SOME, OF_MORE))
    return (
        f"{more}; of {FEW_PAIRS:,} pairs or fewer {some} below {SOME_TEXT:,} characters, {little} below "
        f"{LITTLE_TEXT:,}"
    )


@dataclasses.dataclass(frozen=True)
class TranslatorConfig(Config):
    """`max_length` limits the tokens of a source, and of a target, end token included. `around` are the
    special tokens around a source and around a target; None means an end token after each. `decoding` is how
    it generates unless a call says otherwise.
    """

    max_length: Annotated[
        Length, Option("most tokens of a source or target; longer pairs are skipped, and counted")
    ] = 128
    around: tuple[SpecialTokens, SpecialTokens] | None = None
    decoding: DecodingDefaults = dataclasses.field(default_factory=DecodingDefaults)


@dataclasses.dataclass(frozen=True)
class TranslatorOptions(ModelOptions):
    """A model with fresh weights, and its tokenizers."""

    set_here: ClassVar[Mapping[str, str]] = {
        "vocabulary_size": "--vocabulary",
        "target_vocabulary_size": "--vocabulary",
        "max_length": "--max-length",
    }

    family: Annotated[
        str, Option("kind of model: transformer, recurrent, or gpt2, a decoder without an encoder")
    ] = "transformer"
    size: Annotated[
        str | None,
        Option(
            "size of the model to train",
            default=f"tiny; small for more than {MANY_PAIRS:,} pairs, unless the family is gpt2",
        ),
    ] = None
    tokenizer: Annotated[
        Literal["sentencepiece", "wordpiece", "characters"],
        Option("sub-words by sentencepiece, which is lossless, or wordpiece; or characters"),
    ] = "sentencepiece"
    vocabulary_size: Annotated[
        Count | None,
        Option(MOST_TOKENS, default=by_amount("vocabulary_size"), flag="--vocabulary"),
    ] = None
    separate_tokenizers: Annotated[bool, Option("train one tokenizer per side instead of a joint one")] = (
        False
    )

    def base(self) -> Config:
        family = model_class(self.family)
        return family.config_of_size(self.size or default_size(family, 0))


@dataclasses.dataclass(frozen=True)
class Seq2SeqTraining(TextTraining):
    """By default the warm-up takes a tenth of the steps; with --schedule inverse-root three epochs, at most
    4,000 steps and half of all.
    """

    warmup_by_root = (3, 4_000)

    epochs: Annotated[
        Count | None,
        Option(
            EPOCHS,
            default=f"{OF_MORE.epochs}; of {FEW_PAIRS:,} pairs or fewer {OF_FEW.epochs}, "
            f"{OF_LITTLE.epochs} below {LITTLE_TEXT:,} characters",
        ),
    ] = None  # type: ignore[assignment]
    batch_tokens: Annotated[
        Count | None,
        Option(BATCH_TOKENS, default=f"{by_amount('batch_tokens')}; at least twice --max-length"),
    ] = None  # type: ignore[assignment]
    learning_rate: Annotated[
        Positive | None,
        Option(
            PEAK_RATE,
            default=f"{HIGHEST_RATE} for vectors of {WIDTH} numbers or fewer, falling with their width",
        ),
    ] = None  # type: ignore[assignment]
    label_smoothing: Annotated[
        Annotated[float, Between(0, 1, is_open=True)],
        Option("share of each label that is spread over all tokens"),
    ] = 0.1
    scheduled_sampling: Annotated[
        Annotated[float, Between(0, 1)],
        Option(
            "share of the target tokens that the decoder replaces by its own predictions; it rises linearly "
            "from 0 to this value"
        ),
    ] = 0.0


def usual_for(pairs: tuple[Sequence[str], Sequence[str]]) -> Usual:
    """What is taken for these `pairs`, (sources, targets). Text of many characters, such as Chinese, has up
    to four times as many tokens, but no more than other text: tokenizers keep a quarter of a vocabulary or
    more for single characters.
    """
    if len(pairs[0]) > FEW_PAIRS:
        return OF_MORE
    texts = [text for side in pairs for text in side]
    count = sum(map(len, texts))
    usual = OF_LITTLE if count < LITTLE_TEXT else OF_SOME if count < SOME_TEXT else OF_FEW
    most = min(VOCABULARY, 4 * len(set().union(*texts)))
    return usual._replace(vocabulary_size=max(usual.vocabulary_size, most))


def model_class(family: str) -> Any:
    """The class of the models of a `family`; ValueError for an unknown one."""
    return family_among(FAMILIES, family, ("vocabulary_size",), decodes=True)


def default_size(family: Any, num_pairs: int) -> str:
    """The size that is taken for the class `family` where none is named: "tiny" for few pairs."""
    is_small = "tiny" not in family.sizes or (num_pairs > MANY_PAIRS and "small" in family.sizes)
    return "small" if is_small else "tiny"


def is_static(config: Any) -> bool:
    """Whether a model's configuration is one with "static" attention, a table of positions."""
    return getattr(config, "attention", None) == "static"


def check_table(max_length: int, config: Any) -> None:
    """Raise ValueError if a model's table of static attention has no rows or columns for `max_length`
    tokens.
    """
    for name in sorted(TABLE) if is_static(config) else ():
        if getattr(config, name) < max_length:
            raise FieldError(
                "{max_length} must be at most the model's {}, {}, as its attention is static; it is {}.",
                Field(name),
                getattr(config, name),
                max_length,
            )
