"""Regularisers."""

import keras

Dropout = keras.layers.Dropout
