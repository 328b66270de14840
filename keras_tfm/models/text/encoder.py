"""What BERT and the encoders after it share: their inputs, their body, their pooled output."""

import keras
from keras import ops

from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import TransformerEncoder
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regularization import Dropout
from keras_tfm.training.model import ConfiguredModel

INITIALIZER = keras.initializers.TruncatedNormal(stddev=0.02)  # Devlin et al. 2019, the released code


class EncoderModel(ConfiguredModel):
    """Token ids in, hidden states out, every position attending to all. Abstract: a family gives the parts.

    `inputs` are `token_inputs`, `embedded` (B, T, .) is what the layer `embedding` made of them. Its norm and
    dropout follow, then `encoder`, called with the padding mask. Outputs: `sequence_output` (B, T, D) and,
    with `pooler`, `pooled_output` (B, D), a tanh layer over the first token.
    """

    def __init__(self, config, inputs, embedding, embedded, encoder, pooler=False, **kwargs):
        x = LayerNormalization(config.epsilon, name="embedding_norm")(embedded)
        x = Dropout(config.dropout, name="embedding_dropout")(x)
        x = encoder(x, mask=inputs["padding_mask"])
        outputs = {"sequence_output": x}
        if pooler:
            dense = keras.layers.Dense(
                config.dim, "tanh", kernel_initializer=INITIALIZER.clone(), name="pooler"
            )
            outputs["pooled_output"] = dense(ops.take(x, 0, axis=1))
        super().__init__(config, inputs, outputs, **kwargs)
        self.embedding, self.encoder = embedding, encoder


def token_inputs(num_segments=0):
    """`token_ids`, `padding_mask` and, where there are several segments, `segment_ids`: (B, T) each."""
    inputs = {
        "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
        "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask"),
    }
    if num_segments > 1:
        inputs["segment_ids"] = keras.Input((None,), dtype="int32", name="segment_ids")
    return inputs


def encoder_of(config, num_layers=None, attention=None):
    """The post-norm `TransformerEncoder` that `config` describes, of `num_layers` if given.

    `attention` is the pattern of a layer in place of plain multi-head attention.
    """
    return TransformerEncoder(
        config.num_layers if num_layers is None else num_layers,
        config.num_heads,
        config.intermediate_dim,
        dropout=config.dropout,
        epsilon=config.epsilon,
        attention=attention
        or MultiHeadAttention(
            config.num_heads, dropout=config.attention_dropout, kernel_initializer=INITIALIZER
        ),
        feedforward=FeedForward(config.intermediate_dim, config.activation, kernel_initializer=INITIALIZER),
        name="encoder",
    )
