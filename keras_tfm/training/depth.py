"""How deep in a model a variable lies, by the model's blocks: what freezing and rates by depth go by."""

import keras

from keras_tfm.private.keras import inputs_of_calls, layers_in, source_of


def layer_rates(model: keras.Model, decay: float) -> dict[str, float]:
    """{path: factor} of a model's trainable variables by depth, for the `rates` of an optimizer.

    What follows the blocks, heads and last norms, has 1, the last block `decay`, the one below `decay`^2, …,
    the embeddings one power more than the lowest block: layer-wise rate decay of Clark et al. 2020 (ELECTRA,
    section 3.1), counted as Bao et al. 2022 (BEiT) do. Several stacks, an encoder's and a decoder's, are
    counted side by side from their last blocks. Raises ValueError for a model without blocks.
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
    """{stack: how many blocks it has}; ValueError where there are none."""
    blocks = getattr(model, "blocks", {})
    if not any(blocks.values()):
        raise ValueError(f"{model.name!r} has no blocks: no layer in it is one, such as `TransformerBlock`.")
    return {stack: len(layers) for stack, layers in blocks.items()}


def places_of(model: keras.Model) -> dict[str, tuple[str, int]]:
    """{path: (stack, index of its block)} of the variables that are in blocks."""
    sizes_of_stacks(model)
    return {
        variable.path: (stack, index)
        for stack, blocks in model.blocks.items()
        for index, block in enumerate(blocks)
        for variable in block.variables
    }


def embeddings_of(model: keras.Model) -> set[str]:
    """The paths of the variables of all that stands before the blocks: what feeds one, and is fed by none."""
    blocks = {id(block) for layers in model.blocks.values() for block in layers}
    holders = [layer for layer in layers_in(model) if any(id(part) in blocks for part in layers_in(layer))]
    held = {id(layer) for layer in holders}
    known: dict = {}  # by tensor: whether a block is among what made it

    def follows_a_block(tensor: keras.KerasTensor) -> bool:
        if id(tensor) not in known:
            layer, made_of = source_of(tensor)
            known[id(tensor)] = id(layer) in held or any(map(follows_a_block, made_of))
        return known[id(tensor)]

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
