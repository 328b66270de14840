"""ALBERT, the encoder of Lan et al. 2020, "ALBERT: A Lite BERT for Self-supervised Learning".

BERT with a narrow embedding that is projected to the model's width (section 3.1, factorised embeddings) and
with few blocks, each used several times (cross-layer sharing). `dropout` acts after the feed-forward layer
too, where transformers' has none; the published second versions train without any.
"""

import dataclasses

import keras

from keras_tfm.configs import Config, Depth, Heads, Length, Rate, Rounds, Size, Whole
from keras_tfm.layers.base import Layer, Pattern
from keras_tfm.layers.blocks import TransformerEncoder
from keras_tfm.layers.embeddings import TokenAndPositionEmbedding
from keras_tfm.layers.masks import key_mask_of
from keras_tfm.models.text.encoder import INITIALIZER, EncoderModel, encoder_of, token_inputs


@dataclasses.dataclass(frozen=True)
class ALBERTConfig(Config):
    """`embedding_dim` is the embedding's width. `num_layers` times one of `num_groups` groups, each of
    `group_size` blocks, is applied, the first group first. `dropout` acts on the embeddings and on what each
    sub-layer adds, `attention_dropout` on the attention weights.
    """

    vocabulary_size: Size = 30_000
    embedding_dim: Size = 128
    num_layers: Rounds = 12
    num_groups: Depth = 1
    group_size: Depth = 1
    dim: Size = 768
    num_heads: Heads = 12
    intermediate_dim: Size = 3072
    max_length: Length = 512
    num_segments: Whole = 2
    dropout: Rate = 0.0
    attention_dropout: Rate = 0.0
    activation: str = "gelu_tanh"
    epsilon: Rate = 1e-12
    pooler: bool = True


class SharedEncoder(Layer):
    """`num_layers` applications of `num_groups` stacks like `group`: (B, T, E) -> (B, T, `dim`).

    The input is projected to `dim` first; then each group is applied about as often as any other.
    """

    def __init__(self, dim, num_layers, num_groups, group: TransformerEncoder, **kwargs):
        super().__init__(**kwargs)
        if not 1 <= num_groups <= num_layers:
            raise ValueError(f"`num_groups` must lie in 1 to {num_layers}, the layers; it is {num_groups}.")
        self.dim = dim
        self.num_layers = num_layers
        self.num_groups = num_groups
        self.group = Pattern(group)
        self.groups = [self.group.new(f"group_{i}") for i in range(num_groups)]

    def build(self, x_shape, mask_shape=None):
        self.projection = keras.layers.Dense(
            self.dim, kernel_initializer=INITIALIZER.clone(), name="projection"
        )
        self.projection.build(x_shape)
        for group in self.groups:
            group.build((*x_shape[:-1], self.dim))
        self.built = True

    def call(self, x, mask=None, training=None):
        """(B, T, E) -> (B, T, D); `mask` follows `keras_tfm.layers.masks`."""
        x = self.projection(x)
        for i in range(self.num_layers):
            which = int(i / (self.num_layers / self.num_groups))  # rounded as in the released code
            x = self.groups[which](x, mask=mask, training=training)
        return x

    def rematerialized_call(self, layer_call, *args, **kwargs):
        """As it is: the blocks recompute, each for itself."""
        return layer_call

    def compute_output_shape(self, x_shape, mask_shape=None):
        return (*x_shape[:-1], self.dim)

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)


class ALBERT(EncoderModel):
    """Token ids in, hidden states out, every position attending to all.

    Inputs: `token_ids`, `padding_mask` and, where there are several segments, `segment_ids`, (B, T) each.
    Outputs: `sequence_output` (B, T, D) and `pooled_output` (B, D), a tanh layer over the first token, [CLS].
    """

    config_class = ALBERTConfig

    def __init__(self, config, name="albert", **kwargs):
        inputs = token_inputs(config.num_segments)
        embedding = TokenAndPositionEmbedding(
            config.vocabulary_size,
            config.max_length,
            config.embedding_dim,
            config.num_segments,
            initializer=INITIALIZER,
            name="embedding",
        )
        embedded = embedding(inputs["token_ids"], segment_ids=inputs.get("segment_ids"))
        group = encoder_of(config, config.group_size)
        encoder = SharedEncoder(config.dim, config.num_layers, config.num_groups, group, name="encoder")
        super().__init__(config, inputs, embedding, embedded, encoder, config.pooler, name=name, **kwargs)


# Lan et al. 2020, table 1; heads and activation by the released models.
ALBERT.sizes = {
    "base": ALBERTConfig(),
    "large": ALBERTConfig(num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096),
    "xlarge": ALBERTConfig(num_layers=24, dim=2048, num_heads=16, intermediate_dim=8192),
    "xxlarge": ALBERTConfig(num_layers=12, dim=4096, num_heads=64, intermediate_dim=16_384),
}
