"""keras_tfm: Transformers for Keras 3 and TensorFlow, from raw text or images to served SavedModels.

Packages load at their first use, so that `import keras_tfm` and the command's `--help` are quick.
"""

import importlib

from keras_tfm import log
from keras_tfm.private import lookup
from keras_tfm.version import __version__

log.begin()
lookup.begin()

_PACKAGES = (
    "convert",
    "data",
    "export",
    "generation",
    "heads",
    "layers",
    "models",
    "serving",
    "tasks",
    "training",
    "visualize",
    "word_vectors",
)

__all__ = ["Model", "__version__", *_PACKAGES]


def __getattr__(name):
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "Model":
        return importlib.import_module(f"{__name__}.training.model").Model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
