"""A recurrent encoder, and a recurrent decoder with attention.

Bahdanau, Cho and Bengio 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
section 3 and appendix A. One step of the decoder, where E y(t-1) is the embedding of the previous token and
h are the encoder's states:

    s(t-1) -> attention over h -> c(t)
    [E y(t-1); c(t)], s(t-1) -> cell -> s(t)
    [s(t); E y(t-1); c(t)] -> tanh layer -> output, for a vocabulary head

Deviates from the paper in three places. The cell is an LSTM (Hochreiter and Schmidhuber 1997) by default;
the paper's GRU can be given instead. The output layer is a tanh layer on s(t), not a maxout layer on s(t-1).
Layers have biases, which the paper's equations leave out.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_tfm.layers.attention.alignment import AdditiveAttention, Alignment
from keras_tfm.layers.base import Layer, Pattern, SameShape, require_sizes
from keras_tfm.layers.compiler.recurrence import LoopKernel, recur, step_of
from keras_tfm.layers.masks import key_mask_of, padding_mask_of


class RecurrentEncoder(Layer):
    """`num_layers` recurrent layers, in one direction or two: (B, S, D) -> states (B, S, W) and the last
    states.

    With two directions each position knows what comes before it and after it (Schuster and Paliwal 1997;
    Bahdanau et al. 2015, section 3.2), and W is 2 `units`. Padding is skipped, wherever it is: the state
    does not change, and the output there is zero.

    Args:
        units: the width of a state.
        num_layers: the number of layers.
        cell: a Keras cell, such as `keras.layers.GRUCell(units)`; each layer and direction gets a copy. By
            default an `LSTMCell`.
        bidirectional: whether there are two directions.

    >>> states, last = keras_tfm.layers.RecurrentEncoder(units=4)(np.ones((1, 5, 8)))
    >>> states.shape, last.shape
    (TensorShape([1, 5, 8]), TensorShape([1, 16]))
    """

    def __init__(
        self,
        units: int,
        num_layers: int = 1,
        cell: keras.layers.Layer | None = None,
        bidirectional: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.num_layers = num_layers
        self.cell = Pattern(_cell(units, num_layers, cell))
        self.bidirectional = bidirectional
        self.layers = [self._layer(f"layer_{i}") for i in range(num_layers)]
        self.num_directions = 2 if bidirectional else 1
        self.width = units * self.num_directions
        self.num_states = _num_states(self.cell.new("cell"))

    def _layer(self, name):
        # RNN, not keras.layers.LSTM, whose cuDNN kernel excludes XLA and fails on a row of padding alone.
        rnn = keras.layers.RNN(
            self.cell.new("cell"),
            return_sequences=True,
            return_state=True,
            zero_output_for_mask=True,
            name="rnn" if self.bidirectional else name,
        )
        return keras.layers.Bidirectional(rnn, name=name) if self.bidirectional else rnn

    def build(self, x_shape, mask_shape=None):
        for layer in self.layers:
            layer.build(x_shape)
            x_shape = (*x_shape[:-1], self.width)

    def call(self, x, mask=None):
        """(B, S, D) -> the states of all directions side by side, (B, S, W), and the last states.

        The last states are one tensor (B, .): layer by layer, forward before backward, h before c in an
        LSTM. The last state of the backward direction is the state at the first position, so it too has read
        the whole sequence. `mask` (B, S) is False at padding.
        """
        if x.shape[0] == 0:  # keras.layers.LSTMCell fails on an empty batch
            shape, last = self.compute_output_shape(x.shape)
            return ops.zeros(shape, self.compute_dtype), ops.zeros(last, self.compute_dtype)
        mask = padding_mask_of(x, mask)
        last = []
        for layer in self.layers:
            x, *states = layer(x, mask=mask)
            last.extend(states)
        return x, ops.concatenate(last, axis=-1)

    def compute_output_shape(self, x_shape, mask_shape=None):
        last = (x_shape[0], self.num_layers * self.num_states * self.width)
        return (*x_shape[:-1], self.width), last

    def of_last_direction(self, last):
        """The part of the `last` states that is of the backward, or of the only, direction: [(B, .)], by
        layers.
        """
        layers = ops.split(last, self.num_layers, axis=-1)
        return [states[:, -self.num_states * self.units :] for states in layers]

    def summary(self, last):
        """[h_T forward; h_1 backward] of the top layer: (B, W)."""
        top = ops.split(last, self.num_layers, axis=-1)[-1]
        parts = ops.split(top, self.num_directions * self.num_states, axis=-1)
        return ops.concatenate(parts[:: self.num_states], axis=-1)


class RecurrentCache(NamedTuple):
    """A recurrent decoder's cache: the layers' states (B, units), the context's cache, the number of tokens
    read (B,).
    """

    state: Any
    context: Any
    position: Any


class LSTMAttentionDecoder(SameShape):
    """A recurrent decoder that attends to a context at every step: (B, T, D) -> (B, T, D).

    Bahdanau et al. 2015, section 3.1; see the module for the equations of a step. The first of `num_layers`
    layers reads [E y(t-1); c(t)], each other layer reads the one below, and the last layer's s(t-1) is the
    query.

    Args:
        units: the width of a state.
        num_layers: the number of layers.
        cell: a Keras cell, copied for each layer; by default an `LSTMCell`. `GRUCell(units,
            reset_after=False)` is the paper's, except that its update gate is 1 minus Keras's.
        attention: `AdditiveAttention(units)` by default, `DotAttention`, `StaticAlignment`, `NoAttention`,
            or any other layer with `start_context` and `step_context`. The decoder makes a copy.

    >>> decoder = keras_tfm.layers.LSTMAttentionDecoder(units=4)
    >>> decoder(np.ones((1, 3, 8), "float32"), np.ones((1, 5, 6), "float32")).shape
    TensorShape([1, 3, 8])
    """

    def __init__(
        self,
        units: int,
        num_layers: int = 1,
        cell: keras.layers.Layer | None = None,
        attention: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.num_layers = num_layers
        self.cell = Pattern(_cell(units, num_layers, cell))
        self.attention = Pattern(attention or AdditiveAttention(units))
        self.context_attention = self.attention.new("attention")
        self.cells = [self.cell.new(f"cell_{i}") for i in range(num_layers)]
        self.num_states = _num_states(self.cells[0])
        self.state_dim = num_layers * self.num_states * units

    def build(self, x_shape, context_shape, **other_shapes):
        query_shape = (x_shape[0], 1, self.units)
        self.context_attention.build(query_shape, context_shape)
        self.context_dim = self.context_attention.compute_output_shape(query_shape, context_shape)[-1]
        for i, cell in enumerate(self.cells):
            cell.build((x_shape[0], self.units if i else x_shape[-1] + self.context_dim))
        self.output_projection = keras.layers.Dense(x_shape[-1], "tanh", name="output")
        self.output_projection.build((*x_shape[:-1], self.units + x_shape[-1] + self.context_dim))

    def call(self, x, context, mask=None, context_mask=None, initial_state=None):
        """Decode the embedded previous tokens `x` (B, T, D) with `context` (B, S, Dc).

        Where `mask` (B, T) is False, at padding of `x`, the state does not change; `context_mask` (B, S) is
        False at padding of the context. Both are combined by AND with masks that Keras carries.
        `initial_state` (B, `state_dim`) holds the layers' states side by side, h before c in an LSTM; by
        default zeros.
        """
        cache = self.start(ops.shape(x)[0], ops.shape(x)[1], context, context_mask, initial_state)
        return self.step(x, cache, mask)[0]

    def start(self, batch_size, max_length, context, context_mask=None, initial_state=None):
        """The cache for decoding with `context` (B, S, Dc); its size does not depend on `max_length`."""
        if initial_state is None:
            initial_state = ops.zeros((batch_size, self.state_dim), self.compute_dtype)
        initial_state = ops.cast(initial_state, self.compute_dtype)
        state = tuple(ops.split(initial_state, self.num_layers * self.num_states, axis=-1))
        context_mask = padding_mask_of(context, context_mask, "context_mask")
        context = self.context_attention.start_context(context, context_mask)
        return RecurrentCache(state, context, ops.zeros((batch_size,), "int32"))

    def step(self, x, cache, mask=None):
        """The output at the next T positions (B, T, D); `mask` (B, T) is False at padding among them."""
        if x.shape[0] == 0:  # keras.layers.LSTMCell fails on an empty batch
            return x, cache
        mask = padding_mask_of(x, mask)
        attend, kernels = self._attending(cache.context)
        is_read = ops.ones_like(x[..., 0], "int32") if mask is None else ops.cast(mask, "int32")
        read = cache.position[:, None] + ops.cumsum(is_read, axis=1)  # (B, T)
        inputs = x
        if attend is None:
            contexts = self.context_attention.step_context(x, cache.context, ops.maximum(read - 1, 0))
            inputs = ops.concatenate([x, contexts], axis=-1)
        dims = [inputs.shape[-1], *[0] * (self.num_layers - 1)]
        cells = [step_of(cell, dim, self.compute_dtype) for cell, dim in zip(self.cells, dims, strict=True)]
        kernels = [*kernels, *(kernel for cell in cells for kernel in cell.kernels)]

        def advance(token, state):
            """The outputs of one step, s(t), and c(t) if it depends on s(t-1); and the new states of all
            layers.
            """
            below = context = None if attend is None else attend(state[-self.num_states])
            states = []
            for i, cell in enumerate(cells):
                previous = state[i * self.num_states :][: self.num_states]
                states.extend(cell(None if i else token, below, previous))
                below = states[-self.num_states]
            return (below,) if context is None else (below, context), states

        (y, *attended), state = recur(advance, cells[0].prepare(inputs), cache.state, kernels, mask)
        y = self.output_projection(ops.concatenate([y, x, *(attended or [contexts])], axis=-1))
        return y, RecurrentCache(state, cache.context, read[:, -1])

    def _attending(self, cache):
        """(A function from s(t-1) (B, units) to c(t) (B, Dc), its kernels); (None, []) if c(t) does not
        depend on s.
        """
        attention = self.context_attention
        if not getattr(attention, "follows_state", True):
            return None, []
        if not isinstance(attention, Alignment) or attention.query.quantization_mode:
            return lambda query: attention.step_context(query[:, None], cache)[:, 0], []
        kernel = LoopKernel(attention.query.kernel, self.compute_dtype)
        return lambda query: attention.step_projected(kernel.multiply(query)[:, None], cache)[:, 0], [kernel]

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)


def _num_states(cell):
    """2 for the cell of an LSTM, h and c; 1 for others."""
    return 1 if isinstance(cell.state_size, int) else len(cell.state_size)


def _cell(units, num_layers, cell):
    """The cell from which others are copied, after the checks that encoder and decoder share."""
    require_sizes(units=units, num_layers=num_layers)
    cell = cell or keras.layers.LSTMCell(units, name="cell")
    if not hasattr(cell, "units"):
        raise ValueError(f"`cell` must be a cell of Keras, such as `keras.layers.LSTMCell`; it is {cell!r}.")
    if cell.units != units:
        raise ValueError(f"`cell` must have `units` = {units}; it has {cell.units}.")
    if getattr(cell, "dropout", 0) or getattr(cell, "recurrent_dropout", 0):
        raise ValueError(
            "`cell` must have no dropout of its own: a loop would draw it once and use it at every step."
        )
    return cell
