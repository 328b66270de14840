"""What decoder-only Transformers share: the inputs, documents packed into one row, and decoding."""

import keras
from keras import ops

from keras_tfm.layers.base import Layer
from keras_tfm.layers.masks import causal_mask
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.text.encoder import token_inputs
from keras_tfm.models.text.seq2seq import check_length


class DecoderModel(ConfiguredModel):
    """Token ids in, hidden states out, every position attending to those before it. Abstract.

    Inputs: `token_ids`, `padding_mask` and `segment_ids`, each (B, T). The segments number documents that
    are packed into one row: a token attends to its own document alone, whose positions start at 0. Padding,
    on either side, takes no position. Output: `sequence_output` (B, T, D).

    Args:
        decoder: a `Stack`.
        embedding: the embedding of tokens, which a language model's head may share.
        dropout: a layer applied to the input of the first block, or None.
        max_length: how many tokens the decoder has positions for; None for any number.
    """

    def __init__(self, config, decoder, embedding, dropout=None, max_length=None, **kwargs):
        inputs = token_inputs(num_segments=2)
        mask = DocumentMask(name="document_mask")(inputs["padding_mask"], inputs["segment_ids"])
        # A token's position is the number of other tokens that it may attend to.
        positions = ops.maximum(ops.sum(ops.cast(mask, "int32"), axis=-1) - 1, 0)
        x = decoder.embed(inputs["token_ids"], positions)
        trace = Trace()
        x = decoder.run(trace, "decoder", x if dropout is None else dropout(x), mask)
        super().__init__(config, inputs, {"sequence_output": x}, trace, **kwargs)
        self.embedding = self.output_embedding = embedding
        self.decoder = decoder
        self.max_target_length = max_length

    def start(self, batch_size, max_length, context=None):
        """A cache for up to `max_length` tokens. Raises ValueError if the model has fewer positions."""
        if self.max_target_length is not None:
            check_length(max_length, self.max_target_length)
        return self.decoder.start(batch_size, max_length)

    def step(self, token_ids, cache, padding_mask=None):
        """The output (B, T, D) at the next T tokens (B, T), and the new cache."""
        return self.decoder.step(token_ids, cache, padding_mask)


class DocumentMask(Layer):
    """Which tokens each token may attend to: those up to itself, in its own document, without padding.

    It maps `padding_mask` (B, T) and `segment_ids` (B, T) to (B, T, T). For documents a a a b b:

        1 . . . .
        1 1 . . .
        1 1 1 . .
        . . . 1 .
        . . . 1 1
    """

    def call(self, padding_mask, segment_ids):
        length = ops.shape(segment_ids)[1]
        is_same_document = segment_ids[:, :, None] == segment_ids[:, None, :]
        return is_same_document & padding_mask[:, None] & causal_mask(length, length)  # (B, T, T)

    def compute_output_spec(self, padding_mask, segment_ids):
        return keras.KerasTensor((*segment_ids.shape, segment_ids.shape[1]), "bool")
