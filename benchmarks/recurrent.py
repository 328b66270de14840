"""A training step of the attention decoder: this package and a `keras.layers.RNN` around one cell.

    python -m benchmarks.recurrent
    python -m benchmarks.recurrent --attention dot --cell gru

All decode against the same states: additive attention (Bahdanau et al. 2015) or dot products (Luong et al.
2015), one LSTM or GRU, a tanh layer of state, token and context, the mean of the squares as loss, plain SGD.
The peer is the recurrence as one writes it in Keras: a cell that attends, steps and puts out, and
`keras.layers.RNN` around it, with XLA and as Keras runs it on CPUs by default, without. Float32, every core.

On 2 cores, medians of the ratios: additive LSTM 2.5 times the peer's tokens/s with XLA and 2.2 without, dot
GRU 2.5 and 2.7.
"""

import argparse
import os
import sys

import numpy as np

from benchmarks.rounds import compare, parse, prepare_keras, serve

BATCH, SOURCE, TARGET, DIM, CONTEXT, UNITS = 64, 32, 32, 256, 512, 512
MODULE = "benchmarks.recurrent"
PEERS = ("keras_tfm", "keras RNN jit", "keras RNN no jit")


def decoder_of_keras(attention, cell):
    """A layer (x, context) -> outputs whose loop is `keras.layers.RNN`'s."""
    import keras
    from keras import ops

    class AttentionCell(keras.layers.Layer):
        """One step: attend from s(t-1), the recurrent cell over [E y(t-1); c(t)], the output."""

        def __init__(self):
            super().__init__()
            self.key = keras.layers.Dense(UNITS)  # of the states, for their scores
            if attention == "additive":
                self.query = keras.layers.Dense(UNITS, use_bias=False)
                self.score = keras.layers.Dense(1, use_bias=False)
            make = {"lstm": keras.layers.LSTMCell, "gru": keras.layers.GRUCell}[cell]
            self.cell = make(UNITS) if cell == "lstm" else make(UNITS, reset_after=False)
            self.output_layer = keras.layers.Dense(DIM, "tanh")
            self.state_size, self.output_size = self.cell.state_size, DIM
            self.context = None

        def build(self, x_shape):
            self.key.build((None, None, CONTEXT))
            if attention == "additive":
                self.query.build((None, UNITS))
                self.score.build((None, None, UNITS))
            self.cell.build((None, DIM + CONTEXT))
            self.output_layer.build((None, UNITS + DIM + CONTEXT))
            self.built = True

        def call(self, x, states):
            query, keys = states[0], self.key(self.context)
            if attention == "additive":
                scores = self.score(ops.tanh(self.query(query)[:, None] + keys))[..., 0]  # (B, S)
            else:
                scores = ops.einsum("bu,bsu->bs", query, keys)
            context = ops.einsum("bs,bsd->bd", ops.softmax(scores), self.context)
            y, states = self.cell(ops.concatenate([x, context], axis=-1), list(states))
            return self.output_layer(ops.concatenate([y, x, context], axis=-1)), states

        def get_initial_state(self, batch_size):
            return self.cell.get_initial_state(batch_size)

    class Decoder(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.rnn = keras.layers.RNN(AttentionCell(), return_sequences=True)

        def build(self, x_shape, context_shape):
            self.rnn.build(x_shape)
            self.built = True

        def call(self, x, context):
            self.rnn.cell.context = context
            return self.rnn(x)

    return Decoder()


def run_worker(name, attention, cell):
    """Serve the training steps of one peer."""
    import keras
    import tensorflow as tf

    prepare_keras()
    if name == "keras_tfm":
        from keras_tfm import layers

        attend = {"additive": layers.AdditiveAttention(UNITS), "dot": layers.DotAttention()}[attention]
        make = {
            "lstm": keras.layers.LSTMCell(UNITS),
            "gru": keras.layers.GRUCell(UNITS, reset_after=False),
        }[cell]
        decoder = layers.LSTMAttentionDecoder(UNITS, cell=make, attention=attend)
    else:
        decoder = decoder_of_keras(attention, cell)
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=(BATCH, TARGET, DIM)), tf.float32)
    context = tf.constant(rng.normal(size=(BATCH, SOURCE, CONTEXT)), tf.float32)
    decoder.build(x.shape, context_shape=context.shape)
    weights = decoder.trainable_weights

    @tf.function(jit_compile=name != "keras RNN no jit", autograph=False)
    def train(x, context):
        with tf.GradientTape() as tape:
            tape.watch(context)
            loss = tf.reduce_mean(tf.square(decoder(x, context)))
        *gradients, of_context = tape.gradient(loss, [*(weight.value for weight in weights), context])
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.value.assign_sub(1e-3 * gradient)
        return loss, tf.reduce_sum(of_context)

    def step():
        train(x, context)[0].numpy()
        return BATCH * TARGET

    serve(step)


def main():
    parser = argparse.ArgumentParser("benchmarks.recurrent", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3, help="training steps a round")
    parser.add_argument("--attention", default="additive", choices=["additive", "dot"])
    parser.add_argument("--cell", default="lstm", choices=["lstm", "gru"])
    parser.add_argument("--peers", nargs="+", default=PEERS, choices=PEERS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parse(parser)
    if options.worker:
        return run_worker(options.worker, options.attention, options.cell)
    kind = ["--attention", options.attention, "--cell", options.cell]
    title = f"{options.attention} attention, {options.cell}"
    compare(title, MODULE, options.peers, options.rounds, options.steps, warmup=2, arguments=kind)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
