"""The base class of losses that are sums of means."""

import abc

import keras
from keras import ops


class SumOfMeans(keras.losses.Loss, abc.ABC):
    """A loss that is a sum of means, each a total over a count. Abstract.

    `keras_tfm.Model` sums the totals and the counts over all replicas, so that it does not matter how a
    batch is spread over them. ValueError for a `sample_weight`: the means divide by counts of their own.
    """

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
