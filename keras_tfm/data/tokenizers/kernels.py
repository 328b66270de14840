"""Kernels of tensorflow-text, which read texts inside a graph. Each is made when one first needs it: texts
that are read outside of graphs, to train or to ask a task, need neither the kernels nor tensorflow-text.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf


class Kernel(tf.Module):
    """`kernel()` is what `make` gives, at the first call."""

    def __init__(self, make: Callable[[], Any]):
        super().__init__()
        self._make, self._made = make, None

    def __call__(self) -> Any:
        if self._made is None:
            with tf.init_scope():  # if a function's trace made it, it would belong to that trace
                self._made = self._make()
        return self._made


def sentencepiece_kernel(model: bytes, out_type: tf.DType) -> Kernel:
    """A `tensorflow_text.SentencepieceTokenizer` for the serialised `model`."""

    def make() -> Any:
        from keras_tfm.private.tensorflow_text import tf_text, use_model

        kernel = tf_text.SentencepieceTokenizer(model=model, out_type=out_type)
        use_model(kernel, SharedModel(model))
        return kernel

    return Kernel(make)


class SharedModel(tf.saved_model.experimental.TrackableResource):
    """A SentencePiece model that lives as long as the process.

    The one that tensorflow_text makes belongs to an eager kernel. It is freed when TensorFlow clears its
    kernels, for example in `tf.random.set_seed`.
    """

    def __init__(self, model: bytes):
        super().__init__()
        self._model = model
        self.resource_handle  # noqa: B018  # made now, outside of any graph

    def _create_resource(self):
        from keras_tfm.private.tensorflow_text import sentencepiece_model

        return sentencepiece_model(
            self._model, shared_name=f"sentencepiece_{hashlib.sha256(self._model).hexdigest()}"
        )
