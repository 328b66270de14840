"""What `fit_best` does with a model and options."""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.training import AdamW
from keras_tfm.training.fit import fit_best
from keras_tfm.training.model import Model
from keras_tfm.training.options import Training


@pytest.mark.parametrize("precision", ["float32", "mixed_float16"])
def test_the_loss_is_scaled_where_layers_compute_in_float16(precision):
    """A model of its own policy, as Keras makes one around the layers of another, may hold such layers."""
    inputs = keras.Input((4,))
    model = Model(inputs, keras.layers.Dense(1, dtype=precision)(inputs))
    assert model.dtype_policy.name == "float32"
    data = tf.data.Dataset.from_tensors((np.ones((2, 4), "float32"), np.ones((2, 1), "float32")))
    batches = types.SimpleNamespace(num_batches=1, epochs=data.repeat)
    fit_best(
        model,
        batches,
        data,
        Training(epochs=1, jit=False),
        objective={"loss": "mse"},
        optimizer=lambda schedule, **averages: AdamW(schedule, 0.0, **averages),
        monitor=("val_loss", "min"),
    )
    is_scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert is_scaled == (precision == "mixed_float16")
