"""Recurrent encoder-decoders, with attention (Bahdanau, Cho and Bengio 2015, "RNNsearch") and without.

Deviates from the paper as `keras_tfm.layers.recurrent` says. Besides, all initial states of the decoder, an
LSTM's memory too, are one tanh layer on the encoder's last backward state, and both languages and the output
may share one embedding.

Without attention it is Sutskever, Vinyals and Le 2014, "Sequence to Sequence Learning with Neural Networks":
the decoder starts from the encoder's last states and knows nothing else of the source.
"""

import dataclasses
from typing import Any, Literal

import keras
from keras import ops

from keras_tfm.configs import Config, Depth, Length, Rate, Size
from keras_tfm.layers.attention.alignment import AdditiveAttention, DotAttention, NoAttention, StaticAlignment
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.recurrent import LSTMAttentionDecoder, RecurrentEncoder
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.text.recurrent import CELLS
from keras_tfm.models.text.seq2seq import seq2seq_inputs

ATTENTIONS = {
    "additive": lambda config: AdditiveAttention(config.hidden_dim),
    "dot": lambda config: DotAttention(),
    "static": lambda config: StaticAlignment(config.max_target_length, config.max_source_length),
    "none": lambda config: NoAttention(),
}


@dataclasses.dataclass(frozen=True)
class RecurrentSeq2SeqConfig(Config):
    """The sizes of a `RecurrentSeq2Seq`.

    Args:
        vocabulary_size: the source's.
        target_vocabulary_size: the target's; None if source and target share one vocabulary and one
            embedding table.
        dim: the width of the embeddings and of the output.
        hidden_dim: the width of a state, in each direction.
        cell: "lstm", or "gru" as in the paper.
        dropout: the rate for the embeddings and the output, but not inside the recurrence (Zaremba et al.
            2014).
        attention: a kind described in `keras_tfm.layers.attention.alignment`. With "none" the decoder's
            layers start from the last states of the encoder's layers, in the backward direction if there are
            two; otherwise from a tanh layer on the last h of that direction.
        max_source_length: with `max_target_length` the size of the table of "static" attention; no limit
            otherwise.
    """

    vocabulary_size: Size
    target_vocabulary_size: Size | None = None
    num_layers: Depth = 1
    dim: Size = 256
    hidden_dim: Size = 512
    cell: Literal["lstm", "gru"] = "lstm"
    dropout: Rate = 0.1
    attention: Literal["additive", "dot", "static", "none"] = "additive"
    bidirectional: bool = True
    max_source_length: Length = 128
    max_target_length: Length = 128


class RecurrentSeq2Seq(ConfiguredModel):
    """A recurrent encoder and decoder: token ids of a source and a target in, hidden states out.

    Inputs: `token_ids` (B, S), `padding_mask` (B, S), `decoder_token_ids` (B, T) and `decoder_padding_mask`
    (B, T). Outputs: `encoder_sequence_output` (B, S, W), where W is `hidden_dim` times the number of
    directions, and `decoder_sequence_output` (B, T, D).

    >>> model = keras_tfm.models.RecurrentSeq2Seq.from_size("tiny", vocabulary_size=100)
    >>> inputs = {"token_ids": np.array([[5, 6, 2]]), "decoder_token_ids": np.array([[1, 5]])}
    >>> model(inputs)["decoder_sequence_output"].shape
    TensorShape([1, 2, 128])
    """

    config_class = RecurrentSeq2SeqConfig

    def __init__(
        self, config: RecurrentSeq2SeqConfig, name: str = "recurrent_seq2seq", **kwargs: Any
    ) -> None:
        inputs = seq2seq_inputs()
        embedding = self._embedding(config, config.vocabulary_size, "embedding")
        decoder_embedding = embedding
        if config.target_vocabulary_size is not None:
            decoder_embedding = self._embedding(config, config.target_vocabulary_size, "decoder_embedding")
        cell = CELLS[config.cell](config.hidden_dim, name="cell")
        encoder = RecurrentEncoder(
            config.hidden_dim, config.num_layers, cell, config.bidirectional, name="encoder"
        )
        attention = ATTENTIONS[config.attention](config)
        decoder = LSTMAttentionDecoder(config.hidden_dim, config.num_layers, cell, attention, name="decoder")
        initial_state = None
        if config.attention != "none":
            initial_state = keras.layers.Dense(decoder.state_dim, "tanh", name="initial_state")

        def first_state(last):
            states = encoder.of_last_direction(last)
            if initial_state is None:
                return ops.concatenate(states, axis=-1)
            return initial_state(states[-1][:, : config.hidden_dim])

        dropout = Dropout(config.dropout, name="dropout")

        encoded, last = encoder(dropout(embedding(inputs["token_ids"])), mask=inputs["padding_mask"])
        decoded = decoder(
            dropout(decoder_embedding(inputs["decoder_token_ids"])),
            encoded,
            mask=inputs["decoder_padding_mask"],
            context_mask=inputs["padding_mask"],
            initial_state=first_state(last),
        )
        outputs = {"encoder_sequence_output": encoded, "decoder_sequence_output": dropout(decoded)}
        trace = Trace({"encoder": encoder.layers, "decoder": decoder.cells})
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self.embedding, self.output_embedding = embedding, decoder_embedding
        self.encoder, self.decoder, self.initial_state = encoder, decoder, initial_state
        self.first_state = first_state

    @staticmethod
    def _embedding(config, vocabulary_size, name):
        # Without the scale the inputs are so small that learning needs several times as many steps.
        initializer = keras.initializers.RandomNormal(stddev=config.dim**-0.5)
        return TokenEmbedding(vocabulary_size, config.dim, scale=True, initializer=initializer, name=name)

    def encode(self, token_ids, padding_mask=None):
        """The encoder's output (B, S, W), and the last states of its layers (B, .)."""
        return self.encoder(self.embedding(token_ids), mask=padding_mask)

    def start(self, batch_size, max_length, context):
        """A cache for decoding from `context`, {"token_ids", "padding_mask"}, which is encoded here."""
        padding_mask = context.get("padding_mask")
        encoded, last = self.encode(context["token_ids"], padding_mask)
        return self.decoder.start(batch_size, max_length, encoded, padding_mask, self.first_state(last))

    def step(self, token_ids, cache, padding_mask=None):
        """The decoder's output (B, T, D) at the next T tokens (B, T), and the new cache."""
        return self.decoder.step(self.output_embedding(token_ids), cache, padding_mask)


# bahdanau: RNNsearch of Bahdanau et al. 2015, section 4.1 and appendix A.2.3, where no dropout is mentioned.
# sutskever: the LSTM of Sutskever et al. 2014, section 3.4, which reads the source backwards. tiny and small
# are this package's own, for about 10^4 and 10^5 pairs.
RecurrentSeq2Seq.sizes = {
    "tiny": RecurrentSeq2SeqConfig(8_000, dim=128, hidden_dim=128),
    "small": RecurrentSeq2SeqConfig(8_000, dim=256, hidden_dim=512, dropout=0.2),
    "bahdanau": RecurrentSeq2SeqConfig(30_000, 30_000, dim=620, hidden_dim=1_000, cell="gru", dropout=0.0),
    "sutskever": RecurrentSeq2SeqConfig(
        160_000, 80_000, 4, 1_000, 1_000, dropout=0.0, attention="none", bidirectional=False
    ),
}
