"""Recurrent encoder and decoder with additive attention.

Bahdanau, Cho and Bengio 2015, "Neural Machine Translation by Jointly Learning to Align and
Translate", section 3 and appendix A. Deviates from the paper in three places: the cell is an LSTM
(Hochreiter and Schmidhuber 1997) unless the paper's own, a GRU, is passed; the deep output is a tanh
layer of s(t), not a maxout layer of s(t-1); layers have biases, which the paper's equations omit.

A step of the decoder, E y(t-1) being the embedded previous token and h the encoder's states:

    s(t-1) -> AdditiveAttention over h -> c(t)
    [E y(t-1); c(t)], s(t-1) -> cell -> s(t)
    [s(t); E y(t-1); c(t)] -> tanh layer -> output, for a vocabulary head
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_tfm.layers.attention.tap import tap
from keras_tfm.layers.base import Layer, Pattern
from keras_tfm.layers.cache import ContextCache
from keras_tfm.layers.masks import combine_masks, key_mask_of, masked_softmax, padding_mask_of
from keras_tfm.private.keras import rnn  # keras.layers.RNN's loop; its cells can hold no context


def additive_attention_weights(query, key, scale, mask=None):
    """softmax(scale . tanh(query + key)) over the keys that `mask` allows: (B, T, S).

    `query` (B, T, U) and `key` (B, S, U) are projected already, `scale` is a vector (U,); `mask`
    follows `keras_tfm.layers.masks`. Rows sum to 1, in float32 at least; a row with nothing to
    attend to is zero.
    """
    hidden = ops.tanh(query[:, :, None] + key[:, None])  # (B, T, S, U)
    scores = ops.einsum("btsu,u->bts", hidden, scale)
    return masked_softmax(scores, combine_masks(mask, rank=3))


class AdditiveAttention(Layer):
    """Attention by a small network: scores v . tanh(W s + U h + b) of width `units`.

    Bahdanau et al. 2015, section 3.1 and appendix A.1.2. W s + U h is one layer over [s; h], split
    so that U h is computed once for all queries: `start_context` keeps it, `step_context` uses it.
    A bias of the scores themselves would leave the softmax as it is, so there is none.
    """

    def __init__(self, units, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        if units < 1:
            raise ValueError(f"`units` must be at least 1; it is {units}.")
        self.units = units
        self.use_bias = use_bias

    def build(self, query_shape, value_shape, mask_shape=None):
        # Not a Dense layer: on three axes its gradient inside a loop does not compile with XLA.
        self.query = keras.layers.EinsumDense("btd,du->btu", (None, self.units), name="query")
        self.query.build(query_shape)
        self.key = keras.layers.Dense(self.units, use_bias=self.use_bias, name="key")
        self.key.build(value_shape)
        self.scale = self.add_weight((self.units,), "glorot_uniform", name="scale")
        self.built = True

    def call(self, query, value, mask=None):
        """Average `value` (B, S, Dv) for each of `query` (B, T, Dq): (B, T, Dv).

        `mask` (B, S) or (B or 1, T, S) follows `keras_tfm.layers.masks`; a mask that Keras carries
        on `value` is ANDed in.
        """
        mask = combine_masks(mask, key_mask_of(value), rank=3)
        return self.step_context(query, ContextCache(self.key(value), value, mask))

    def start_context(self, context, mask=None):
        """The cache of a context (B, S, Dv): its projected keys, itself, and its mask (B, S)."""
        if mask is None:
            mask = ops.ones(ops.shape(context)[:2], "bool")
        return ContextCache(self.key(context), context, mask)

    def step_context(self, query, cache):
        """What `call` gives for `query` (B, T, Dq), or beams (B G, T, Dq), and the B contexts of `cache`."""
        grouped = self.query(cache.group(query))
        weights = additive_attention_weights(grouped, cache.key, self.scale, cache.mask)
        tap(self, weights[:, None])  # (B, 1, T, S): one head
        y = ops.matmul(ops.cast(weights, cache.value.dtype), cache.value)  # (B, G T, Dv)
        return cache.ungroup(y, query)

    def compute_output_shape(self, query_shape, value_shape, mask_shape=None):
        return (*query_shape[:-1], value_shape[-1])

    def compute_mask(self, query, previous_mask=None):
        return key_mask_of(query)


class RecurrentEncoder(Layer):
    """`num_layers` bidirectional recurrent layers: each position knows what precedes and follows it.

    Schuster and Paliwal 1997; Bahdanau et al. 2015, section 3.2. `cell` is a pattern, each layer
    and direction gets its own; by default `keras.layers.LSTMCell(units)`. Padding is passed over,
    wherever it stands: the state waits, the output there is zero.
    """

    def __init__(self, units, num_layers=1, cell=None, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.num_layers = num_layers
        self.cell = Pattern(_cell(units, num_layers, cell))
        self.layers = [self._layer(f"layer_{i}") for i in range(num_layers)]

    def _layer(self, name):
        # Not keras.layers.LSTM: its cuDNN kernel rules out XLA and fails on a row of padding alone.
        rnn = keras.layers.RNN(
            self.cell.new("cell"),
            return_sequences=True,
            return_state=True,
            name="rnn",
        )
        return keras.layers.Bidirectional(rnn, name=name)

    def build(self, x_shape, mask_shape=None):
        for layer in self.layers:
            layer.build(x_shape)
            x_shape = (*x_shape[:-1], 2 * self.units)
        self.built = True

    def call(self, x, mask=None):
        """(B, S, D) -> the states of both directions side by side (B, S, 2 units), and a summary.

        The summary (B, units) is the last layer's backward state at the first position, which has
        read the whole sequence. `mask` (B, S) is False at padding.
        """
        if x.shape[0] == 0:  # keras.layers.LSTMCell fails on a batch that is known to be empty
            return tuple(ops.zeros(shape, self.compute_dtype) for shape in self.compute_output_shape(x.shape))
        mask = padding_mask_of(x, mask)
        for layer in self.layers:
            x, *states = layer(x, mask=mask)
        return x, states[len(states) // 2]

    def compute_output_shape(self, x_shape, mask_shape=None):
        return (*x_shape[:-1], 2 * self.units), (x_shape[0], self.units)


class RecurrentCache(NamedTuple):
    """What a recurrent decoder keeps: each layer's state (B, units), and its context's cache."""

    state: Any
    context: Any


class LSTMAttentionDecoder(Layer):
    """A recurrent decoder whose every step attends to a context: (B, T, D) -> (B, T, D).

    Bahdanau et al. 2015, section 3.1; the module's head draws a step. `units` is the width of the
    state. Of `num_layers` layers the first reads [E y(t-1); c(t)], each other the one below it, and
    the last one's s(t-1) is the query.

    `cell` and `attention` are patterns, layers to make its own from. By default the cells are
    `keras.layers.LSTMCell(units)`; `GRUCell(units, reset_after=False)` is the paper's, whose update
    gate is one minus Keras's. The attention is `AdditiveAttention(units)`; `MultiHeadAttention(1)`
    scores by dot product instead.
    """

    def __init__(self, units, num_layers=1, cell=None, attention=None, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.num_layers = num_layers
        self.cell = Pattern(_cell(units, num_layers, cell))
        self.attention = Pattern(attention or AdditiveAttention(units))
        self.context_attention = self.attention.new("attention")
        self.cells = [self.cell.new(f"cell_{i}") for i in range(num_layers)]
        sizes = self.cells[0].state_size  # [units, units] of an LSTM, units of a GRU
        self.num_states = 1 if isinstance(sizes, int) else len(sizes)
        self.state_dim = num_layers * self.num_states * units

    def build(self, x_shape, context_shape, **other_shapes):
        query_shape = (x_shape[0], 1, self.units)
        self.context_attention.build(query_shape, context_shape)
        context_dim = self.context_attention.compute_output_shape(query_shape, context_shape)[-1]
        for i, cell in enumerate(self.cells):
            cell.build((x_shape[0], self.units if i else x_shape[-1] + context_dim))
        self.output_projection = keras.layers.Dense(x_shape[-1], "tanh", name="output")
        self.output_projection.build((*x_shape[:-1], self.units + x_shape[-1] + context_dim))
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
        return RecurrentCache(state, self.context_attention.start_context(context, context_mask))

    def step(self, x, cache, mask=None):
        """The next T positions (B, T, D); `mask` (B, T) hides padding among them."""
        if x.shape[0] == 0:  # keras.layers.LSTMCell fails on a batch that is known to be empty
            return x, cache
        if x.shape[1] == 1 and mask is None:
            (y, context), state = self._advance(x[:, 0], cache.state, cache.context)
            y, context = y[:, None], context[:, None]
        else:
            _, (y, context), state = rnn(
                lambda token, state: self._advance(token, state, cache.context), x, cache.state, mask=mask
            )
        y = self.output_projection(ops.concatenate([y, x, context], axis=-1))
        return y, RecurrentCache(tuple(state), cache.context)

    def _advance(self, token, state, context):
        """s(t) and c(t), and all layers' states, after one embedded token (B, D)."""
        query = state[-self.num_states]  # the last layer's s(t-1)
        context = self.context_attention.step_context(query[:, None], context)[:, 0]  # (B, Dc)
        y, states = ops.concatenate([token, context], axis=-1), []
        for i, cell in enumerate(self.cells):
            y, cell_state = cell(y, list(state[i * self.num_states :][: self.num_states]))
            states.extend(cell_state)
        return (y, context), tuple(states)

    def compute_output_shape(self, x_shape, context_shape, **other_shapes):
        return tuple(x_shape)

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)


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
