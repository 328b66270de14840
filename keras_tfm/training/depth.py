"""The depth of a variable in a model, counted in blocks: used by freezing and layer-wise learning rates."""

import keras

from keras_tfm.private.keras import inputs_of_calls, layers_in, source_of


def layer_rates(model: keras.Model, decay: float) -> dict[str, float]:
    """{path: factor} for the `rates` of an optimizer: layer-wise decay of the learning rate by depth.

    Layers after the blocks (heads, last norms) have factor 1, the last block `decay`, the block below
    `decay`^2, and so on; the embeddings have one power more than the lowest block. Clark et al. 2020
    (ELECTRA, section 3.1), counted as in Bao et al. 2022 (BEiT). The stacks of an encoder-decoder are counted
    separately, each from its last block.

    Raises:
        ValueError: for a model without blocks.

    >>> model = keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100)
    >>> sorted(set(keras_tfm.training.layer_rates(model, 0.5).values()))
    [0.125, 0.25, 0.5, 1.0]
    """
    if not 0 < decay <= 1:
        raise ValueError(f"`decay` must lie in (0, 1]; it is {decay}.")
    sizes = sizes_of_stacks(model)
    places, embeddings = places_of(model), embeddings_of(model)
    rates = {}
    for variable in model.trainable_variables:
        height = max(sizes.values()) + 1 if variable.path in embeddings else 0
        if variable.path in places:
            stack, index = places[variable.path]
            height = sizes[stack] - index
        rates[variable.path] = decay**height
    return rates


def sizes_of_stacks(model: keras.Model) -> dict[str, int]:
    """{stack: number of its blocks}; ValueError if there are none."""
    blocks = getattr(model, "blocks", {})
    if not any(blocks.values()):
        raise ValueError(
            f"{model.name!r} has no blocks: none of its layers is one, such as `TransformerBlock`."
        )
    return {stack: len(layers) for stack, layers in blocks.items()}


def places_of(model: keras.Model) -> dict[str, tuple[str, int]]:
    """{path: (stack, index of the block)} of all variables in blocks."""
    sizes_of_stacks(model)
    return {
        variable.path: (stack, index)
        for stack, blocks in model.blocks.items()
        for index, block in enumerate(blocks)
        for variable in block.variables
    }


def embeddings_of(model: keras.Model) -> set[str]:
    """The paths of all variables before the blocks, in layers that feed a block and are not fed by one."""
    blocks = {id(block) for layers in model.blocks.values() for block in layers}
    holders = [layer for layer in layers_in(model) if any(id(part) in blocks for part in layers_in(layer))]
    held = {id(layer) for layer in holders}
    follows: dict = {}  # {id of a tensor: whether it was computed by, or after, a block}

    def follows_a_block(tensor: keras.KerasTensor) -> bool:
        if id(tensor) not in follows:
            layer, made_of = source_of(tensor)
            follows[id(tensor)] = id(layer) in held or any(map(follows_a_block, made_of))
        return follows[id(tensor)]

    before, seen = [], set()
    waiting = [tensor for layer in holders for tensor in inputs_of_calls(layer)]
    while waiting:
        tensor = waiting.pop()
        if id(tensor) not in seen and not follows_a_block(tensor):
            seen.add(id(tensor))
            layer, made_of = source_of(tensor)
            before.append(layer)
            waiting += made_of
    return {variable.path for layer in before for variable in getattr(layer, "variables", [])}
