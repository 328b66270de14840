"""The encoder-decoder Transformer of Vaswani et al. 2017, "Attention Is All You Need".

Deviates from the paper in two places. `normalize_first` moves the norms to the input of each sub-layer
(Xiong et al. 2020), which trains without a long warm-up. And dropout acts on the attention weights too, as
in the authors' code.
"""

import dataclasses
from typing import Any

import keras

from keras_tfm.configs import Config, Depth, Heads, Length, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.embeddings import TokenAndPositionEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.positions import SinePositionEncoding
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.text.seq2seq import Seq2SeqModel, Stack


@dataclasses.dataclass(frozen=True)
class TransformerConfig(Config):
    """The sizes of a `Transformer`; the defaults give the paper's base model.

    Args:
        vocabulary_size: the source's.
        target_vocabulary_size: the target's; None if source and target share one vocabulary and one
            embedding table.
        key_dim: the width of a head; None for `dim` / `num_heads`.
        normalize_first: whether the norms are at the input of each sub-layer.
    """

    vocabulary_size: Size
    target_vocabulary_size: Size | None = None
    num_layers: Depth = 6
    dim: Size = 512
    num_heads: Heads = 8
    intermediate_dim: Size = 2048
    key_dim: Size | None = None
    dropout: Rate = 0.1
    activation: str = "relu"
    normalize_first: bool = False
    epsilon: Rate = 1e-6
    max_length: Length = 512


class Transformer(Seq2SeqModel):
    """The Transformer: token ids of a source and a target in, hidden states out.

    Inputs: `token_ids` (B, S), `padding_mask` (B, S), `decoder_token_ids` (B, T) and `decoder_padding_mask`
    (B, T). Outputs: `encoder_sequence_output` (B, S, D) and `decoder_sequence_output` (B, T, D). The
    encoder's final output is the context of every decoder block.

    >>> model = keras_tfm.models.Transformer.from_size("tiny", vocabulary_size=100)
    >>> inputs = {"token_ids": np.array([[5, 6, 2]]), "decoder_token_ids": np.array([[1, 5]])}
    >>> model(inputs)["decoder_sequence_output"].shape
    TensorShape([1, 2, 128])
    """

    config_class = TransformerConfig

    def __init__(self, config: TransformerConfig, name: str = "transformer", **kwargs: Any) -> None:
        embedding = output_embedding = _embedding(config, config.vocabulary_size, "embedding")
        if config.target_vocabulary_size is not None:
            output_embedding = _embedding(config, config.target_vocabulary_size, "decoder_embedding")
        encoder, decoder = (
            stack_of(config, embedding, "encoder"),
            stack_of(config, output_embedding, "decoder"),
        )
        dropout = Dropout(config.dropout, name="embedding_dropout")
        super().__init__(config, encoder, decoder, embedding, output_embedding, dropout, name=name, **kwargs)


def _embedding(config, vocabulary_size, name):
    initializer = keras.initializers.RandomNormal(stddev=config.dim**-0.5)
    return TokenAndPositionEmbedding(
        vocabulary_size,
        config.max_length,
        config.dim,
        scale=True,
        position=SinePositionEncoding(name="position"),
        initializer=initializer,
        name=name,
    )


def stack_of(config, embedding, name):
    """The stack called `name`, "encoder" or "decoder"."""
    blocks = [_block(config, name == "decoder", f"{name}_block_{i}") for i in range(config.num_layers)]
    norm = LayerNormalization(config.epsilon, name=f"{name}_norm") if config.normalize_first else None
    return Stack(lambda token_ids, positions=None: embedding(token_ids, positions=positions), blocks, norm)


def _block(config, is_decoder, name):
    part = residuals(config.dropout, config.epsilon, normalize_first=config.normalize_first)

    def attention():
        return MultiHeadAttention(config.num_heads, config.key_dim, dropout=config.dropout)

    context = attention() if is_decoder else None
    feedforward = FeedForward(config.intermediate_dim, config.activation)
    branches = {"attention": attention(), "context_attention": context, "feedforward": feedforward}
    return block_of(part, name, is_decoder, **branches)


# base and big: Vaswani et al. 2017, table 3, with the shared vocabulary of 37,000 tokens (section 5.1).
# tiny and small are this package's own, for about 10^4 and 10^5 sentence pairs.
Transformer.sizes = {
    "tiny": TransformerConfig(8_000, num_layers=2, dim=128, num_heads=4, intermediate_dim=512),
    "small": TransformerConfig(
        8_000, num_layers=3, dim=256, num_heads=4, intermediate_dim=1024, normalize_first=True
    ),
    "base": TransformerConfig(37_000),
    "big": TransformerConfig(37_000, dim=1024, num_heads=16, intermediate_dim=4096, dropout=0.3),
}
