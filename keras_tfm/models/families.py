"""Families by the names of their classes: this package's, imported modules' and plugins'."""

from collections.abc import Iterator, Mapping
from typing import Any

import keras_tfm.models
from keras_tfm import on_demand
from keras_tfm.configs import brief
from keras_tfm.models.base import OUTSIDE
from keras_tfm.serving import plugins


class OnDemand(Mapping[str, Any]):
    """{key: family}, made of {key: the name of its class}; a family is imported when it is first taken."""

    def __init__(self, names: Mapping[str, str]):
        self.names = dict(names)

    def __getitem__(self, key: str) -> Any:
        return getattr(keras_tfm.models, self.names[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __or__(self, other: "OnDemand") -> "OnDemand":
        return OnDemand(self.names | other.names)


def families() -> dict[str, Any]:
    """{name: class} of this package's; this imports all of them."""
    values = on_demand.all_of(keras_tfm.models).items()
    return {name: x for name, x in values if isinstance(x, type) and hasattr(x, "config_class")}


def names_in(folder: str) -> list[str]:
    """The names of what a folder of keras_tfm/models offers with a configuration of its own, sorted; none is
    imported.
    """
    places = vars(keras_tfm.models)[on_demand.PLACES]
    names = [name for name, (module, _) in places.items() if module.startswith(f"keras_tfm.models.{folder}.")]
    return sorted((name for name in names if f"{name}Config" in places), key=str.lower)


def family_called(name: Any) -> Any:
    """The family of this name; ValueError for another value. A plugin is imported by now."""
    if isinstance(name, str) and name in vars(keras_tfm.models)[on_demand.PLACES]:
        family = getattr(keras_tfm.models, name)
        if hasattr(family, "config_class"):
            return family
    plugin = None
    if isinstance(name, str) and name not in OUTSIDE:
        plugin = plugins.find("family", name)
    if plugin is not None:
        plugin.load()
        if name not in OUTSIDE:
            raise ValueError(f"The plugin {plugin} is no family: expected a class of a model of this name.")
    if not isinstance(name, str) or name not in OUTSIDE:
        raise ValueError(
            f"unknown model class {brief(name)}; known are {', '.join(OUTSIDE | families())}; a class of "
            "your own is known where its module was imported, or its plugin is installed"
        )
    return OUTSIDE[name]
