"""What the hints of functions on tensors share."""

from typing import Any

Tensor = Any  # one of Keras's backend, a `keras.KerasTensor` of a functional model, or an array
Sides = int | tuple[int, int]  # of an image, a map, a window or a patch: one for both, or (height, width)
