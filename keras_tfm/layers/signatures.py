"""What the hints of functions on tensors, of constructors of layers, and of users of models share."""

from collections.abc import Callable
from typing import Any, Protocol

import keras

from keras_tfm.configs import Config

Tensor = Any  # one of Keras's backend, a `keras.KerasTensor` of a functional model, or an array
Sides = int | tuple[int, int]  # of an image, a map, a window or a patch: one for both, or (height, width)
Axes = int | tuple[int, ...]  # one for all axes of a map or of a video, or one for each
Activation = str | Callable[..., Any] | None  # a name, a function, or None for none
Initializer = str | keras.initializers.Initializer  # of a weight: Keras's name for it, or an object


class Backbone(Protocol):
    """What heads and conversion need of a model: its inputs, its outputs and its parts."""

    config: Config
    embedding: Any  # a `TokenEmbedding`, whose table a vocabulary head may share; models of images have none
    input: dict
    output: dict
    blocks: dict[str, list]
    hidden_states: dict[str, list]


class Towers(Backbone, Protocol):
    """A model whose vectors of two kinds of things, the `sides`, lie in one space."""

    sides: tuple[str, str]


class Decodes(Protocol):
    """What the decoding loop needs of a model."""

    def start(self, batch_size, max_length, context=None):
        """A cache for decoding up to `max_length` tokens: any nested structure of tensors of fixed shapes."""

    def step(self, token_ids, cache, padding_mask=None):
        """(Output (B, T, .), new cache) at the next T tokens (B, T)."""
