"""What BERT and its successors share: the inputs, the body and the pooled output."""

import dataclasses

import keras
from keras import ops

from keras_tfm.configs import Config, Depth, Heads, Length, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.embeddings import TokenAndPositionEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel, Trace


@dataclasses.dataclass(frozen=True)
class EncoderConfig(Config):
    """The fields that BERT and its successors share; the defaults are the base BERT's.

    Args:
        dropout: the rate for the embeddings and for the output of each sub-layer.
        attention_dropout: the rate for the attention weights.
    """

    vocabulary_size: Size = 30_522
    num_layers: Depth = 12
    dim: Size = 768
    num_heads: Heads = 12
    intermediate_dim: Size = 3072
    max_length: Length = 512
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.1
    activation: str = "gelu"
    epsilon: Rate = 1e-12


class EncoderModel(ConfiguredModel):
    """BERT's body: token ids in, hidden states out, every position attending to all. Abstract.

    Inputs: `token_ids`, `padding_mask` and, with several segments, `segment_ids`, each (B, T). Outputs:
    `sequence_output` (B, T, D) and, if the configuration has a `pooler`, `pooled_output` (B, D), a tanh
    layer on the first token. A family overrides `embed`, `encode` or `block` where it differs.
    """

    def __init__(self, config, name=None, **kwargs):
        inputs = token_inputs(getattr(config, "num_segments", 0))
        embedding, x = self.embed(config, inputs)
        x = LayerNormalization(config.epsilon, name="embedding_norm")(x)
        x = Dropout(config.dropout, name="embedding_dropout")(x)
        trace = Trace()
        x = self.encode(config, x, inputs["padding_mask"], trace)
        outputs = {"sequence_output": x}
        if getattr(config, "pooler", False):
            dense = keras.layers.Dense(
                config.dim, "tanh", kernel_initializer=TRUNCATED.clone(), name="pooler"
            )
            outputs["pooled_output"] = dense(ops.take(x, 0, axis=1))
        name = name or type(self).__name__.lower()
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self.embedding = embedding

    @classmethod
    def embed(cls, config, inputs):
        """(The embedding layer, its output (B, T, D) for `inputs`)."""
        embedding = TokenAndPositionEmbedding(
            config.vocabulary_size,
            config.max_length,
            config.dim,
            getattr(config, "num_segments", 0),
            initializer=TRUNCATED,
            name="embedding",
        )
        return embedding, embedding(inputs["token_ids"], segment_ids=inputs.get("segment_ids"))

    @classmethod
    def encode(cls, config, x, mask, trace):
        """The last state (B, T, D) of `x`; `mask` (B, T) is False at padding, `trace` records the blocks."""
        blocks = [cls.block(config, f"block_{i}") for i in range(config.num_layers)]
        return trace.run("encoder", blocks, x, attention={"mask": mask})

    @classmethod
    def block(cls, config, name):
        """A block that normalises after each sum."""
        attention = MultiHeadAttention(
            config.num_heads, dropout=config.attention_dropout, kernel_initializer=TRUNCATED
        )
        return encoder_block(config, attention, name)


def token_inputs(num_segments=0):
    """`token_ids`, `padding_mask` and, with several segments, `segment_ids`: (B, T) each."""
    inputs = {
        "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
        "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask"),
    }
    if num_segments > 1:
        inputs["segment_ids"] = keras.Input((None,), dtype="int32", name="segment_ids")
    return inputs


def encoder_block(config, attention, name):
    """BERT's block with this `attention`."""
    part = residuals(config.dropout, config.epsilon)
    feedforward = FeedForward(config.intermediate_dim, config.activation, kernel_initializer=TRUNCATED)
    return block_of(part, name, attention=attention, feedforward=feedforward)
