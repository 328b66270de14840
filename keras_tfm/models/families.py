"""Families by the names of their classes: this package's, imported modules' and plugins'."""

from typing import Any

import keras_tfm.models
from keras_tfm.configs import brief
from keras_tfm.models.base import OUTSIDE
from keras_tfm.serving import plugins


def families() -> dict[str, Any]:
    """{name: class} of this package's."""
    values = vars(keras_tfm.models).items()
    return {name: x for name, x in values if isinstance(x, type) and hasattr(x, "config_class")}


def names_with_sizes() -> list[str]:
    """The names of all that have published sizes, and of all plugins, which are not imported for that."""
    imported = families()
    added = plugins.installed("family", imported)
    imported = OUTSIDE | imported
    return sorted({name for name, x in imported.items() if getattr(x, "sizes", None)} | added.keys())


def family_called(name: Any) -> Any:
    """The family of this name; ValueError for another value. A plugin is imported by now."""
    plugin = None
    if isinstance(name, str) and name not in OUTSIDE | families():
        plugin = plugins.find("family", name)
    if plugin is not None:
        plugin.load()
        if name not in OUTSIDE:
            raise ValueError(f"The plugin {plugin} is no family: expected a class of a model of this name.")
    classes = OUTSIDE | families()
    if not isinstance(name, str) or name not in classes:
        raise ValueError(
            f"unknown model class {brief(name)}; known are {', '.join(classes)}; a class of your own "
            "is known where its module was imported, or its plugin is installed"
        )
    return classes[name]
