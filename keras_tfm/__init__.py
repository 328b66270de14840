"""keras_tfm: Transformers for Keras 3 and TensorFlow, from word vectors to served SavedModels."""

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"keras_tfm runs on Keras's TensorFlow backend; Keras is set to {keras.backend.backend()!r}. "
        "Set the environment variable KERAS_BACKEND=tensorflow before importing keras."
    )

from keras_tfm import generation, heads, layers, models
from keras_tfm.training.model import Model
from keras_tfm.version import __version__
