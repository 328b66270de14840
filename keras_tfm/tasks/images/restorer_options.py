"""What an `ImageRestorer` is made of: its configuration, its families of models, and how it is trained."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from keras_tfm.configs import Between, Config, Count, Option, Refusal, meant
from keras_tfm.data.batches.degradations import RESTORATIONS
from keras_tfm.models import IPT, MDSR, TTSR
from keras_tfm.tasks.learning import ModelOptions, family_among
from keras_tfm.training.options import ImagesInBatch, Training

FAMILIES = {"mdsr": MDSR, "ipt": IPT, "ttsr": TTSR}
REFERENCED = "x4"  # what a TTSR mends
CROP = 48  # pixels, where the model takes any


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageRestorerConfig(Config):
    """What an `ImageRestorer` mends.

    Args:
        restore: names of `RESTORATIONS`, with commas between.
        crop: the side of the degraded crops that it learns from, in pixels; None is the model's, or 48.
    """

    restore: Annotated[
        str,
        Option(
            f"what is mended, one or several with commas between: {', '.join(RESTORATIONS)}",
            default=f"x2; of ttsr {REFERENCED}, which is all it mends",
        ),
    ] = "x2"
    crop: Annotated[
        Annotated[int, Between(8, 1_024)] | None,
        Option(
            "side of the degraded crops that are learnt from, in pixels", default=f"the model's, or {CROP}"
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.names:
            if name not in RESTORATIONS:
                known = ", ".join(RESTORATIONS)
                raise Refusal("restore", f"some of {known}{meant(name, RESTORATIONS)}", repr(name))
        if len({*self.names}) < len(self.names):
            raise Refusal("restore", "different names", repr(self.restore))

    @property
    def names(self) -> list[str]:
        """What is mended."""
        return [name.strip() for name in self.restore.split(",")]

    @property
    def scales(self) -> list[int]:
        """How many times longer sides become, for each of the names."""
        return [RESTORATIONS[name].scale for name in self.names]


@dataclasses.dataclass(frozen=True)
class RestorerOptions(ModelOptions):
    """A model with fresh weights. Convolutions learn in minutes what attention takes hours for."""

    set_here: ClassVar[Mapping[str, str]] = {"tasks": "--restore", "scales": "--restore"}
    family: Annotated[str, Option(f"kind of model: {', '.join(FAMILIES)}")] = "mdsr"
    size: Annotated[str, Option("a published size of the family, tiny, or of mdsr and ttsr small")] = "small"

    @property
    def model_class(self) -> Any:
        """The class of the family; ValueError for an unknown family."""
        return family_among(FAMILIES, self.family, ("tasks", "scales", "mean"))

    @property
    def reads_references(self) -> bool:
        """Whether the model takes textures from a reference."""
        return self.model_class is TTSR

    def base(self) -> Any:
        return self.model_class.config_of_size(self.size)


@dataclasses.dataclass(frozen=True)
class RestorerTraining(Training):
    """By default the warm-up takes a tenth of the steps."""

    batch_size: ImagesInBatch = 16
    crops: Annotated[Count, Option("crops of each picture in an epoch")] = 32
