"""The base classes of losses: their configuration is the constructor's arguments."""

import abc
import inspect
from typing import Any

import keras
from keras import ops

from keras_tfm.registry import register

OF_KERAS = inspect.signature(keras.losses.Loss.__init__).parameters


class Loss(keras.losses.Loss):
    """A `keras.losses.Loss` that `get_config` describes by its constructor's arguments. Abstract.

    A subclass keeps each argument as the attribute of the same name; those that it hands on in `**kwargs` are
    kept by the class it derives from. Subclasses are registered with Keras by themselves.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        register(cls)

    def __init__(self, name: str = "loss", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def get_config(self):
        return super().get_config() | {name: getattr(self, name) for name in arguments_of(type(self))}


def arguments_of(cls):
    """The names of what the constructor of the loss `cls` takes, and hands on in `**kwargs`, but for Keras's
    own arguments.
    """
    names = []
    for init in (base.__init__ for base in cls.__mro__ if "__init__" in vars(base)):
        parameters = inspect.signature(init).parameters.values()
        names += [x.name for x in parameters if x.kind in (x.POSITIONAL_OR_KEYWORD, x.KEYWORD_ONLY)]
        if not any(x.kind is x.VAR_KEYWORD for x in parameters):
            break
    return [name for name in names if name not in OF_KERAS]


class SumOfMeans(Loss, abc.ABC):
    """A loss that is a sum of means, each a total over a count. Abstract.

    `keras_tfm.Model` sums the totals and the counts over all replicas, so that it does not matter how a
    batch is spread over them. ValueError for a `sample_weight`: the means divide by counts of their own.
    """

    def __init__(self, reduction: str | None = "sum", **kwargs: Any) -> None:
        super().__init__(reduction=reduction, **kwargs)

    def __call__(self, y_true, y_pred, sample_weight=None):
        if sample_weight is not None:
            name = type(self).__name__
            raise ValueError(f"`sample_weight` must be None: a {name} divides by counts of its own.")
        return super().__call__(y_true, y_pred)

    def call(self, y_true, y_pred):
        """The loss, a scalar."""
        return sum(ops.divide_no_nan(total, count) for total, count in self.means(y_true, y_pred))

    @abc.abstractmethod
    def means(self, y_true, y_pred):
        """[(total, count)] of the means whose sum the loss is."""
