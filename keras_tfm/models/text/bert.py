"""The bidirectional encoder of Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers".

An encoder that normalises after each sum, over tokens, positions and segments whose sum is normalised too.
The heads of pre-training and fine-tuning stand in `keras_tfm.heads`.
"""

import dataclasses

import keras
from keras import ops

from keras_tfm.layers.attention import MultiHeadAttention
from keras_tfm.layers.blocks import TransformerEncoder
from keras_tfm.layers.embeddings import TokenAndPositionEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regularization import Dropout
from keras_tfm.training.model import ConfiguredModel


@dataclasses.dataclass(frozen=True)
class BERTConfig:
    """`dropout` acts on the embeddings and on what each sub-layer adds, `attention_dropout` on the attention
    weights. Without `pooler` there is no pooled output, and none of its weights.
    """

    vocabulary_size: int = 30_522
    num_layers: int = 12
    dim: int = 768
    num_heads: int = 12
    hidden_dim: int = 3072
    max_length: int = 512
    num_segments: int = 2
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: str = "gelu"
    epsilon: float = 1e-12
    pooler: bool = True


class BERT(ConfiguredModel):
    """Token ids in, hidden states out, every position attending to all.

    Inputs: `token_ids`, `padding_mask` and `segment_ids`, (B, T) each. Outputs: `sequence_output` (B, T, D)
    and `pooled_output` (B, D), a tanh layer over the first token, [CLS].
    """

    config_class = BERTConfig

    def __init__(self, config, name="bert", **kwargs):
        inputs = {
            "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
            "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask"),
            "segment_ids": keras.Input((None,), dtype="int32", name="segment_ids"),
        }
        initializer = keras.initializers.TruncatedNormal(stddev=0.02)  # appendix A.2's released code
        embedding = TokenAndPositionEmbedding(
            config.vocabulary_size,
            config.max_length,
            config.dim,
            config.num_segments,
            initializer=initializer,
            name="embedding",
        )
        encoder = TransformerEncoder(
            config.num_layers,
            config.num_heads,
            config.hidden_dim,
            dropout=config.dropout,
            epsilon=config.epsilon,
            attention=MultiHeadAttention(
                config.num_heads, dropout=config.attention_dropout, kernel_initializer=initializer
            ),
            feedforward=FeedForward(config.hidden_dim, config.activation, kernel_initializer=initializer),
            name="encoder",
        )
        x = embedding(inputs["token_ids"], segment_ids=inputs["segment_ids"])
        x = LayerNormalization(config.epsilon, name="embedding_norm")(x)
        x = Dropout(config.dropout, name="embedding_dropout")(x)
        x = encoder(x, mask=inputs["padding_mask"])
        outputs = {"sequence_output": x}
        if config.pooler:
            pooler = keras.layers.Dense(
                config.dim, "tanh", kernel_initializer=initializer.clone(), name="pooler"
            )
            outputs["pooled_output"] = pooler(ops.take(x, 0, axis=1))
        super().__init__(config, inputs, outputs, name=name, **kwargs)
        self.embedding, self.encoder = embedding, encoder


def _turc(num_layers, dim):
    return BERTConfig(num_layers=num_layers, dim=dim, num_heads=dim // 64, hidden_dim=4 * dim)


# base and large: Devlin et al. 2019, section 3. The 24 models L-*_H-*, of which tiny to medium have names:
# Turc et al. 2019, "Well-Read Students Learn Better", and its released models.
BERT.sizes = {
    "tiny": _turc(2, 128),
    "mini": _turc(4, 256),
    "small": _turc(4, 512),
    "medium": _turc(8, 512),
    "base": _turc(12, 768),
    "large": _turc(24, 1024),
    **{f"L-{n}_H-{dim}": _turc(n, dim) for n in (2, 4, 6, 8, 10, 12) for dim in (128, 256, 512, 768)},
}
