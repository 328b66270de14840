"""Low-rank adaptation: small updates of the blocks' kernels are trained in the kernels' place.

Keras's layers hold them (`enable_lora`); a model is adapted, trained and merged whole:

adapt(model, rank=8)
model.compile(…), model.fit(…)
merge(model)
"""

import keras

from keras_tfm.training.optimizers import blocks_of, freeze


def adapt(model, rank):
    """Freeze embeddings and blocks, and add to each kernel of the blocks a trained update A B of `rank`.

    An update is zero at first (Hu et al. 2022, section 4.1); what follows the blocks, a head, trains as it
    is. Compile the model after it. Raises ValueError for a model without named blocks, or adapted already.
    """
    if rank < 1:
        raise ValueError(f"`rank` must be at least 1; it is {rank}.")
    if adapted_layers(model):
        raise ValueError(f"{model.name!r} is adapted already; merge it first.")
    blocks = blocks_of(model)
    freeze(model)
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Dense | keras.layers.EinsumDense) and layer._kernel.path in blocks:
            layer.enable_lora(rank)


def merge(model):
    """Add the updates of `adapt` to their kernels, and let all weights train again. Compile after it."""
    for layer in adapted_layers(model):
        kernel = keras.ops.convert_to_numpy(layer.kernel)
        del layer.lora_kernel_a, layer.lora_kernel_b
        layer.lora_enabled, layer.lora_rank, layer.lora_alpha = False, None, None
        layer._kernel.assign(kernel)
    model.trainable = False  # Keras skips setting what is set
    model.trainable = True


def adapted_layers(model):
    """The layers of `model` whose kernels have updates."""
    return [layer for layer in model._flatten_layers() if getattr(layer, "lora_enabled", False)]
