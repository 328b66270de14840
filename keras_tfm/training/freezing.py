"""Freezing parts of a model, for as long as a `with` block lasts.

with trainable_kept(model):
    freeze(model, num_blocks=2)
    model.compile(…), model.fit(…)
"""

import contextlib
from collections.abc import Iterator

import keras

from keras_tfm.configs import Field, FieldError
from keras_tfm.private.keras import layers_in, set_trainable_alone
from keras_tfm.training.depth import embeddings_of, places_of, sizes_of_stacks


@contextlib.contextmanager
def trainable_kept(model: keras.Model) -> Iterator[None]:
    """Restore `trainable` of all layers and variables of `model` at the end of the block, also after an
    error.

    Compile the model again afterwards if the block changed what is trained.

    >>> model = keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100)
    >>> before = len(model.trainable_variables)
    >>> with keras_tfm.training.trainable_kept(model):
    ...     keras_tfm.training.freeze(model)
    >>> len(model.trainable_variables) == before
    True
    """
    layers = [(layer, layer.trainable) for layer in layers_in(model)]
    variables = [(variable, variable.trainable) for variable in model.variables]
    try:
        yield
    finally:
        for layer, trainable in layers:
            set_trainable_alone(layer, trainable)
        for variable, trainable in variables:
            variable.trainable = trainable


def freeze(model: keras.Model, num_blocks: int | None = None, name: str = "num_blocks") -> None:
    """Freeze the embeddings and the lowest `num_blocks` blocks of each stack; None freezes all blocks.

    Batch normalisation in them computes as at inference, and keeps its statistics. Compile the model
    afterwards; `trainable_kept` undoes it. ValueError for more blocks than there are, with the `name` of the
    option.

    >>> model = keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100)
    >>> before = len(model.trainable_variables)
    >>> keras_tfm.training.freeze(model, num_blocks=1)
    >>> len(model.trainable_variables) < before
    True
    """
    most = max(sizes_of_stacks(model).values())
    num_blocks = most if num_blocks is None else num_blocks
    if not 0 <= num_blocks <= most:
        raise FieldError("{} must lie in [0, {}]; it is {}.", Field(name), most, num_blocks)
    places, embeddings = places_of(model), embeddings_of(model)

    def is_frozen(variable: keras.Variable) -> bool:
        _, index = places.get(variable.path, ("", -1 if variable.path in embeddings else most))
        return index < num_blocks

    for variable in filter(is_frozen, model.trainable_variables):
        variable.trainable = False
    for layer in layers_in(model):
        is_norm = isinstance(layer, keras.layers.BatchNormalization) and layer.built
        if is_norm and is_frozen(layer.moving_mean):
            set_trainable_alone(layer, False)  # by which Keras's computes with its statistics, and keeps them
