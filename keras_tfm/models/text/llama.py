"""Llama, a decoder of norms without a mean, rotary positions and gated feed-forward layers (Touvron et al.
2023, "LLaMA: Open and Efficient Foundation Language Models", section 2.2).

No layer has a bias. From Llama 2 on the large models have fewer heads of keys and values than of queries
(Touvron et al. 2023, "Llama 2"); Llama 3.1 and 3.2 divide slow frequencies of the positions (Grattafiori et
al. 2024, "The Llama 3 Herd of Models", and its released code).
"""

import dataclasses
from typing import Annotated, Any

import keras

from keras_tfm.configs import Between, Config, Depth, Length, Rate, Size
from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.positions import RotaryEmbedding, check_scaling
from keras_tfm.layers.attention.projections import HeadProjections
from keras_tfm.layers.blocks import Block, Residual
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import RMSNormalization
from keras_tfm.models.text.decoder import DecoderModel
from keras_tfm.models.text.seq2seq import Stack

INITIALIZER = keras.initializers.RandomNormal(stddev=0.02)  # as in the released configurations


@dataclasses.dataclass(frozen=True)
class LlamaConfig(Config):
    """The sizes of a `Llama`; the defaults are those of the first paper's smallest model.

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


class Llama(DecoderModel):
    """Llama: token ids in, hidden states out, every position attending to those before it.

    Inputs: `token_ids`, `padding_mask` and `segment_ids`, each (B, T), and output `sequence_output` (B, T, D)
    are those of `DecoderModel`.

    >>> model = keras_tfm.models.Llama.from_size("tiny", vocabulary_size=100)
    >>> model({"token_ids": np.array([[1, 2, 3]])})["sequence_output"].shape
    TensorShape([1, 3, 128])
    """

    config_class = LlamaConfig
    has_biases = False  # of queries, keys and values
    scales_embedding = False

    def __init__(self, config: LlamaConfig, name: str | None = None, **kwargs: Any) -> None:
        scale = self.scales_embedding
        embedding = TokenEmbedding(
            config.vocabulary_size, config.dim, scale, initializer=INITIALIZER, name="embedding"
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
                kernel_initializer=INITIALIZER,
                num_key_value_heads=config.num_key_value_heads,
            ),
            RotaryEmbedding(config.rotary_base, config.rotary_scaling or None),
            dropout=config.attention_dropout,
            output_layer=Dense(
                config.dim, use_bias=False, kernel_initializer=INITIALIZER.clone(), name="output"
            ),
            **cls.attention_options(config, index),
        )
        feedforward = FeedForward(
            config.intermediate_dim,
            config.activation,
            use_bias=False,
            kernel_initializer=INITIALIZER,
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
        """The residual of a `branch`, whose input is normalised."""
        return Residual(branch, cls.norm(config), "input", **options)

    @classmethod
    def norm(cls, config, **options):
        """A norm without a mean."""
        return RMSNormalization(config.epsilon, **options)


# 7b to 65b: Touvron et al. 2023, table 2. 2-*: Touvron et al. 2023, "Llama 2". 3-* and 3.2-*: Grattafiori et
# al. 2024 and the released configurations. tiny is this package's own.
_THREE = LlamaConfig(128_256, 8_192, num_key_value_heads=8, intermediate_dim=14_336, rotary_base=500_000.0,
                     epsilon=1e-5)  # fmt: skip
_LONG = dataclasses.replace(
    _THREE,
    max_length=131_072,
    rotary_scaling={
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8_192,
    },
    intermediate_dim=8_192,
    tied=True,
)
_LARGE: dict[str, Any] = {"num_layers": 80, "dim": 8_192, "num_heads": 64}
Llama.sizes = {
    "tiny": LlamaConfig(8_000, 256, 4, 128, 4, 2, intermediate_dim=344),
    "7b": LlamaConfig(),
    "13b": LlamaConfig(num_layers=40, dim=5_120, num_heads=40, intermediate_dim=13_824),
    "33b": LlamaConfig(num_layers=60, dim=6_656, num_heads=52, intermediate_dim=17_920),
    "65b": LlamaConfig(**_LARGE, intermediate_dim=22_016, epsilon=1e-5),
    "2-7b": LlamaConfig(max_length=4_096, epsilon=1e-5),
    "2-70b": LlamaConfig(
        max_length=4_096, **_LARGE, num_key_value_heads=8, intermediate_dim=28_672, epsilon=1e-5
    ),
    "3-8b": _THREE,
    "3-70b": dataclasses.replace(_THREE, **_LARGE, intermediate_dim=28_672),
    "3.2-1b": dataclasses.replace(_LONG, num_layers=16, dim=2_048, num_heads=32),
    "3.2-3b": dataclasses.replace(_LONG, num_layers=28, dim=3_072, num_heads=24),
}
