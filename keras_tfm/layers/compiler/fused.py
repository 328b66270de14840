"""Functions without products, each of which XLA compiles by itself in a graph that TensorFlow computes.

In bfloat16 on a CPU the products are best left to TensorFlow, whose library uses the processor's matrix
units. But what stands between them (dropout, softmax, norms, activations, the loss) TensorFlow computes
operation by operation, each of which reads and writes a whole array. Under `keras_tfm.jit.fusing` XLA makes
one loop of each such function, and one of its gradient.
"""

import functools

import tensorflow as tf

from keras_tfm.jit import is_fusing
from keras_tfm.layers.compiler.gradients import custom_gradient


@functools.cache
def fused(function, otherwise=None):
    """`function(*tensors, **options)`, compiled by XLA while a graph is built under `keras_tfm.jit.fusing`.

    It is a pure function of its tensors, some of which may be None, that returns one tensor. The options are
    constants. Elsewhere `otherwise` computes it, by default `function` itself. What the gradient needs is
    computed again from the tensors, which costs less than to keep it.

    >>> from keras_tfm import jit
    >>> square = fused(lambda x: x * x)
    >>> with jit.fusing():
    ...     y = tf.function(lambda x: tf.gradients(square(x), x)[0])(tf.constant([3.0]))
    >>> y.numpy().tolist()
    [6.0]
    """

    plain = otherwise or function

    @functools.wraps(plain)
    def call(*tensors, **options):
        if tf.executing_eagerly() or not is_fusing():
            return plain(*tensors, **options)
        tensors = tuple(None if x is None else tf.convert_to_tensor(x) for x in tensors)
        kinds = tuple(None if x is None else tf.TensorSpec(x.shape, x.dtype) for x in tensors)
        forward, backward = _compiled(function, kinds, tuple(sorted(options.items())))

        @custom_gradient
        def compute(*tensors):
            return forward(*tensors), lambda upstream: backward(upstream, *tensors)

        return compute(*(x for x in tensors if x is not None))

    return call


@functools.cache
def _compiled(function, kinds, options):
    """`function` of tensors of these `kinds`, where None stands for one that is missing, and its gradient.

    Each has kinds of its own, for TensorFlow warns of a function that it traces again and again.
    """

    def forward(*tensors):
        values = iter(tensors)
        arguments = [None if kind is None else next(values) for kind in kinds]
        return function(*arguments, **dict(options))

    def backward(upstream, *tensors):
        floats = [x for x in tensors if x.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            y = forward(*tensors)
        gradients = iter(tape.gradient(y, floats, upstream))
        return [next(gradients) if x.dtype.is_floating else None for x in tensors]

    return [tf.function(f, jit_compile=True, autograph=False) for f in (forward, backward)]
