"""Recurrent layers whose loop contains only what depends on the previous step.

The gradient of a kernel that multiplies the state is a sum over all steps. TensorFlow computes it inside the
loop: at each step a product of few rows, and a sum as large as the kernel. Here the loop returns, for each
product, the factors (B, T, D) that were multiplied by the kernel. The gradient of the product's result is
known as well, (B, T, F): it equals the gradient of the loop's input to which the result is added. So one
matrix product after the loop gives the kernel's gradient. A result that is added to none of the inputs gets
an input of zeros for this purpose. What depends on the tokens alone is computed before the loop.
"""

import itertools

import keras
from keras import ops

from keras_tfm.layers.compiler.gradients import custom_gradient
from keras_tfm.private.keras import rnn  # the loop of keras.layers.RNN, whose cells cannot take a context


class LoopKernel:
    """A kernel (D, F) by which each step of `recur` multiplies once.

    `columns` is the slice of the step's input to which the product is added, before anything else happens to
    either. None means that it is added to something else.
    """

    def __init__(self, kernel, dtype, columns=None):
        self.kernel = ops.cast(kernel, dtype)
        self.columns = columns
        self.transposed = self.shift = self.factor = None

    def multiply(self, x):
        """x (B, D) times the kernel: (B, F)."""
        if self.transposed is None:  # a single step, without a loop
            return ops.matmul(x, self.kernel)
        self.factor = x
        return self._product(x) if self.shift is None else self._product(x) + self.shift

    def _product(self, x):
        """x times the kernel, without a gradient for the kernel."""
        kernel, transposed = self.kernel, self.transposed

        @custom_gradient
        def multiply(x):
            return ops.matmul(x, kernel), lambda upstream: ops.matmul(upstream, transposed)

        return multiply(x)


def with_gradients(x, kernels, columns, factors):
    """`x` (B, T, F) unchanged, with a gradient that also gives the gradients of `kernels`.

    The gradient of one slice of x, the one in `columns`, is the gradient of a kernel's product. `factors`
    lists what was multiplied, (B, T, D) each. The loop fills this list, and it ends before any gradient is
    computed.
    """

    @custom_gradient
    def identity(x, *_):
        def gradient(upstream):
            return upstream, *(
                ops.einsum("btd,btf->df", factor, upstream[..., part])
                for factor, part in zip(factors, columns, strict=True)
            )

        return ops.copy(x), gradient

    return identity(x, *(kernel.kernel for kernel in kernels))


def recur(step, x, state, kernels, mask=None):
    """(y, last state) of `step(x_t, state) -> (y_t, state)`, applied along the axis T of `x` (B, T, D).

    `y_t` and `state` are tuples of (B, .); `step` multiplies once by each `LoopKernel` in `kernels`. Where
    `mask` (B, T) is False the state does not change, and y_t stays as in the step before.
    """
    if x.shape[1] == 1 and mask is None:
        y, state = step(x[:, 0], state)
        return tuple(part[:, None] for part in y), tuple(state)
    shifted = [kernel for kernel in kernels if kernel.columns is None]
    borders = [x.shape[-1]]
    for kernel in shifted:
        borders.append(borders[-1] + kernel.kernel.shape[1])
    slots = iter(itertools.starmap(slice, itertools.pairwise(borders)))
    columns = [kernel.columns or next(slots) for kernel in kernels]
    factors: list = []
    if kernels:
        x = ops.pad(x, [[0, 0], [0, 0], [0, borders[-1] - borders[0]]])  # (B, T, F), the zeros last
        x = with_gradients(x, kernels, columns, factors)
    for kernel in kernels:
        # Transpose before the loop: inside it XLA on CPUs would transpose again at every step.
        kernel.transposed = ops.transpose(kernel.kernel)

    def shifted_step(inputs, state):
        token, *shifts = ops.split(inputs, borders[:-1], axis=-1) if shifted else [inputs]
        for kernel, shift in zip(shifted, shifts, strict=True):
            kernel.shift = shift
        y, state = step(token, state)
        return (tuple(y), tuple(kernel.factor for kernel in kernels)), tuple(state)

    _, (y, loop_factors), state = rnn(shifted_step, x, state, mask=mask)
    factors.extend(loop_factors)
    for kernel in kernels:
        kernel.transposed = kernel.shift = kernel.factor = None
    return tuple(y), tuple(state)


# Cells -----------------------------------------------------------------------------------------------


