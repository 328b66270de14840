"""BART, the denoising encoder-decoder (Lewis et al. 2020, "BART"), and mBART (Liu et al. 2020).

The Transformer of Vaswani et al. with learned positions, GELU, and a norm on the embedded tokens of both
sides. mBART normalises the input of each sub-layer and the output of each stack instead. As in the released
models the tables of positions have two rows that no token uses.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_tfm.configs import Config, Depth, Heads, Length, Rate, Size, TokenId
from keras_tfm.inputs import every_position
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import NORMAL
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.positions import PositionEmbedding, outside_is_nan
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.text.seq2seq import Seq2SeqModel, Stack

FIRST_POSITION = 2


@dataclasses.dataclass(frozen=True)
class BARTConfig(Config):
    """The sizes of a `BART`; the defaults are the large model's.

    Args:
        num_decoder_layers: of the decoder; None, here and in the other fields of the decoder, means as in
            the encoder.
        dropout: the rate for the embeddings and for the output of each sub-layer.
        attention_dropout: the rate for the attention weights.
        activation_dropout: the rate for the hidden values of the feed-forward layers.
        scale_embedding: whether the token vectors are multiplied by sqrt(D).
        normalize_first: whether the norms are at the input of each sub-layer, as in mBART.
        start_id: the decoder's first token.
        end_id: the last token of a text.
    """

    vocabulary_size: Size = 50_265
    max_length: Length = 1_024
    dim: Size = 1024
    num_layers: Depth = 12
    num_decoder_layers: Depth | None = None
    num_heads: Heads = 16
    num_decoder_heads: Heads | None = None
    intermediate_dim: Size = 4096
    decoder_intermediate_dim: Size | None = None
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.0
    activation_dropout: Rate = 0.0
    activation: str = "gelu"
    scale_embedding: bool = False
    normalize_first: bool = False
    epsilon: Rate = 1e-5
    pad_id: TokenId = 1
    start_id: TokenId = 2
    end_id: TokenId = 2

    @property
    def num_positions(self):
        """The number of rows of the tables of positions."""
        return self.max_length + FIRST_POSITION

    @property
    def decoder_sizes(self):
        """(Number of layers, number of heads, feed-forward width) of the decoder."""
        decoders = self.num_decoder_layers, self.num_decoder_heads, self.decoder_intermediate_dim
        encoders = self.num_layers, self.num_heads, self.intermediate_dim
        return tuple(b if a is None else a for a, b in zip(decoders, encoders, strict=True))


class BART(Seq2SeqModel):
    """BART: token ids of a source and a target in, hidden states out.

    Inputs: `token_ids` (B, S), `padding_mask` (B, S), `decoder_token_ids` (B, T) and `decoder_padding_mask`
    (B, T). Outputs: `encoder_sequence_output` (B, S, D) and `decoder_sequence_output` (B, T, D).

    >>> model = keras_tfm.models.BART.from_size("tiny", vocabulary_size=100)
    >>> inputs = {"token_ids": np.array([[5, 6, 2]]), "decoder_token_ids": np.array([[2, 5]])}
    >>> model(inputs)["decoder_sequence_output"].shape
    TensorShape([1, 2, 128])
    """

    config_class = BARTConfig

    def __init__(self, config: BARTConfig, name: str = "bart", **kwargs: Any) -> None:
        embedding = TokenEmbedding(
            config.vocabulary_size,
            config.dim,
            config.scale_embedding,
            initializer=NORMAL,
            name="embedding",
        )
        encoder, decoder = stack_of(config, embedding, "encoder"), stack_of(config, embedding, "decoder")
        dropout = Dropout(config.dropout, name="embedding_dropout")
        super().__init__(
            config,
            encoder,
            decoder,
            embedding,
            embedding,
            dropout,
            max_length=config.max_length,
            name=name,
            **kwargs,
        )

    def read(self):
        """(Inputs, outputs) for classifying a text: both sides read it, the decoder one token later, from
        `start_id` on.

        Inputs: `token_ids` and `padding_mask`, (B, T). Outputs of the decoder: `sequence_output` (B, T, D),
        and `pooled_output` (B, D), the state at the last `end_id`, or NaN where there is none. Lewis et al.
        2020, section 3.1.
        """
        inputs = {name: self.input[name] for name in ("token_ids", "padding_mask")}
        token_ids = inputs["token_ids"]
        first = ops.full_like(token_ids[:, :1], self.config.start_id)
        reread = ops.concatenate([first, token_ids[:, :-1]], axis=1)
        hidden = self({**inputs, "decoder_token_ids": reread})["decoder_sequence_output"]
        is_end = ops.equal(token_ids, self.config.end_id)
        last = ops.max(ops.where(is_end, every_position(token_ids), -1), axis=1, keepdims=True)  # (B, 1)
        pooled = ops.take_along_axis(hidden, ops.maximum(last, 0)[..., None], axis=1)  # (B, 1, D)
        pooled = pooled + outside_is_nan(last, self.config.max_length, hidden.dtype)
        return inputs, {"sequence_output": hidden, "pooled_output": ops.squeeze(pooled, 1)}


def stack_of(config, embedding, name):
    """The stack called `name`, "encoder" or "decoder"."""
    is_decoder = name == "decoder"
    encoder_sizes = config.num_layers, config.num_heads, config.intermediate_dim
    num_layers, num_heads, width = config.decoder_sizes if is_decoder else encoder_sizes
    position = PositionEmbedding(config.num_positions, NORMAL, name=f"{name}_position")
    norm = LayerNormalization(config.epsilon, name=f"{name}_embedding_norm")

    def embed(token_ids, positions=None):
        positions = every_position(token_ids) if positions is None else positions
        return norm(position(embedding(token_ids), positions=positions + FIRST_POSITION))

    blocks = [_block(config, num_heads, width, is_decoder, f"{name}_block_{i}") for i in range(num_layers)]
    last_norm = LayerNormalization(config.epsilon, name=f"{name}_norm") if config.normalize_first else None
    return Stack(embed, blocks, last_norm)


def _block(config, num_heads, width, is_decoder, name):
    part = residuals(config.dropout, config.epsilon, normalize_first=config.normalize_first)

    def attention():
        dropout = config.attention_dropout
        return MultiHeadAttention(num_heads, dropout=dropout, kernel_initializer=NORMAL)

    feedforward = FeedForward(
        width, config.activation, kernel_initializer=NORMAL, dropout=config.activation_dropout
    )
    context = attention() if is_decoder else None
    branches = {"attention": attention(), "context_attention": context, "feedforward": feedforward}
    return block_of(part, name, is_decoder, **branches)


# base and large: Lewis et al. 2020, section 2.1 (6 and 12 layers), with BERT's widths. mbart-large: Liu et
# al. 2020, section 2.2; its released model has 250,027 tokens. tiny is this package's own.
BART.sizes = {
    "tiny": BARTConfig(8_000, 256, dim=128, num_layers=2, num_heads=4, intermediate_dim=512),
    "base": BARTConfig(dim=768, num_layers=6, num_heads=12, intermediate_dim=3072),
    "large": BARTConfig(),
    "mbart-large": BARTConfig(250_027, scale_embedding=True, normalize_first=True),
}
