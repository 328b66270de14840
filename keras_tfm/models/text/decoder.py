"""What decoder-only Transformers share: the inputs, documents packed into one row, and decoding; and what
those since Llama share: norms without a mean, rotary positions, grouped heads and gated feed-forward layers.
"""

import dataclasses
from typing import Annotated, Any

import keras
from keras import ops

from keras_tfm.configs import Between, Config, Depth, Length, Rate, Size
from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.positions import RotaryEmbedding, check_scaling
from keras_tfm.layers.attention.projections import HeadProjections
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import Block, Residual
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import NORMAL
from keras_tfm.layers.masks import causal_mask
from keras_tfm.layers.normalization import RMSNormalization
from keras_tfm.models.base import Trace
from keras_tfm.models.text.encoder import token_inputs
from keras_tfm.models.text.seq2seq import DecodingModel, Stack


class DecoderModel(DecodingModel):
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


@dataclasses.dataclass(frozen=True)
class RotaryDecoderConfig(Config):
    """The sizes of a `RotaryDecoder`; the defaults are Llama's smallest.

    Args:
        num_key_value_heads: the heads of keys and values; None for as many as of queries.
        key_dim: the width of a head; None for `dim` / `num_heads`.
        rotary_base: the base of the positions' frequencies.
        rotary_scaling: the `scaling` of `RotaryEmbedding`; {} for none.
        tied: whether the output uses the table of the embedding.
    """

    vocabulary_size: Size = 32_000
    max_length: Length = 2_048
    num_layers: Depth = 32
    dim: Size = 4_096
    num_heads: Size = 32
    num_key_value_heads: Size | None = None
    key_dim: Size | None = None
    intermediate_dim: Size = 11_008
    attention_dropout: Rate = 0.0
    rotary_base: Annotated[float, Between(1)] = 10_000.0
    rotary_scaling: dict = dataclasses.field(default_factory=dict)
    activation: str = "silu"
    epsilon: Rate = 1e-6
    tied: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_scaling(self.rotary_scaling or None, "rotary_scaling")

    @property
    def widths(self):
        """The widths of the queries, keys and values of all heads."""
        width = self.key_dim or self.dim // self.num_heads
        shared = (self.num_key_value_heads or self.num_heads) * width
        return self.num_heads * width, shared, shared


class RotaryDecoder(DecoderModel):
    """A decoder as Llama is (Touvron et al. 2023, section 2.2). Abstract."""

    config_class: type[RotaryDecoderConfig]
    has_biases = False  # of queries, keys and values; no other layer has any
    scales_embedding = False  # by sqrt(D)
    has_output_norms = False  # of each branch, beside the norm of its input
    norm_offset = 0.0  # what is added to the factors of a norm

    def __init__(self, config: RotaryDecoderConfig, name: str | None = None, **kwargs: Any) -> None:
        scale = self.scales_embedding
        embedding = TokenEmbedding(
            config.vocabulary_size, config.dim, scale, initializer=NORMAL, name="embedding"
        )
        decoder = Stack(
            lambda token_ids, positions=None: embedding(token_ids),
            [self.block(config, i) for i in range(config.num_layers)],
            self.norm(config, name="norm"),
        )
        name = name or type(self).__name__.lower()
        super().__init__(config, decoder, embedding, max_length=config.max_length, name=name, **kwargs)

    @classmethod
    def block(cls, config, index):
        """The block of this number."""
        attention = Attention(
            HeadProjections(
                config.num_heads,
                config.key_dim,
                use_bias=cls.has_biases,
                kernel_initializer=NORMAL,
                num_key_value_heads=config.num_key_value_heads,
            ),
            RotaryEmbedding(config.rotary_base, config.rotary_scaling or None),
            dropout=config.attention_dropout,
            output_layer=Dense(config.dim, use_bias=False, kernel_initializer=NORMAL.clone(), name="output"),
            **cls.attention_options(config, index),
        )
        feedforward = FeedForward(
            config.intermediate_dim,
            config.activation,
            use_bias=False,
            kernel_initializer=NORMAL,
            gated=True,
        )
        parts = {
            "attention": cls.part(config, attention, causal=True),
            "feedforward": cls.part(config, feedforward),
        }
        return Block(parts, name=f"block_{index}")

    @classmethod
    def attention_options(cls, config, index):
        """More arguments of `Attention` in the block of this number."""
        return {}

    @classmethod
    def part(cls, config, branch, **options):
        """The residual of a `branch`."""
        output_norm = cls.norm(config) if cls.has_output_norms else None
        return Residual(branch, cls.norm(config), "input", output_norm=output_norm, **options)

    @classmethod
    def norm(cls, config, **options):
        """A norm without a mean."""
        return RMSNormalization(config.epsilon, cls.norm_offset, **options)
