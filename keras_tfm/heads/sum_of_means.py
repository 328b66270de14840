"""The base class of losses that are sums of means."""

import abc

import keras
from keras import ops


class SumOfMeans(keras.losses.Loss, abc.ABC):
    """A loss that is a sum of means, each a total over a count. Abstract.

    `keras_tfm.Model` sums the totals and the counts over all replicas, so that it does not matter how a
    batch is spread over them.
    """

    def call(self, y_true, y_pred):
        """The loss, a scalar."""
        return sum(ops.divide_no_nan(total, count) for total, count in self.means(y_true, y_pred))

    @abc.abstractmethod
    def means(self, y_true, y_pred):
        """[(total, count)] of the means whose sum the loss is."""
