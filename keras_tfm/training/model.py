"""`keras_tfm.Model`: the `keras.Model` from which every model of this package derives."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_tfm.inputs import beside, checked_inputs
from keras_tfm.private.keras import Functional, functional_init_arguments, layers_in
from keras_tfm.registry import register
from keras_tfm.training.exact import ExactTrainer


class Model(ExactTrainer, keras.Model):
    """A `keras.Model`, functional (`Model(inputs, outputs)`) or subclassed, whose training is exact on many
    devices.

    Under a `tf.distribute` strategy, `fit`, `evaluate` and `predict` give the same numbers as on one device
    with the same global batch; see `keras_tfm.training.exact`.

    Keras changes the base classes of a class when it is first used for a functional model, which would break
    classes that derive from it later. Here a functional model therefore has a class of its own,
    `FunctionalModel`.

    >>> import keras
    >>> inputs = keras.Input((4,))
    >>> model = keras_tfm.Model(inputs, keras.layers.Dense(2)(inputs))
    >>> model.compile("adam", "mse")
    >>> history = model.fit(np.ones((8, 4)), np.ones((8, 2)), verbose=0)
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
        """Return `layer_call` unchanged: in a `keras.RematScope` each layer of the model recomputes by
        itself.
        """
        return layer_call


@register
class FunctionalModel(Model, Functional):
    """A `Model` made from `inputs` and `outputs`.

    A batch is a dict by input name, or a bare array for a single input. Missing inputs are filled in, as
    `inputs.OPTIONAL` has it: a `...padding_mask` with ones, `...segment_ids` with zeros, for example.

    Raises:
        ValueError: when called with an unknown input name, and as from `inputs.checked_inputs`.
    """

    @property
    def blocks(self) -> dict[str, list[keras.layers.Layer]]:
        """{stack: its blocks, lowest first}; blocks outside any stack form one stack named "".

        Freezing, layer-wise learning rates and low-rank updates use this order.
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
            inputs = dict.fromkeys(expected, inputs)
        if not isinstance(inputs, dict):
            return inputs
        unknown = sorted(set(inputs) - set(expected))
        if unknown:
            raise ValueError(f"{self.name!r} takes {', '.join(expected)}; it was given {', '.join(unknown)}.")
        inputs = checked_inputs(inputs, expected)
        # Token ids first, so that an error names them and not a mask that is made from them.
        missing = sorted(expected.keys() - inputs.keys(), key=lambda name: ("token_ids" not in name, name))
        # Keras refuses arrays beside tensors.
        inputs = {name: x if is_symbolic(x) else ops.convert_to_tensor(x) for name, x in inputs.items()}
        return inputs | {name: self._fill(name, inputs) for name in missing}

    def _fill(self, name: str, inputs: dict[str, Any]) -> Any:
        """The value for the input `name`, which is missing from `inputs`."""
        other, default = beside(name)
        if other not in inputs:
            raise ValueError(f"{self.name!r} needs {name!r}; it was given {', '.join(inputs) or 'nothing'}.")
        return ops.cast(default(inputs[other]), self._inputs_struct[name].dtype)


def is_symbolic(x: Any) -> bool:
    """Whether `x` is a symbolic tensor, of a functional model that is being built."""
    return isinstance(x, keras.KerasTensor)


def _derive_from_functional(cls: type) -> None:
    """Replace `Model` by `FunctionalModel` among the base classes of a user's class."""
    for ancestor in cls.__mro__:
        if Model in ancestor.__bases__ and ancestor is not FunctionalModel:
            ancestor.__bases__ = tuple(
                FunctionalModel if base is Model else base for base in ancestor.__bases__
            )


def is_stack(layer: Any) -> bool:
    """Whether `layer` is a layer that holds blocks."""
    return (
        isinstance(layer, keras.layers.Layer)
        and not isinstance(layer, keras.Model)
        and hasattr(layer, "blocks")
    )
