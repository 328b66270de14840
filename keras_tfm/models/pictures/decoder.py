"""What decoders of pictures have in common: whole sequences without padding, and decoding."""

import keras

from keras_tfm.models.base import Trace
from keras_tfm.models.text.seq2seq import DecodingModel


class PictureDecoder(DecodingModel):
    """Tokens of pictures in, hidden states out, no position attending to later ones. Abstract.

    Input: `token_ids` (B, T), of which the first begins the sequence. Output: `sequence_output` (B, T, D).

    Args:
        decoder: a `Stack`, whose blocks are causal.
        embedding: the embedding of tokens.
        dropout: a layer applied to the input of the first block.
        max_length: how many tokens a picture has.
    """

    reads_last = False

    def __init__(self, config, decoder, embedding, dropout, max_length, **kwargs):
        inputs = {"token_ids": keras.Input((None,), dtype="int32", name="token_ids")}
        trace = Trace()
        x = decoder.run(trace, "decoder", dropout(decoder.embed(inputs["token_ids"])), None)
        super().__init__(config, inputs, {"sequence_output": x}, trace, **kwargs)
        self.embedding = self.output_embedding = embedding
        self.decoder = decoder
        self.max_target_length = max_length
