"""T5, the text-to-text Transformer (Raffel et al. 2020, "Exploring the Limits of Transfer Learning").

An encoder-decoder that normalises the input of each sub-layer, by the root mean square alone. Positions
enter as a bias on the scores, per head and bucket of distance, with one table for all blocks of a stack
(section 2.1). No layer has a bias, and queries are not scaled. In version 1.0 input and output share the
embedding table, and the hidden states are multiplied by D^-0.5 before the output. Version 1.1 (the authors'
released code; "mT5", Xue et al. 2021, section 3.1) has gated feed-forward layers and a separate output
table.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import Config, Depth, Length, Rate, Size, TokenId
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.attention.positions import RelativePositionBias
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import RMSNormalization
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.text.seq2seq import Seq2SeqModel, Stack
from keras_tfm.private.keras import change_value


@dataclasses.dataclass(frozen=True)
class T5Config(Config):
    """The sizes of a `T5`; the defaults give version 1.0's base model.

    Args:
        num_decoder_layers: None for as many as `num_layers`.
        key_dim: the width of a head, independent of `dim`.
        num_buckets: the buckets of distances; `max_distance` is where the last one starts.
        dropout: the rate wherever the authors' code has dropout.
        gated: whether the feed-forward layers are gated.
        tied: whether the output uses the scaled hidden states and the embedding table, or a table of its
            own.
        start_id: the decoder's first token.
        end_id: the last token of a text.
    """

    vocabulary_size: Size = 32_128
    num_layers: Depth = 12
    num_decoder_layers: Depth | None = None
    dim: Size = 768
    num_heads: Size = 12
    key_dim: Size = 64
    intermediate_dim: Size = 3072
    num_buckets: Size = 32
    max_distance: Length = 128
    dropout: Rate = 0.1
    activation: str = "relu"
    gated: bool = False
    tied: bool = True
    epsilon: Rate = 1e-6
    pad_id: TokenId = 0
    start_id: TokenId = 0
    end_id: TokenId = 1

    @property
    def inner_dim(self):
        """The width of all heads together."""
        return self.num_heads * self.key_dim


class T5(Seq2SeqModel):
    """T5: token ids of a source and a target in, hidden states out, for texts of any length.

    Inputs: `token_ids` (B, S), `padding_mask` (B, S), `decoder_token_ids` (B, T) and `decoder_padding_mask`
    (B, T). Outputs: `encoder_sequence_output` (B, S, D) and `decoder_sequence_output` (B, T, D).

    >>> model = keras_tfm.models.T5.from_size("tiny", vocabulary_size=100)
    >>> inputs = {"token_ids": np.array([[5, 6, 1]]), "decoder_token_ids": np.array([[0, 5]])}
    >>> model(inputs)["decoder_sequence_output"].shape
    TensorShape([1, 2, 128])
    """

    config_class = T5Config

    def __init__(self, config: T5Config, name: str = "t5", **kwargs: Any) -> None:
        embedding = TokenEmbedding(
            config.vocabulary_size,
            config.dim,
            initializer=keras.initializers.RandomNormal(stddev=1.0),
            name="embedding",
        )
        dropout = Dropout(config.dropout, name="dropout")
        encoder, decoder = stack_of(config, embedding, "encoder"), stack_of(config, embedding, "decoder")
        super().__init__(
            config, encoder, decoder, embedding, embedding, dropout, drop_outputs=True, name=name, **kwargs
        )
        self.output_scale = config.dim**-0.5 if config.tied else 1.0
        # Queries start smaller, because the scores are not scaled.
        scale = np.ones((3, config.inner_dim), "float32")
        scale[0] = config.key_dim**-0.5
        for block in (*encoder.blocks, *decoder.blocks):
            kernel = block.attention.branch.projections.query_key_value.kernel
            change_value(kernel, lambda value: value * ops.cast(scale.reshape(-1), value.dtype))
        for block in decoder.blocks:
            kernel = block.context_attention.branch.projections.query.kernel
            change_value(kernel, lambda value: value * config.key_dim**-0.5)


INITIALIZER = keras.initializers.VarianceScaling(1.0, "fan_in", "untruncated_normal")


def stack_of(config, embedding, name):
    """The stack called `name`, "encoder" or "decoder"; its blocks share one table of distances."""
    is_decoder = name == "decoder"
    num_layers = config.num_layers
    if is_decoder and config.num_decoder_layers is not None:
        num_layers = config.num_decoder_layers
    return Stack(
        embed=lambda token_ids, positions=None: embedding(token_ids),
        blocks=[_block(config, is_decoder, f"{name}_block_{i}") for i in range(num_layers)],
        norm=RMSNormalization(config.epsilon, name=f"{name}_norm"),
        bias=RelativePositionBias(
            config.num_buckets,
            config.max_distance,
            bidirectional=not is_decoder,
            num_heads=config.num_heads,
            name=f"{name}_position",
        ),
    )


def _block(config, is_decoder, name):
    part = residuals(config.dropout, config.epsilon, RMSNormalization, normalize_first=True)

    def attention():
        return MultiHeadAttention(
            config.num_heads,
            config.key_dim,
            dropout=config.dropout,
            use_bias=False,
            scale=1.0,
            kernel_initializer=INITIALIZER,
        )

    feedforward = FeedForward(
        config.intermediate_dim,
        config.activation,
        use_bias=False,
        gated=config.gated,
        dropout=config.dropout,
        kernel_initializer=INITIALIZER,
    )
    context = attention() if is_decoder else None
    branches = {"attention": attention(), "context_attention": context, "feedforward": feedforward}
    return block_of(part, name, is_decoder, **branches)


def _v1_1(num_layers, dim, num_heads, intermediate_dim):
    return T5Config(
        num_layers=num_layers,
        dim=dim,
        num_heads=num_heads,
        intermediate_dim=intermediate_dim,
        activation="gelu_tanh",
        gated=True,
        tied=False,
    )


# small to 11b: Raffel et al. 2020, section 3.7 (base: section 3.1.1), with heads of width 64, in 3b and 11b
# of width 128. v1.1-*: the released configurations of T5 1.1, mT5's except for the vocabulary (Xue et
# al. 2021, section 3.1). tiny is this package's own.
T5.sizes = {
    "tiny": T5Config(8_000, num_layers=2, dim=128, num_heads=4, key_dim=32, intermediate_dim=512),
    "small": T5Config(num_layers=6, dim=512, num_heads=8, intermediate_dim=2048),
    "base": T5Config(),
    "large": T5Config(num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096),
    "3b": T5Config(num_layers=24, dim=1024, num_heads=32, key_dim=128, intermediate_dim=16_384),
    "11b": T5Config(num_layers=24, dim=1024, num_heads=128, key_dim=128, intermediate_dim=65_536),
    "v1.1-small": _v1_1(8, 512, 6, 1024),
    "v1.1-base": _v1_1(12, 768, 12, 2048),
    "v1.1-large": _v1_1(24, 1024, 16, 2816),
    "v1.1-xl": _v1_1(24, 2048, 32, 5120),
    "v1.1-xxl": _v1_1(24, 4096, 64, 10_240),
}
