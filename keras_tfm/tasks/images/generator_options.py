"""What an `ImageGenerator` is made of: its configuration, its families of models, and how it is trained."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from keras_tfm.asking import Guidance, Share, Steps, Temperature
from keras_tfm.configs import Between, Count, Length, Option, Rate, Refusal
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.heads.denoiser import Prediction, Schedule, check_weight
from keras_tfm.models import DALLE, GPT2, DiffusionUNet, DiT, ImageGPT, Imagen, ImageTransformer
from keras_tfm.tasks.learning import VOCABULARY, ModelOptions, Vocabulary, family_among
from keras_tfm.training.options import ImagesInBatch, Training

OF_NOISE = {"dit": DiT, "diffusion-unet": DiffusionUNet, "imagen": Imagen}
WRITERS = {"gpt": GPT2, "dall-e": DALLE, "imagegpt": ImageGPT, "image-transformer": ImageTransformer}
FAMILIES = {**OF_NOISE, **WRITERS}
OF_TEXTS = ("imagen", "dall-e")
OF_CODES = ("gpt", "dall-e")
# Fields of the configuration for which the other ways, or a model without classes or texts, have no use.
OF_NOISE_ALONE = ("noise_schedule", "prediction", "max_weight", "noise_factor", "small_noise", "steps")
OF_TOKENS_ALONE = ("temperature", "top_k", "top_p")
OF_CONDITIONS_ALONE = ("class_dropout", "guidance")
SIDE = 32  # pixels of a picture's sides for imagegpt, unless --image-size says otherwise


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageGeneratorConfig(Preprocessing):
    """What an `ImageGenerator` learns, and how it makes pictures unless it is asked otherwise.

    Args:
        class_names: strings, in the order of the model's classes; () for images without classes.
        steps, guidance, temperature, top_k, top_p: as in `ImageGenerator.generate`.
    """

    class_names: tuple[str, ...] = ()
    noise_schedule: Annotated[Schedule, Option("how noise grows in 1,000 steps")] = "cosine"
    prediction: Annotated[Prediction, Option("what the model predicts of a noisy image")] = "velocity"
    max_weight: Annotated[
        Annotated[float, Between(1, 10**6)],
        Option(
            "weigh the loss of clean images by 1 / the variance of the noise, but at most by this; details "
            "count more with more than 1"
        ),
    ] = 1.0
    noise_factor: Annotated[
        Annotated[float, Between(0.01, 100)],
        Option(
            "multiplies each step's ratio of noise to signal; above 1 training sees more of what decides the "
            "content of a picture, and less of its details"
        ),
    ] = 1.0
    small_noise: Annotated[
        Annotated[float, Between(0, 1)],
        Option("how noisy a small picture is made before it is enlarged, from 0 to 1 (--small)"),
    ] = 0.1
    class_dropout: Annotated[
        Rate, Option("share of the classes or texts that training hides, so that pictures can be guided")
    ] = 0.1
    steps: Annotated[Steps, Option("steps from noise to a picture, unless predict says otherwise")] = 50
    guidance: Annotated[
        Guidance,
        Option(
            "how strongly pictures follow their class or text, unless predict says otherwise; 1 is the plain "
            "model"
        ),
    ] = 2.0

    temperature: Annotated[
        Temperature,
        Option("temperature of the drawn tokens, unless predict says otherwise; lower is more predictable"),
    ] = 1.0
    top_k: Annotated[
        Count | None,
        Option("draw among the N likeliest tokens, unless predict says otherwise", default="all"),
    ] = None
    top_p: Annotated[
        Share | None,
        Option(
            "draw among the likeliest tokens of this probability together, unless predict says otherwise",
            default="all",
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.class_names)) < len(self.class_names):
            raise Refusal("class_names", "different strings", self.class_names)
        check_weight(self.max_weight, self.prediction)
        if (self.mean, self.std) != ((0.5,), (0.5,)):
            raise Refusal("mean", "0.5, and `std` too: a picture is from -1 to 1", self.mean)

    def refuse_given(self, names: Sequence[str], reason: str) -> None:
        """Raise ValueError for one of these fields whose value is not the default."""
        for name in names:
            value = getattr(self, name)
            if value != getattr(ImageGeneratorConfig, name):
                raise Refusal(name, f"left out, as {reason}", value)


@dataclasses.dataclass(frozen=True)
class GeneratorOptions(ModelOptions):
    """A diffusion model, or one that writes the tokens of pictures, with fresh weights."""

    set_here: ClassVar[Mapping[str, str]] = {
        "num_classes": "--data",
        "vocabulary_size": "--vocabulary",
        "max_length": "--max-length",
        # of dall-e
        "text_vocabulary_size": "--vocabulary",
        "text_length": "--max-length",
        "num_codes": "--codes",
        "grid": "--codes",
    }
    family: Annotated[
        str,
        Option(
            f"kind of model: {', '.join(FAMILIES)}; {' and '.join(OF_TEXTS)} draw what a text says, "
            f"{' and '.join(OF_CODES)} write codes, for which --codes is needed"
        ),
    ] = "dit"
    size: Annotated[
        str,
        Option(
            "a published size of the family, or tiny, for images of about 32 x 32 pixels (image-transformer: "
            "8 x 8, unless --image-size says more)"
        ),
    ] = "tiny"
    tokenizer: Annotated[
        Literal["bytes", "sentencepiece"],
        Option("how texts are split: byte-level pairs, or sub-words of SentencePiece"),
    ] = "bytes"
    vocabulary_size: Vocabulary = VOCABULARY
    max_length: Annotated[Length, Option("most tokens of a text")] = 32
    codes: Annotated[
        str | None,
        Option(
            f"the RUN of image-codes whose codes are written ({', '.join(OF_CODES)})",
            default="none",
            metavar="RUN",
        ),
    ] = None
    text_encoder: Annotated[
        str | None,
        Option(
            "a trained encoder of texts, which stays as it is: a RUN, or a folder or hub id of Hugging Face, "
            "of BERT, DistilBERT or RoBERTa (imagen)",
            default="a small one that learns too",
            metavar="MODEL",
        ),
    ] = None
    small: Annotated[
        str | None,
        Option("the RUN of imagen whose pictures are enlarged (imagen)", default="none", metavar="RUN"),
    ] = None
    colours: Annotated[
        Annotated[int, Between(2, 4_096)],
        Option("colours of a picture, chosen from the pixels of the data (imagegpt)"),
    ] = 64

    @property
    def reads_texts(self) -> bool:
        """Whether the family learns of texts, not of classes."""
        return self.family in OF_TEXTS

    @property
    def writes(self) -> bool:
        """Whether the family writes tokens, one after another."""
        return self.family in WRITERS

    @property
    def model_class(self) -> Any:
        """The class of the family; ValueError for an unknown family."""
        return family_among(FAMILIES, self.family, ("image_size", "num_channels", "num_classes"))

    def base(self) -> Any:
        """The size for images in colour; published ones may be for an autoencoder's maps. ValueError for a
        model that the family has no use for.
        """
        of_imagen = dict.fromkeys(("text_encoder", "small"), ("imagen",))
        for name, families in {"codes": OF_CODES, **of_imagen}.items():
            if getattr(self, name) is not None and self.family not in families:
                raise Refusal(name, f"left out for the family {self.family}", getattr(self, name))
        config = self.model_class.config_of_size(self.size)
        if self.writes:
            return config
        if self.reads_texts:
            return dataclasses.replace(config, num_channels=3, max_length=self.max_length)
        return dataclasses.replace(config, num_channels=3, output_channels=None, num_classes=0)


@dataclasses.dataclass(frozen=True)
class GeneratorTraining(Training):
    """By default the warm-up takes a tenth of the steps."""

    batch_size: ImagesInBatch = 64
    flip: Annotated[bool, Option("mirror images at random, where a mirrored one is as likely")] = False
