"""The denoising encoder-decoder of Lewis et al. 2020, "BART", and mBART (Liu et al. 2020).

Vaswani's Transformer with learned positions, GELU, and a norm over the embedded tokens on both sides. mBART
normalises first, and each stack's output. As in the released models the positions' tables have two rows
that no token has.
"""

import dataclasses
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_tfm.configs import Config, Depth, Heads, Length, Rate, Size, TokenId
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import TransformerDecoder, TransformerEncoder
from keras_tfm.layers.cache import PositionCache
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.positions import PositionEmbedding, outside_is_nan
from keras_tfm.layers.regularization import Dropout
from keras_tfm.training.model import ConfiguredModel, every_position

FIRST_POSITION = 2
INITIALIZER = keras.initializers.RandomNormal(stddev=0.02)  # of the released code


@dataclasses.dataclass(frozen=True)
class BARTConfig(Config):
    """What the `decoder_` fields leave open, None, is as in the encoder. `dropout` acts on the embeddings and
    on what each sub-layer adds, the other two on the attention weights and in the feed-forward layers.
    `scale_embedding` multiplies the tokens' vectors by sqrt(D). A decoder's first token is `start_id`, and
    its last one `end_id`.
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
        """Rows of the positions' tables."""
        return self.max_length + FIRST_POSITION

    @property
    def decoder_width(self):
        """The decoder's feed-forward width."""
        return self.decoder_sizes[2]

    @property
    def decoder_sizes(self):
        """(Layers, heads, feed-forward width) of the decoder."""
        own = self.num_decoder_layers, self.num_decoder_heads, self.decoder_intermediate_dim
        encoders = self.num_layers, self.num_heads, self.intermediate_dim
        return tuple(b if a is None else a for a, b in zip(own, encoders, strict=True))


class BARTCache(NamedTuple):
    """What decoding keeps: the position of the next token, and the blocks' caches."""

    position: PositionCache
    blocks: Any


class BART(ConfiguredModel):
    """Encoder and decoder stacks: token ids in, hidden states out.

    Inputs: `token_ids` (B, S), `padding_mask` (B, S), `decoder_token_ids` (B, T) and
    `decoder_padding_mask` (B, T). Outputs: `encoder_sequence_output` (B, S, D) and
    `decoder_sequence_output` (B, T, D).
    """

    config_class = BARTConfig

    def __init__(self, config, name="bart", **kwargs):
        inputs = {
            "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
            "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask"),
            "decoder_token_ids": keras.Input((None,), dtype="int32", name="decoder_token_ids"),
            "decoder_padding_mask": keras.Input((None,), dtype="bool", name="decoder_padding_mask"),
        }
        embedding = TokenEmbedding(
            config.vocabulary_size,
            config.dim,
            config.scale_embedding,
            initializer=INITIALIZER,
            name="embedding",
        )
        sides = [_side(config, side) for side in ("encoder", "decoder")]
        dropout = Dropout(config.dropout, name="embedding_dropout")
        encoder = TransformerEncoder(
            config.num_layers,
            **_stack(config, config.num_heads, config.intermediate_dim),
            name="encoder",
        )
        num_layers, num_heads, intermediate_dim = config.decoder_sizes
        decoder = TransformerDecoder(
            num_layers, **_stack(config, num_heads, intermediate_dim, cross_attention=True), name="decoder"
        )

        def embed(token_ids, position, norm):
            positions = every_position(token_ids) + FIRST_POSITION
            return dropout(norm(position(embedding(token_ids), positions=positions)))

        encoded = encoder(embed(inputs["token_ids"], *sides[0]), mask=inputs["padding_mask"])
        decoded = decoder(
            embed(inputs["decoder_token_ids"], *sides[1]),
            encoded,
            mask=inputs["decoder_padding_mask"],
            context_mask=inputs["padding_mask"],
        )
        outputs = {"encoder_sequence_output": encoded, "decoder_sequence_output": decoded}
        super().__init__(config, inputs, outputs, name=name, **kwargs)
        self.embedding = self.output_embedding = embedding
        self.encoder_side, self.decoder_side = sides
        self.encoder, self.decoder = encoder, decoder

    def encode(self, token_ids, padding_mask=None):
        """The encoder's output (B, S, D)."""
        position, norm = self.encoder_side
        x = position(self.embedding(token_ids), positions=every_position(token_ids) + FIRST_POSITION)
        return self.encoder(norm(x), mask=padding_mask)

    def read(self):
        """(Inputs, outputs) of a text that both sides read, the decoder a token later, from `start_id` on.

        Inputs: `token_ids` and `padding_mask`, (B, T). Outputs, of the decoder: `sequence_output` (B, T, D)
        and, at the last `end_id`, `pooled_output` (B, D), NaN where there is none. Lewis et al. 2020, 3.1.
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

    def start(self, batch_size, max_length, context):
        """Encode `context` ({"token_ids", "padding_mask"}); a cache to decode `max_length` tokens.

        ValueError if they exceed the configuration's.
        """
        if isinstance(max_length, int) and max_length > self.config.max_length:
            raise ValueError(
                f"The decoder's tokens must be at most {self.config.max_length}; they are {max_length}."
            )
        padding_mask = context.get("padding_mask")
        encoded = self.encode(context["token_ids"], padding_mask)
        blocks = self.decoder.start(batch_size, max_length, encoded, padding_mask)
        return BARTCache(PositionCache.empty(batch_size), blocks)

    def step(self, token_ids, cache, padding_mask=None):
        """The decoder's output (B, T, D) at the next T tokens (B, T), and the new cache."""
        positions, position = cache.position.append(ops.shape(token_ids)[1], padding_mask)
        embed, norm = self.decoder_side
        x = norm(embed(self.embedding(token_ids), positions=positions + FIRST_POSITION))
        x, blocks = self.decoder.step(x, cache.blocks, padding_mask)
        return x, BARTCache(position, blocks)


def _side(config, name):
    """The positions and the norm that follow the tokens' vectors."""
    position = PositionEmbedding(config.num_positions, INITIALIZER, name=f"{name}_position")
    return position, LayerNormalization(config.epsilon, name=f"{name}_embedding_norm")


def _stack(config, num_heads, intermediate_dim, *, cross_attention=False):
    attention = MultiHeadAttention(
        num_heads, dropout=config.attention_dropout, kernel_initializer=INITIALIZER
    )
    return {
        "num_heads": num_heads,
        "intermediate_dim": intermediate_dim,
        "dropout": config.dropout,
        "normalize_first": config.normalize_first,
        "epsilon": config.epsilon,
        "cross_attention": attention if cross_attention else False,
        "attention": attention,
        "feedforward": FeedForward(
            intermediate_dim,
            config.activation,
            kernel_initializer=INITIALIZER,
            dropout=config.activation_dropout,
        ),
    }


# base and large: Lewis et al. 2020, section 2.1 (6 and 12 layers), with BERT's widths. mbart-large: Liu et
# al. 2020, section 2.2; its released model has 250,027 tokens. tiny is this package's own.
BART.sizes = {
    "tiny": BARTConfig(8_000, 256, dim=128, num_layers=2, num_heads=4, intermediate_dim=512),
    "base": BARTConfig(dim=768, num_layers=6, num_heads=12, intermediate_dim=3072),
    "large": BARTConfig(),
    "mbart-large": BARTConfig(250_027, scale_embedding=True, normalize_first=True),
}
