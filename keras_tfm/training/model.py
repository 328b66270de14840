"""`keras_tfm.Model`, the `keras.Model` that every model here derives from."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_tfm.private.keras import Functional, functional_init_arguments, layers_in
from keras_tfm.registry import register
from keras_tfm.training.exact import ExactTrainer


class Model(ExactTrainer, keras.Model):
    """A `keras.Model`, functional (`Model(inputs, outputs)`) or subclassed, in any order.

    Keras rewrites the bases of a class at its first functional use, which would spoil `Model` for
    those who subclass it later; here a functional model is of a class of its own instead.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is Model and functional_init_arguments(args, kwargs):
            cls = FunctionalModel
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any):
        if functional_init_arguments(args, kwargs) and not isinstance(self, Functional):
            _derive_from_functional(type(self))
        super().__init__(*args, **kwargs)

    def rematerialized_call(self, layer_call: Callable, *args: Any, **kwargs: Any) -> Callable:
        """As it is: in a `keras.RematScope` its layers recompute, each for itself."""
        return layer_call


@register
class FunctionalModel(Model, Functional):
    """A `Model` made of `inputs` and `outputs`.

    A batch is a dict by input name, or the bare array of a single input; what it leaves out is
    filled: a `...padding_mask` with ones, `...segment_ids` with zeros, `mask_positions` with all of them.
    Unknown names raise.
    """

    @property
    def blocks(self) -> dict[str, list[keras.layers.Layer]]:
        """{stack: its blocks, the lowest first}, blocks that stand alone being one stack.

        What goes by depth goes by them: freezing, rates, low-rank updates.
        """
        stacks = {layer.name: list(layer.blocks) for layer in layers_in(self) if is_stack(layer)}
        held = {id(block) for blocks in stacks.values() for block in blocks}
        alone = [x for x in layers_in(self) if getattr(x, "is_block", False) and id(x) not in held]
        return {**stacks, "": alone} if alone else stacks

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(self._complete(inputs), *args, **kwargs)

    def _complete(self, inputs: Any) -> Any:
        expected = self._inputs_struct
        if not isinstance(expected, dict):
            return inputs
        if len(expected) == 1 and not isinstance(inputs, dict | list | tuple):
            return dict.fromkeys(expected, inputs)
        if not isinstance(inputs, dict):
            return inputs
        unknown = sorted(set(inputs) - set(expected))
        if unknown:
            raise ValueError(f"{self.name!r} takes {', '.join(expected)}; it was given {', '.join(unknown)}.")
        # Token ids first: an error names them, not the mask that cannot be made without.
        missing = sorted(expected.keys() - inputs.keys(), key=lambda name: ("token_ids" not in name, name))
        if not missing:
            return inputs
        inputs = {name: x if is_symbolic(x) else ops.convert_to_tensor(x) for name, x in inputs.items()}
        return inputs | {name: self._fill(name, inputs) for name in missing}

    def _fill(self, name: str, inputs: dict[str, Any]) -> Any:
        """What stands for the input `name` that was left out of `inputs`."""
        for suffix, fill in (
            ("padding_mask", ops.ones_like),
            ("segment_ids", ops.zeros_like),
            ("mask_positions", every_position),
        ):
            token_ids = inputs.get(name.removesuffix(suffix) + "token_ids")
            if name.endswith(suffix) and token_ids is not None:
                return ops.cast(fill(token_ids), self._inputs_struct[name].dtype)
        raise ValueError(f"{self.name!r} needs {name!r}; it was given {', '.join(inputs) or 'nothing'}.")


def every_position(token_ids: Any) -> Any:
    """0 .. T-1 for each row of (B, T)."""
    return ops.cumsum(ops.ones_like(token_ids), axis=1) - 1


def is_symbolic(x: Any) -> bool:
    """Whether `x` stands for a tensor in a functional model that is being made."""
    return isinstance(x, keras.KerasTensor)


def _derive_from_functional(cls: type) -> None:
    """Replace `Model` by `FunctionalModel` among the ancestors of a user's class."""
    for ancestor in cls.__mro__:
        if Model in ancestor.__bases__ and ancestor is not FunctionalModel:
            ancestor.__bases__ = tuple(
                FunctionalModel if base is Model else base for base in ancestor.__bases__
            )


def is_stack(layer: Any) -> bool:
    """Whether `layer` is one that holds blocks."""
    return (
        isinstance(layer, keras.layers.Layer)
        and not isinstance(layer, keras.Model)
        and hasattr(layer, "blocks")
    )
