"""GPT-2, the decoder-only Transformer, and GPT-1 and GPT-3 (Radford et al. 2019, "Language Models are
Unsupervised Multitask Learners").

GPT-1 (Radford et al. 2018) is the same model with `normalize_first=False`. GPT-3 (Brown et al. 2020) has
larger sizes; deviates from it in that its layers of sparse attention are dense here. Weights are initialised
as in GPT-2's released code, except that positions are drawn with a deviation of 0.02 as well.
"""

import dataclasses
from typing import Any

from keras_tfm.configs import Config, Depth, Heads, Length, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.embeddings import TokenAndPositionEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import NORMAL
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.text.decoder import DecoderModel
from keras_tfm.models.text.seq2seq import Stack
from keras_tfm.private.keras import change_value


@dataclasses.dataclass(frozen=True)
class GPT2Config(Config):
    """The sizes of a `GPT2`; the defaults are the smallest published model's.

    Args:
        intermediate_dim: the feed-forward width; None for 4 `dim`.
        dropout: the rate for the output of each sub-layer.
        attention_dropout: the rate for the attention weights.
        embedding_dropout: the rate for the embeddings.
        activation: any that `FeedForward` takes.
        normalize_first: whether the norms are at the input of each sub-layer; False for GPT-1.
    """

    vocabulary_size: Size = 50_257
    max_length: Length = 1_024
    num_layers: Depth = 12
    dim: Size = 768
    num_heads: Heads = 12
    intermediate_dim: Size | None = None
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.1
    embedding_dropout: Rate = 0.1
    activation: str = "gelu_tanh"
    normalize_first: bool = True
    epsilon: Rate = 1e-5


class GPT2(DecoderModel):
    """GPT-2: token ids in, hidden states out, every position attending to those before it.

    Inputs: `token_ids`, `padding_mask` and `segment_ids`, each (B, T), and output `sequence_output` (B, T, D)
    are as in `DecoderModel`.

    >>> model = keras_tfm.models.GPT2.from_size("tiny", vocabulary_size=100)
    >>> model({"token_ids": np.array([[1, 2, 3]])})["sequence_output"].shape
    TensorShape([1, 3, 128])
    """

    config_class = GPT2Config

    def __init__(self, config: GPT2Config, name: str = "gpt2", **kwargs: Any) -> None:
        embedding = TokenAndPositionEmbedding(
            config.vocabulary_size, config.max_length, config.dim, initializer=NORMAL, name="embedding"
        )
        decoder, dropout = (
            stack_of(config, embedding),
            Dropout(config.embedding_dropout, name="embedding_dropout"),
        )
        super().__init__(config, decoder, embedding, dropout, config.max_length, name=name, **kwargs)
        shrink_residuals(decoder.blocks)


def stack_of(config, embedding, prefix="", cross_attention=False, norm=LayerNormalization):
    """The causal blocks, whose names begin with `prefix`; with cross-attention they attend to a context."""
    return Stack(
        lambda token_ids, positions=None: embedding(token_ids, positions=positions),
        [_block(config, f"{prefix}block_{i}", cross_attention, norm) for i in range(config.num_layers)],
        norm(config.epsilon, name=f"{prefix}norm") if config.normalize_first else None,
    )


def shrink_residuals(blocks):
    """Section 2.3: smaller first weights for what is added to the residual, the more `blocks` there are."""
    for block in blocks:
        for part in block.parts.values():
            kernel = part.branch.output_projection.kernel
            change_value(kernel, lambda value: value / (2 * len(blocks)) ** 0.5)


def _block(config, name, cross_attention, norm):
    part = residuals(config.dropout, config.epsilon, norm, normalize_first=config.normalize_first)

    def attention():
        dropout = config.attention_dropout
        return MultiHeadAttention(config.num_heads, dropout=dropout, kernel_initializer=NORMAL)

    width = config.intermediate_dim or 4 * config.dim
    feedforward = FeedForward(width, config.activation, kernel_initializer=NORMAL)
    context = attention() if cross_attention else None
    branches = {"attention": attention(), "context_attention": context, "feedforward": feedforward}
    return block_of(part, name, causal=True, **branches)


# gpt1: Radford et al. 2018, section 4.1. gpt2-*: Radford et al. 2019, table 2. The numbers of weights there,
# "117M" to "1542M", count the embeddings in another way; here they are 124, 355, 774 and 1,558 million.
# gpt3-*: Brown et al. 2020, table 2.1, with the numbers of weights given there, 125 M, 350 M, ... Where that
# table's width and heads do not fit together (xl, 13b), heads of width 128 are used.
GPT2.sizes = {
    "tiny": GPT2Config(8_000, 256, num_layers=4, dim=128, num_heads=4),
    "gpt1": GPT2Config(40_478, 512, normalize_first=False),
    "gpt2": GPT2Config(),
    "gpt2-medium": GPT2Config(num_layers=24, dim=1024, num_heads=16),
    "gpt2-large": GPT2Config(num_layers=36, dim=1280, num_heads=20),
    "gpt2-xl": GPT2Config(num_layers=48, dim=1600, num_heads=25),
    "gpt3-small": GPT2Config(max_length=2048),
    "gpt3-medium": GPT2Config(max_length=2048, num_layers=24, dim=1024, num_heads=16),
    "gpt3-large": GPT2Config(max_length=2048, num_layers=24, dim=1536, num_heads=16),
    "gpt3-xl": GPT2Config(max_length=2048, num_layers=24, dim=2048, num_heads=16),
    "gpt3-2.7b": GPT2Config(max_length=2048, num_layers=32, dim=2560, num_heads=32),
    "gpt3-6.7b": GPT2Config(max_length=2048, num_layers=32, dim=4096, num_heads=32),
    "gpt3-13b": GPT2Config(max_length=2048, num_layers=40, dim=5120, num_heads=40),
    "gpt3-175b": GPT2Config(max_length=2048, num_layers=96, dim=12288, num_heads=96),
}
