"""Recurrent encoder, and decoder with attention.

Bahdanau, Cho and Bengio 2015, "Neural Machine Translation by Jointly Learning to Align and
Translate", section 3 and appendix A. Deviates from the paper in three places: the cell is an LSTM
(Hochreiter and Schmidhuber 1997) unless the paper's own, a GRU, is passed; the deep output is a tanh
layer of s(t), not a maxout layer of s(t-1); layers have biases, which the paper's equations omit.

A step of the decoder, E y(t-1) being the embedded previous token and h the encoder's states:

    s(t-1) -> attention over h -> c(t)
    [E y(t-1); c(t)], s(t-1) -> cell -> s(t)
    [s(t); E y(t-1); c(t)] -> tanh layer -> output, for a vocabulary head
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_tfm.layers.attention.alignment import AdditiveAttention, Alignment
from keras_tfm.layers.base import Layer, Pattern
from keras_tfm.layers.compiler.recurrence import LoopKernel, recur, step_of
from keras_tfm.layers.masks import key_mask_of, padding_mask_of


class RecurrentEncoder(Layer):
    """`num_layers` recurrent layers; of two directions, each position knows what precedes and follows it.

    Schuster and Paliwal 1997; Bahdanau et al. 2015, section 3.2. `cell` is a pattern, each layer
    and direction gets its own; by default `keras.layers.LSTMCell(units)`. Padding is passed over,
    wherever it stands: the state waits, the output there is zero.
    """

    def __init__(self, units, num_layers=1, cell=None, bidirectional=True, **kwargs):
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
        # Not keras.layers.LSTM: its cuDNN kernel rules out XLA and fails on a row of padding alone.
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
        self.built = True

    def call(self, x, mask=None):
        """(B, S, D) -> the states of all directions side by side (B, S, W), and the last ones.

        The last states are one tensor (B, .): layer by layer, forward before backward, h before c in an LSTM.
        That of the backward direction stands at the first position, and has read the whole sequence too.
        `mask` (B, S) is False at padding.
        """
        if x.shape[0] == 0:  # keras.layers.LSTMCell fails on a batch that is known to be empty
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
        """Of the `last` states those of the backward direction, or of the only one: (B, .) for each layer."""
        layers = ops.split(last, self.num_layers, axis=-1)
        return [states[:, -self.num_states * self.units :] for states in layers]

    def summary(self, last):
        """h_out = [h_T forward; h_1 backward] of the top layer: (B, W)."""
        top = ops.split(last, self.num_layers, axis=-1)[-1]
        parts = ops.split(top, self.num_directions * self.num_states, axis=-1)
        return ops.concatenate(parts[:: self.num_states], axis=-1)


class RecurrentCache(NamedTuple):
    """What a recurrent decoder keeps: each layer's state (B, units), its context's cache, and how many tokens
    (B,) it has read.
    """

    state: Any
    context: Any
    position: Any


class LSTMAttentionDecoder(Layer):
    """A recurrent decoder whose every step attends to a context: (B, T, D) -> (B, T, D).

    Bahdanau et al. 2015, section 3.1; the module's head draws a step. `units` is the width of the
    state. Of `num_layers` layers the first reads [E y(t-1); c(t)], each other the one below it, and
    the last one's s(t-1) is the query.

    `cell` and `attention` are patterns, layers to make its own from. By default the cells are
    `keras.layers.LSTMCell(units)`; `GRUCell(units, reset_after=False)` is the paper's, whose update
    gate is one minus Keras's. The attention is `AdditiveAttention(units)`; `DotAttention`, `StaticAlignment`,
    `NoAttention` and any other layer with `start_context` and `step_context` take its place.
    """

    def __init__(self, units, num_layers=1, cell=None, attention=None, **kwargs):
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
        self.built = True

    def call(self, x, context, mask=None, context_mask=None, initial_state=None):
        """Decode the embedded previous tokens `x` (B, T, D) against `context` (B, S, Dc).

        At padding of `x`, where `mask` (B, T) is False, the state waits; `context_mask` (B, S) hides
        padding of the context. `initial_state` (B, `state_dim`) holds the layers' states side by
        side, h before c in an LSTM; by default zeros. Masks that Keras carries are ANDed in.
        """
        context_mask = padding_mask_of(context, context_mask, "context_mask")
        cache = self.start(ops.shape(x)[0], ops.shape(x)[1], context, context_mask, initial_state)
        return self.step(x, cache, padding_mask_of(x, mask))[0]

    def start(self, batch_size, max_length, context, context_mask=None, initial_state=None):
        """The cache for decoding against `context` (B, S, Dc); its size knows no `max_length`."""
        if initial_state is None:
            initial_state = ops.zeros((batch_size, self.state_dim), self.compute_dtype)
        initial_state = ops.cast(initial_state, self.compute_dtype)
        state = tuple(ops.split(initial_state, self.num_layers * self.num_states, axis=-1))
        context = self.context_attention.start_context(context, context_mask)
        return RecurrentCache(state, context, ops.zeros((batch_size,), "int32"))

    def step(self, x, cache, mask=None):
        """The next T positions (B, T, D); `mask` (B, T) hides padding among them."""
        if x.shape[0] == 0:  # keras.layers.LSTMCell fails on a batch that is known to be empty
            return x, cache
        attend, kernels = self._attending(cache.context)
        is_read = ops.ones_like(x[..., 0], "int32") if mask is None else ops.cast(mask, "int32")
        read = cache.position[:, None] + ops.cumsum(is_read, axis=1)  # (B, T)
        known = x
        if attend is None:
            contexts = self.context_attention.step_context(x, cache.context, ops.maximum(read - 1, 0))
            known = ops.concatenate([x, contexts], axis=-1)
        dims = [known.shape[-1], *[0] * (self.num_layers - 1)]
        cells = [step_of(cell, dim, self.compute_dtype) for cell, dim in zip(self.cells, dims, strict=True)]
        kernels = [*kernels, *(kernel for cell in cells for kernel in cell.kernels)]

        def advance(token, state):
            """s(t), and c(t) where it depends on s(t-1); all layers' states after one more token."""
            below = context = None if attend is None else attend(state[-self.num_states])
            states = []
            for i, cell in enumerate(cells):
                own = state[i * self.num_states :][: self.num_states]
                states.extend(cell(None if i else token, below, own))
                below = states[-self.num_states]
            return (below,) if context is None else (below, context), states

        (y, *found), state = recur(advance, cells[0].prepare(known), cache.state, kernels, mask)
        y = self.output_projection(ops.concatenate([y, x, *(found or [contexts])], axis=-1))
        return y, RecurrentCache(state, cache.context, read[:, -1])

    def _attending(self, cache):
        """A function from s(t-1) (B, units) to c(t) (B, Dc) and its kernels; None where c needs no s."""
        attention = self.context_attention
        if not getattr(attention, "follows_state", True):
            return None, []
        if not isinstance(attention, Alignment) or attention.query.quantization_mode:
            return lambda query: attention.step_context(query[:, None], cache)[:, 0], []
        kernel = LoopKernel(attention.query.kernel, self.compute_dtype)
        return lambda query: attention.step_projected(kernel.multiply(query)[:, None], cache)[:, 0], [kernel]

    def compute_output_shape(self, x_shape, context_shape, **other_shapes):
        return tuple(x_shape)

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)


def _num_states(cell):
    """2 of an LSTM's cell, h and c, 1 of others."""
    return 1 if isinstance(cell.state_size, int) else len(cell.state_size)


def _cell(units, num_layers, cell):
    """The pattern of the recurrent cells, after the checks that encoder and decoder share."""
    for name, size in (("units", units), ("num_layers", num_layers)):
        if size < 1:
            raise ValueError(f"`{name}` must be at least 1; it is {size}.")
    cell = cell or keras.layers.LSTMCell(units, name="cell")
    if cell.units != units:
        raise ValueError(f"`cell` must have `units` = {units}; it has {cell.units}.")
    if getattr(cell, "dropout", 0) or getattr(cell, "recurrent_dropout", 0):
        raise ValueError("`cell` must have no dropout of its own: a loop would draw it once and keep it.")
    return cell
