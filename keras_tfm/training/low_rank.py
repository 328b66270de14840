"""Low-rank adaptation (LoRA): train small updates of the blocks' kernels instead of the kernels.

Keras's layers hold the updates (`enable_lora`); a model is trained inside a block:

with adapted(model, rank=8):
    model.compile(…), model.fit(…)
"""

import contextlib
import math
from collections.abc import Iterator

import keras

from keras_tfm.configs import Refusal
from keras_tfm.private.keras import kernel_of, layers_in
from keras_tfm.training.depth import places_of
from keras_tfm.training.freezing import freeze, trainable_kept


@contextlib.contextmanager
def adapted(model: keras.Model, rank: int, seed: int = 0) -> Iterator[None]:
    """Freeze embeddings and blocks, and train an update A B of rank `rank` for each kernel in the blocks.

    An update starts at zero (Hu et al. 2022, section 4.1): `seed` draws A, and B is 0. Layers after the
    blocks, such as a head, are trained as usual. At the end of the block, also after an error, the updates
    are added to the kernels, and `trainable` is restored. Compile the model inside the block, and again
    afterwards.

    Raises:
        ValueError: for a model without blocks or without dense layers in them, or one that is adapted
            already; for a rank above the smaller side of every kernel, which an update cannot have.

    >>> backbone = keras_tfm.models.BERT.from_size("tiny", vocabulary_size=50, num_layers=1)
    >>> model = keras_tfm.heads.Classifier(backbone, num_classes=2)
    >>> with keras_tfm.training.adapted(model, rank=2):
    ...     model.compile("adam", "mse")
    ...     few = sum(variable.shape.num_elements() for variable in model.trainable_variables)
    >>> few < model.count_params() / 10
    True
    """
    if adapted_layers(model):
        raise ValueError(f"{model.name!r} is adapted already.")
    refuse_rank(model, rank)
    with trainable_kept(model):
        freeze(model)
        for number, layer in enumerate(_adaptable(model), seed + 1):
            layer.enable_lora(rank, a_initializer=keras.initializers.HeUniform(number))
        try:
            yield
        finally:
            _merge(model)


def refuse_rank(model: keras.Model, rank: int, name: str = "rank") -> None:
    """Raise ValueError, with the `name` of the option, if `model` cannot be adapted by updates of this
    rank.
    """
    layers = _adaptable(model)
    if not layers:
        raise ValueError(
            f"{model.name!r} has no dense layers in its blocks, so there are no kernels to adapt."
        )
    shapes = [tuple(kernel_of(layer).shape) for layer in layers]
    most = max(min(math.prod(shape[:-1]), shape[-1]) for shape in shapes)
    if not 1 <= rank <= most:
        raise Refusal(name, f"1 to {most}, the smaller side of the largest kernel in the blocks", rank)


def _adaptable(model: keras.Model) -> list[keras.layers.Layer]:
    """The dense layers in the blocks of `model`; ValueError for a model without blocks."""
    blocks = places_of(model)
    kinds = keras.layers.Dense | keras.layers.EinsumDense
    return [
        layer for layer in layers_in(model) if isinstance(layer, kinds) and kernel_of(layer).path in blocks
    ]


def _merge(model: keras.Model) -> None:
    for layer in adapted_layers(model):
        kernel = keras.ops.convert_to_numpy(layer.kernel)
        del layer.lora_kernel_a, layer.lora_kernel_b
        layer.lora_enabled, layer.lora_rank, layer.lora_alpha = False, None, None
        kernel_of(layer).assign(kernel)


def adapted_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """The layers of `model` that have low-rank updates."""
    return [layer for layer in layers_in(model) if getattr(layer, "lora_enabled", False)]
