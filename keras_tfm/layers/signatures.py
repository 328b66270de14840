"""What the hints of functions on tensors and of the layers' constructors share."""

from collections.abc import Callable
from typing import Any

import keras

Tensor = Any  # one of Keras's backend, a `keras.KerasTensor` of a functional model, or an array
Sides = int | tuple[int, int]  # of an image, a map, a window or a patch: one for both, or (height, width)
Activation = str | Callable[..., Any] | None  # a name, a function, or None for none
Initializer = str | keras.initializers.Initializer  # of a weight: Keras's name for it, or an object
