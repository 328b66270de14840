"""Recurrence whose loop holds what depends on the step before, and nothing else.

The gradient of a kernel that multiplies the state is a sum over all steps. TensorFlow forms it in the loop:
at each step a product of few rows, and a sum of the kernel's size. Here the loop puts out the factors
(B, T, D) of each product, and the gradient of what its result is added to, (B, T, F), is that of the product
too: one product behind the loop gives the kernel's. Where a result is added to none of the loop's inputs, the
loop takes in zeros for it. What the tokens alone contribute is computed before the loop.
"""

import itertools

import keras
from keras import ops

from keras_tfm.private.keras import rnn  # keras.layers.RNN's loop; its cells can hold no context


class LoopKernel:
    """A kernel (D, F) by which a step of `recur` multiplies once.

    `columns` is the slice of the step's input that the product is added to, before anything else is done with
    either; None where it is added to something else.
    """

    def __init__(self, kernel, dtype, columns=None):
        self.kernel = ops.cast(kernel, dtype)
        self.columns = columns
        self.transposed = self.shift = self.factor = None

    def multiply(self, x):
        """x (B, D) times the kernel: (B, F)."""
        if self.transposed is None:  # no loop, one step
            return ops.matmul(x, self.kernel)
        self.factor = x
        return self._product(x) if self.shift is None else self._product(x) + self.shift

    def _product(self, x):
        """x times the kernel, which gets no gradient here."""
        kernel, transposed = self.kernel, self.transposed

        @ops.custom_gradient
        def multiply(x):
            return ops.matmul(x, kernel), lambda upstream: ops.matmul(upstream, transposed)

        return multiply(x)


def with_gradients(x, kernels, columns, factors):
    """`x` (B, T, F), of which the gradient of `columns`, a slice for each of `kernels`, is also that of the
    kernel's product, and gives the kernel's own.

    `factors` is the list of what was multiplied, (B, T, D) each, which the loop fills: it ends before any
    gradient is asked for.
    """

    @ops.custom_gradient
    def identity(x, *_):
        def gradient(upstream):
            return upstream, *(
                ops.einsum("btd,btf->df", factor, upstream[..., own])
                for factor, own in zip(factors, columns, strict=True)
            )

        return ops.copy(x), gradient

    return identity(x, *(kernel.kernel for kernel in kernels))


def recur(step, x, state, kernels, mask=None):
    """(y, last state) of `step(x_t, state) -> (y_t, state)` along the axis T of `x` (B, T, D).

    `y_t` is a tuple of (B, .), `state` too; `step` multiplies once by each of `kernels`, the `LoopKernel`s.
    Where `mask` (B, T) is False the state waits, and y_t is that of the step before.
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
        # Here, before the loop: within it XLA on CPUs would transpose at every step.
        kernel.transposed = ops.transpose(kernel.kernel)

    def shifted_step(inputs, state):
        token, *shifts = ops.split(inputs, borders[:-1], axis=-1) if shifted else [inputs]
        for kernel, shift in zip(shifted, shifts, strict=True):
            kernel.shift = shift
        y, state = step(token, state)
        return (tuple(y), tuple(kernel.factor for kernel in kernels)), tuple(state)

    _, (y, found), state = rnn(shifted_step, x, state, mask=mask)
    factors.extend(found)
    for kernel in kernels:
        kernel.transposed = kernel.shift = kernel.factor = None
    return tuple(y), tuple(state)


# Cells -----------------------------------------------------------------------------------------------


class CellStep:
    """A step of any Keras cell; its products stay in the loop.

    `outside_dim` of the cell's inputs are known before the loop, the others within it.
    """

    kernels: tuple = ()

    def __init__(self, cell, outside_dim, dtype):
        self.cell = cell

    def prepare(self, x):
        """What the inputs `x` (B, T, D) from outside contribute, a tensor (B, T, .)."""
        return x

    def __call__(self, prepared, inside, state):
        """The states after a step; `prepared` or `inside` (B, .) may be None."""
        parts = [part for part in (prepared, inside) if part is not None]
        x = parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)
        return self.cell(x, list(state))[1]


class GatedStep(CellStep):
    """A step of an `LSTMCell`, `GRUCell` or `SimpleRNNCell`, with products by `LoopKernel`s. Abstract."""

    def __init__(self, cell, outside_dim, dtype):
        super().__init__(cell, outside_dim, dtype)
        self.outside = ops.cast(cell.kernel, dtype)[:outside_dim]
        recurrent, self.recurrent_bias, self.bias = ops.cast(cell.recurrent_kernel, dtype), None, None
        if cell.use_bias:
            self.bias = ops.cast(cell.bias, dtype)
            if len(self.bias.shape) == 2:  # of a GRU that resets after the product
                self.bias, self.recurrent_bias = self.bias[0], self.bias[1]
        width = recurrent.shape[1]
        inside = ops.cast(cell.kernel, dtype)[outside_dim:]
        self.inside = LoopKernel(inside, dtype, slice(0, width) if outside_dim else None)
        resets = isinstance(cell, keras.layers.GRUCell)
        borders = [0, 2 * cell.units, width] if resets and not cell.reset_after else [0, width]
        is_added = outside_dim and not (resets and cell.reset_after)
        self.recurrent = [
            LoopKernel(recurrent[:, own], dtype, own if is_added else None)
            for own in itertools.starmap(slice, itertools.pairwise(borders))
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
        """The new states, `x` (B, .) being what the inputs contribute."""
        raise NotImplementedError


class SimpleStep(GatedStep):
    """h' = tanh(x + U h), x being the inputs' share with its bias."""

    def states(self, x, h):
        return [self.cell.activation(x + self.recurrent[0].multiply(h))]


class LSTMStep(GatedStep):
    """c' = f c + i g, h' = o tanh(c'), gates in Keras's order i, f, g, o."""

    def states(self, x, h, c):
        activation, gate = self.cell.activation, self.cell.recurrent_activation
        i, f, g, o = ops.split(x + self.recurrent[0].multiply(h), 4, axis=-1)
        c = gate(f) * c + gate(i) * activation(g)
        return [gate(o) * activation(c), c]


class GRUStep(GatedStep):
    """h' = z h + (1 - z) g; the reset gate r acts on h before the product (the paper's), or after it."""

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
    """The step of a built `cell`; of classes that are not known, subclasses among them, the cell's own."""
    return STEPS.get(type(cell), CellStep)(cell, outside_dim, dtype)