class CellStep:
    """One step of any Keras cell; all its products are computed inside the loop.

    The first `outside_dim` of the cell's inputs are known before the loop, the others only inside it.
    """

    kernels: tuple = ()

    def __init__(self, cell, outside_dim, dtype):
        self.cell = cell

    def prepare(self, x):
        """What the inputs `x` (B, T, D) that are known before the loop contribute: (B, T, .)."""
        return x

    def __call__(self, prepared, inside, state):
        """The states after a step; `prepared` or `inside` (B, .) may be None."""
        parts = [part for part in (prepared, inside) if part is not None]
        x = parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)
        return self.cell(x, list(state))[1]


class GatedStep(CellStep):
    """A step of an `LSTMCell`, `GRUCell` or `SimpleRNNCell` whose products use `LoopKernel`s. Abstract."""

    def __init__(self, cell, outside_dim, dtype):
        super().__init__(cell, outside_dim, dtype)
        self.outside = ops.cast(cell.kernel, dtype)[:outside_dim]
        recurrent, self.recurrent_bias, self.bias = ops.cast(cell.recurrent_kernel, dtype), None, None
        if cell.use_bias:
            self.bias = ops.cast(cell.bias, dtype)
            if len(self.bias.shape) == 2:  # a GRU with `reset_after` has two biases
                self.bias, self.recurrent_bias = self.bias[0], self.bias[1]
        width = recurrent.shape[1]
        inside = ops.cast(cell.kernel, dtype)[outside_dim:]
        self.inside = LoopKernel(inside, dtype, slice(0, width) if outside_dim else None)
        resets = isinstance(cell, keras.layers.GRUCell)
        borders = [0, 2 * cell.units, width] if resets and not cell.reset_after else [0, width]
        is_added = outside_dim and not (resets and cell.reset_after)
        self.recurrent = [
            LoopKernel(recurrent[:, part], dtype, part if is_added else None)
            for part in itertools.starmap(slice, itertools.pairwise(borders))
        ]
        has_inside = self.inside.kernel.shape[0] > 0
        self.kernels = (*([self.inside] if has_inside else []), *self.recurrent)

    def prepare(self, x):
        x = ops.matmul(x, self.outside)
        return x if self.bias is None else x + self.bias

    def __call__(self, prepared, inside, state):
        x = self.bias if prepared is None else prepared
        if inside is not None:
            product = self.inside.multiply(inside)
            x = product if x is None else x + product
        return self.states(x, *state)

    def states(self, x, *state):
        """The new states; `x` (B, .) is what the inputs contribute."""
        raise NotImplementedError


class SimpleStep(GatedStep):
    """h' = tanh(x + U h), where x is what the inputs contribute, bias included."""

    def states(self, x, h):
        return [self.cell.activation(x + self.recurrent[0].multiply(h))]


class LSTMStep(GatedStep):
    """c' = f c + i g and h' = o tanh(c'), with the gates in Keras's order i, f, g, o."""

    def states(self, x, h, c):
        activation, gate = self.cell.activation, self.cell.recurrent_activation
        i, f, g, o = ops.split(x + self.recurrent[0].multiply(h), 4, axis=-1)
        c = gate(f) * c + gate(i) * activation(g)
        return [gate(o) * activation(c), c]


class GRUStep(GatedStep):
    """h' = z h + (1 - z) g. The reset gate r multiplies h before the product with U, as in the paper, or
    after it.
    """

    def states(self, x, h):
        activation, gate = self.cell.activation, self.cell.recurrent_activation
        units = self.cell.units
        x_gates, x_new = ops.split(x, [2 * units], axis=-1)
        if self.cell.reset_after:
            product = self.recurrent[0].multiply(h)
            product = product if self.recurrent_bias is None else product + self.recurrent_bias
            h_gates, h_new = ops.split(product, [2 * units], axis=-1)
            z, r = ops.split(gate(x_gates + h_gates), 2, axis=-1)
            h_new = r * h_new
        else:
            z, r = ops.split(gate(x_gates + self.recurrent[0].multiply(h)), 2, axis=-1)
            h_new = self.recurrent[1].multiply(r * h)
        return [z * h + (1 - z) * activation(x_new + h_new)]


STEPS = {
    keras.layers.LSTMCell: LSTMStep,
    keras.layers.GRUCell: GRUStep,
    keras.layers.SimpleRNNCell: SimpleStep,
}


def step_of(cell, outside_dim, dtype):
    """The step for a built `cell`. A class that is not in `STEPS`, such as a subclass, computes by its own
    call.
    """
    return STEPS.get(type(cell), CellStep)(cell, outside_dim, dtype)
