"""The families of models that read an image, and the options for one with fresh weights."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import keras

import keras_tfm.models
from keras_tfm.configs import Option, meant
from keras_tfm.models.families import OnDemand, names_in
from keras_tfm.tasks.learning import ModelOptions, family_among

# They have further inputs: the mask, the choice of a subnet, the camera.
READ_MORE = "ViTMAE", "AutoFormerSupernet", "TransReID"
# {name on the command line: class} of the families whose only input is an image
FAMILIES = OnDemand({name.lower(): name for name in names_in("vision") if name not in READ_MORE})


@dataclasses.dataclass(frozen=True)
class ImageOptions(ModelOptions):
    """A vision model with fresh weights."""

    families: ClassVar[Mapping[str, Any]] = FAMILIES
    needed_fields: ClassVar[tuple[str, ...]] = ("image_size", "num_channels")  # of a family's configuration
    family: Annotated[str, Option(f"kind of model: {', '.join(FAMILIES)}")] = "vit"
    size: Annotated[
        str, Option("a published size of the family, or tiny, for images of about 32 x 32 pixels")
    ] = "tiny"

    @property
    def model_class(self) -> Any:
        """The class of the family; ValueError for an unknown family."""
        return family_among(self.families, self.family, self.needed_fields)

    def base(self) -> Any:
        family = self.model_class
        has_tiny = self.family in self.families  # a plugin's family has none
        if self.size == "tiny" and has_tiny:
            return keras_tfm.models.tiny_config(family)
        if self.size not in family.sizes:
            known = list(dict.fromkeys([*["tiny"] * has_tiny, *family.sizes]))
            others = [name for name, other in self.families.items() if self.size in other.sizes]
            elsewhere = f" Families with such a size: {', '.join(others)}." if others else ""
            raise ValueError(
                f"{family.__name__} has no size {self.size!r}{meant(self.size, known)}; it has "
                f"{', '.join(known)}.{elsewhere}"
            )
        return family.sizes[self.size]

    def model(self, changes: Mapping[str, Any]) -> keras.Model:
        """A new model, with `changes` to fields of its configuration; ValueError for unknown fields."""
        family = self.model_class
        return family(family.config_class.from_json(dataclasses.asdict(self.base()) | dict(changes)))


@dataclasses.dataclass(frozen=True)
class ClassifierOptions(ImageOptions):
    """A vision model with fresh weights. Convolutions learn from fewer images than attention does."""

    family: Annotated[str, Option(f"kind of model: {', '.join(FAMILIES)}")] = "resnet"
