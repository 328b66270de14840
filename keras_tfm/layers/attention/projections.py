"""From tokens to heads."""

from keras import ops

from keras_tfm.layers.compiler.products import multiply
from keras_tfm.layers.dense import Dense


class HeadProjection(Dense):
    """One product to `num_heads` heads of each of `widths`: (B, T, D) in, a (B, H, T, K) a width out.

    The bias is added to each part on its own: its gradient is then a plain sum, where behind the
    concatenation of the parts' gradients XLA's CPU compiler would make slow work of it.
    """

    def __init__(self, num_heads, widths, **kwargs):
        super().__init__(num_heads * sum(widths), **kwargs)
        self.num_heads = num_heads
        self.widths = tuple(widths)

    def call(self, x, training=None):
        heads = self._split(multiply(x, self.kernel))
        if self.bias is None:
            return heads
        parts = zip(heads, self._cut(self.bias), self.widths, strict=True)
        return [x + ops.reshape(bias, (self.num_heads, 1, width)) for x, bias, width in parts]

    def quantized_call(self, *args, **kwargs):
        return self._split(super().quantized_call(*args, **kwargs))

    def compute_output_shape(self, input_shape):
        batch_size, length, _ = input_shape
        return [(batch_size, self.num_heads, length, width) for width in self.widths]

    def _split(self, x):
        batch_size, length = ops.shape(x)[0], ops.shape(x)[1]
        parts = zip(self._cut(x), self.widths, strict=True)
        heads = [ops.reshape(x, (batch_size, length, self.num_heads, width)) for x, width in parts]
        return [ops.transpose(x, (0, 2, 1, 3)) for x in heads]  # (B, H, T, K) each

    def _cut(self, x):
        """The last axis, cut into the parts."""
        borders = [self.num_heads * sum(self.widths[:part]) for part in range(1, len(self.widths))]
        return ops.split(x, borders, axis=-1) if borders else [x]
