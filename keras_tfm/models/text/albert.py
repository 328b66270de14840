"""ALBERT, an encoder with few weights (Lan et al. 2020, "ALBERT: A Lite BERT for Self-supervised Learning").

BERT with a narrow embedding that is projected to the model's width (section 3.1, factorised embeddings), and
with few blocks, each applied several times (cross-layer sharing). Deviates from transformers' ALBERT, which
has no dropout after the feed-forward layer; the published second versions train without dropout anyway.
"""

import dataclasses

import keras

from keras_tfm.configs import Depth, Rate, Rounds, Size, Whole
from keras_tfm.layers.embeddings import TokenAndPositionEmbedding
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.models.text.encoder import EncoderConfig, EncoderModel


@dataclasses.dataclass(frozen=True)
class ALBERTConfig(EncoderConfig):
    """The sizes of an `ALBERT`; the defaults are the base model's.

    Args:
        embedding_dim: the width of the embeddings.
        num_layers: how many times a group of blocks is applied, the first group first.
        num_groups: the number of groups.
        group_size: the number of blocks in a group: block `group_size` g + j is the j-th of group g.
        pooler: whether there is a pooled output, with weights of its own.
    """

    vocabulary_size: Size = 30_000
    embedding_dim: Size = 128
    num_layers: Rounds = 12
    num_groups: Depth = 1
    group_size: Depth = 1
    num_segments: Whole = 2
    dropout: Rate = 0.0
    attention_dropout: Rate = 0.0
    activation: str = "gelu_tanh"
    pooler: bool = True


class ALBERT(EncoderModel):
    """ALBERT: token ids in, hidden states out, every position attending to all.

    Inputs: `token_ids`, `padding_mask` and, with several segments, `segment_ids`, each (B, T). Outputs:
    `sequence_output` (B, T, D) and `pooled_output` (B, D), a tanh layer on the first token, [CLS].

    >>> config = keras_tfm.models.ALBERTConfig(100, embedding_dim=8, dim=16, num_heads=2, intermediate_dim=32)
    >>> keras_tfm.models.ALBERT(config)({"token_ids": np.array([[1, 2, 3]])})["sequence_output"].shape
    TensorShape([1, 3, 16])
    """

    config_class = ALBERTConfig

    @classmethod
    def embed(cls, config, inputs):
        """Embeddings narrower than the model."""
        embedding = TokenAndPositionEmbedding(
            config.vocabulary_size,
            config.max_length,
            config.embedding_dim,
            config.num_segments,
            initializer=TRUNCATED,
            name="embedding",
        )
        return embedding, embedding(inputs["token_ids"], segment_ids=inputs.get("segment_ids"))

    @classmethod
    def encode(cls, config, x, mask, trace):
        """The groups of blocks, all applied about equally often."""
        if config.num_groups > config.num_layers:
            raise ValueError(
                f"`num_groups` must lie in 1 to `num_layers`, {config.num_layers}; it is {config.num_groups}."
            )
        projection = keras.layers.Dense(config.dim, kernel_initializer=TRUNCATED.clone(), name="projection")
        size = config.group_size
        blocks = [cls.block(config, f"block_{i}") for i in range(config.num_groups * size)]
        applied = []
        for i in range(config.num_layers):
            group = int(i / (config.num_layers / config.num_groups))  # rounded as in the released code
            applied += blocks[group * size : (group + 1) * size]
        return trace.run("encoder", applied, projection(x), attention={"mask": mask})


# Lan et al. 2020, table 1; the heads and the activation are the released models'.
ALBERT.sizes = {
    "base": ALBERTConfig(),
    "large": ALBERTConfig(num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096),
    "xlarge": ALBERTConfig(num_layers=24, dim=2048, num_heads=16, intermediate_dim=8192),
    "xxlarge": ALBERTConfig(num_layers=12, dim=4096, num_heads=64, intermediate_dim=16_384),
}
