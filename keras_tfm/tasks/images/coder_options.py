"""What an `ImageCoder` is made of: its configuration, its families of models, and how it is trained."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from keras_tfm.configs import Between, Count, Length, Natural, Option, Refusal
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.models import VQGAN, DiscreteVAE, VQGANConfig
from keras_tfm.tasks.learning import ModelOptions, family_among
from keras_tfm.training.options import ImagesInBatch, Training

FAMILIES = {"vqgan": VQGAN, "discrete-vae": DiscreteVAE}
DEAD_AFTER = 100  # steps without use, after which a code of a VQGAN is replaced


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageCoderConfig(Preprocessing):
    """What an `ImageCoder` reads. `mean` and `std` are made for the range of the family's pixels."""


@dataclasses.dataclass(frozen=True)
class CoderOptions(ModelOptions):
    """A model of codes with fresh weights."""

    set_here: ClassVar[Mapping[str, str]] = {
        "num_codes": "--num-codes",
        "local_codes": "--local-codes",
    }
    family: Annotated[str, Option(f"kind of model: {', '.join(FAMILIES)}")] = "vqgan"
    size: Annotated[
        str, Option("a published size of the family, or tiny, for images of about 32 x 32 pixels")
    ] = "tiny"
    num_codes: Annotated[
        Length | None, Option("how many different codes there are", default="set by --size")
    ] = None
    local_codes: Annotated[
        bool,
        Option(
            "make each code of its own square of pixels alone: more codes are needed, but a decoder learns "
            "to write them in far fewer steps (vqgan)"
        ),
    ] = False

    @property
    def model_class(self) -> Any:
        """The class of the family; ValueError for an unknown family."""
        return family_among(FAMILIES, self.family, ("image_size", "num_channels", "num_codes"))

    def base(self) -> Any:
        config = self.model_class.config_of_size(self.size)
        given: dict[str, Any] = {} if self.num_codes is None else {"num_codes": self.num_codes}
        if isinstance(config, VQGANConfig):
            given |= {"dead_after": DEAD_AFTER, "local_codes": self.local_codes}
        elif self.local_codes:
            raise Refusal("local_codes", f"left out, as {self.family} has no local codes", True)
        return dataclasses.replace(config, **given)


@dataclasses.dataclass(frozen=True)
class CoderTraining(Training):
    """By default the warm-up takes a tenth of the steps."""

    batch_size: ImagesInBatch = 16
    flip: Annotated[bool, Option("mirror images at random")] = False
    adversarial_after: Annotated[
        Natural | None,
        Option("steps after which a discriminator judges the images too (vqgan)", default="never"),
    ] = None
    adversarial_weight: Annotated[
        Annotated[float, Between(0, 100)],
        Option(
            "weight of the discriminator's loss beside the loss of pixels, after both gradients are made "
            "equally large"
        ),
    ] = 0.8
    patches: Annotated[Count, Option("width of the discriminator, a multiple of 8")] = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patches % 8:  # its maps are normalised in as many groups
            raise Refusal("patches", "a multiple of 8", self.patches)
