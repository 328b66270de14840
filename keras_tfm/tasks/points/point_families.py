"""The families of models that read a cloud of points, and the options for one with fresh weights."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import keras
import numpy as np

from keras_tfm.configs import Count, Option, kinds_of
from keras_tfm.models.families import OnDemand, names_in
from keras_tfm.tasks.images.image_families import ImageOptions

# {name on the command line: class}
FAMILIES = OnDemand({name.lower(): name for name in names_in("points")})
# What a classifier reads of a cloud, and how far it needs the model, where a family can more.
ALONE = {"num_features": 0, "has_decoder": False}


@dataclasses.dataclass(frozen=True)
class PointOptions(ImageOptions):
    """A model of points with fresh weights."""

    families: ClassVar[Any] = FAMILIES
    needed_fields: ClassVar[tuple[str, ...]] = ("num_points",)
    set_here: ClassVar[Any] = {"num_points": "--num-points"}
    family: Annotated[str, Option(f"kind of model: {', '.join(FAMILIES)}")] = "pct"
    size: Annotated[
        str, Option("a published size of the family, or tiny, for clouds of some hundred points")
    ] = "tiny"
    num_points: Annotated[
        Count | None,
        Option("points that the model reads of a cloud; larger clouds are sampled", default="set by --size"),
    ] = None

    def base(self) -> Any:
        config = super().base()
        alone: dict[str, Any] = {name: x for name, x in ALONE.items() if name in kinds_of(type(config))}
        return dataclasses.replace(config, **alone)

    def sized(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The `changes` and the number of points, which are checked together."""
        points = {} if self.num_points is None else {"num_points": self.num_points}
        return {**points, **changes}

    def model(self, changes: Mapping[str, Any]) -> keras.Model:
        return super().model(self.sized(changes))


def least_points(config: Any) -> int:
    """How many points a cloud has at least: as many as neighbours that a model of this `config` looks at."""
    return int(np.max(getattr(config, "num_neighbours", 1)))
