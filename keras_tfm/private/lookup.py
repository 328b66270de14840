"""Lets Keras find the classes of this package in a .keras file after `import keras_tfm` alone.

Keras looks registered names up in one dictionary, and packages here load at their first use. The dictionary
gets a class that loads them when a name of theirs is missing. This file imports no Keras: until the
application does, a finder in `sys.meta_path` waits for it.
"""

import importlib.util
import sys
from typing import Any

from keras_tfm import on_demand

PACKAGES = ("layers", "heads", "models", "training")  # whose modules register classes
TOP = __name__.partition(".")[0]


class CustomObjects(dict):
    """Keras's custom objects, which load the packages above when a name of theirs is sought in vain."""

    def __contains__(self, name):
        is_ours = isinstance(name, str) and name.partition(">")[0].partition(".")[0] == TOP
        if is_ours and not super().__contains__(name):
            for package in PACKAGES:
                module = importlib.import_module(f"{TOP}.{package}")
                on_demand.all_of(module)
        return super().__contains__(name)


class Finder:
    """Finds the package "keras" as all others do, and replaces its dictionary when it has loaded."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """The spec of "keras", once; None for all else."""
        if name != "keras":
            return None
        sys.meta_path.remove(cls)
        spec = importlib.util.find_spec(name)
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module):
                execute(module)
                replace()

            loader.exec_module = exec_module
        return spec


def replace():
    """Give Keras a dictionary that finds the classes of this package."""
    from keras.src.saving import object_registration

    table = object_registration.GLOBAL_CUSTOM_OBJECTS
    if type(table) is dict:
        object_registration.GLOBAL_CUSTOM_OBJECTS = CustomObjects(table)


def begin():
    """Replace the dictionary now, or when Keras loads."""
    if "keras" not in sys.modules:
        sys.meta_path.insert(0, Finder)
    elif hasattr(sys.modules["keras"], "__path__"):  # not where it is blocked, as in some tests
        replace()
