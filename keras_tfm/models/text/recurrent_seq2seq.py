"""Recurrent encoder-decoders: with attention, Bahdanau, Cho and Bengio 2015, "RNNsearch", and without.

Deviates from the paper where `keras_tfm.layers.recurrent` says so; besides, all states of the
decoder's first step come from the encoder's backward state by one tanh layer, an LSTM's memory as
well, and the embedding may be shared by both languages and the output.

Without attention it is Sutskever, Vinyals and Le 2014, "Sequence to Sequence Learning with Neural Networks":
all that the decoder knows of the source are the encoder's last states, from which its layers start.
"""

import dataclasses
from typing import Literal

import keras
from keras import ops

from keras_tfm.configs import Config, Depth, Length, Rate, Size
from keras_tfm.layers.attention.alignment import AdditiveAttention, DotAttention, NoAttention, StaticAlignment
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.recurrent import LSTMAttentionDecoder, RecurrentEncoder
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel
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
    """`vocabulary_size` is the source's; the target's is the same and shares its embedding table
    unless `target_vocabulary_size` is given. `dim` is the width of embeddings and output,
    `hidden_dim` that of a state, for each direction. `cell` is "lstm", or "gru" as in the paper.
    `dropout` acts on the embeddings and the output, not within the recurrence (Zaremba et al. 2014).

    `attention` is a kind of `keras_tfm.layers.attention.alignment`. A "static" one has a table of
    `max_target_length` x `max_source_length`, which bound nothing else. With "none" the decoder's layers
    start from the last states of the encoder's, exactly, of a `bidirectional` one from those of the backward
    direction; with attention they start from a tanh layer of that direction's last h.
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
    """Recurrent encoder and decoder: token ids in, hidden states out.

    Inputs: `token_ids` (B, S), `padding_mask` (B, S), `decoder_token_ids` (B, T) and
    `decoder_padding_mask` (B, T). Outputs: `encoder_sequence_output` (B, S, W), W being 2 `hidden_dim` of a
    bidirectional encoder, and `decoder_sequence_output` (B, T, D).
    """

    config_class = RecurrentSeq2SeqConfig

    def __init__(self, config, name="recurrent_seq2seq", **kwargs):
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
        blocks = {"encoder": encoder.layers, "decoder": decoder.cells}
        super().__init__(config, inputs, outputs, blocks, {}, name=name, **kwargs)
        self.embedding, self.output_embedding = embedding, decoder_embedding
        self.encoder, self.decoder, self.initial_state = encoder, decoder, initial_state
        self.first_state = first_state

    @staticmethod
    def _embedding(config, vocabulary_size, name):
        # Unscaled, the recurrence's inputs start so small that learning takes several times the steps.
        initializer = keras.initializers.RandomNormal(stddev=config.dim**-0.5)
        return TokenEmbedding(vocabulary_size, config.dim, scale=True, initializer=initializer, name=name)

    def encode(self, token_ids, padding_mask=None):
        """The encoder's output (B, S, W), and the last states of its layers (B, .)."""
        return self.encoder(self.embedding(token_ids), mask=padding_mask)

    def start(self, batch_size, max_length, context):
        """Encode `context` ({"token_ids", "padding_mask"}); a cache to decode from it."""
        padding_mask = context.get("padding_mask")
        encoded, last = self.encode(context["token_ids"], padding_mask)
        return self.decoder.start(batch_size, max_length, encoded, padding_mask, self.first_state(last))

    def step(self, token_ids, cache, padding_mask=None):
        """The decoder's output (B, T, D) at the next T tokens (B, T), and the new cache."""
        return self.decoder.step(self.output_embedding(token_ids), cache, padding_mask)


# bahdanau: RNNsearch of Bahdanau et al. 2015, section 4.1 and appendix A.2.3, no dropout as there. sutskever:
# the LSTM of Sutskever et al. 2014, section 3.4, which reads sources backwards. tiny and small are this
# package's own, for some 10^4 and 10^5 pairs.
RecurrentSeq2Seq.sizes = {
    "tiny": RecurrentSeq2SeqConfig(8_000, dim=128, hidden_dim=128),
    "small": RecurrentSeq2SeqConfig(8_000, dim=256, hidden_dim=512, dropout=0.2),
    "bahdanau": RecurrentSeq2SeqConfig(30_000, 30_000, dim=620, hidden_dim=1_000, cell="gru", dropout=0.0),
    "sutskever": RecurrentSeq2SeqConfig(
        160_000, 80_000, 4, 1_000, 1_000, dropout=0.0, attention="none", bidirectional=False
    ),
}
