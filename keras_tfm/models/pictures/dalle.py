"""DALL-E's Transformer (Ramesh et al. 2021, "Zero-Shot Text-to-Image Generation", section 2.2): one decoder
of a text and of its picture's codes.

One causal decoder reads a text, then writes the codes of a picture line by line. Tokens of the text see all
before them; the picture's tokens see all of the text and, in most blocks, a row, a column or a neighbourhood
of the picture. `heads.TextToCodes` predicts what follows each token. Deviates from the paper in that it has
no gradient scales, which float16 needed there; what the paper does not say (norms, biases) is as in GPT-2.
"""

import dataclasses
from typing import Any, Literal

from keras import ops

from keras_tfm.configs import Config, Count, Depth, FieldError, Heads, Length, Rate, Size
from keras_tfm.inputs import refuse_outside
from keras_tfm.layers.attention.patterns import GridPattern, PatternAttention
from keras_tfm.layers.attention.projections import HeadProjections
from keras_tfm.layers.base import SameShape, copy_of
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import TokenAndPositionEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import NORMAL
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.positions import outside_is_nan
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.pictures.decoder import PictureDecoder
from keras_tfm.models.text.seq2seq import Stack

Kind = Literal["full", "row", "column", "convolution"]


@dataclasses.dataclass(frozen=True)
class DALLEConfig(Config):
    """The sizes of a `DALLE`; the defaults are the published model's.

    Args:
        text_vocabulary_size: the ids of texts, of which 0 is padding.
        text_length: of every text, after padding.
        num_codes: how many different codes a picture has.
        grid: (rows, columns) of its codes.
        key_dim: the width of a head; None for `dim` / `num_heads`.
        intermediate_dim: the feed-forward width; None for 4 `dim`.
        kinds: what the picture's tokens see in the blocks, repeated over all of them.
        last_kind: what they see in the last block; None for the next of `kinds`.
        kernel_size: the side of the neighbourhood of the kind "convolution".
        gated: whether the feed-forward layers are gated.
        use_bias: whether queries, keys and values have biases.
        layer_scale: the first value of the learned factors of each branch; None for no factors.
    """

    text_vocabulary_size: Count = 16_384
    text_length: Length = 256
    num_codes: Count = 8_192
    grid: tuple[Length, Length] = (32, 32)
    num_layers: Depth = 64
    dim: Size = 3_968
    num_heads: Heads = 62
    key_dim: Size | None = None
    intermediate_dim: Size | None = None
    kinds: tuple[Kind, ...] = ("row", "column", "row", "row")
    last_kind: Kind | None = "convolution"
    kernel_size: Count = 11
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.1
    gated: bool = False
    use_bias: bool = True
    layer_scale: float | None = None
    epsilon: Rate = 1e-5

    def __post_init__(self):
        super().__post_init__()
        if not self.kinds:
            raise FieldError("{kinds} must have at least one kind; it is empty.")

    @property
    def num_text_tokens(self):
        """The text's ids, and one of padding for each place."""
        return self.text_vocabulary_size + self.text_length

    @property
    def vocabulary_size(self):
        """The tokens of texts, then the codes."""
        return self.num_text_tokens + self.num_codes

    @property
    def max_length(self):
        """The tokens of text and picture: the first, which begins the sequence, and all but the last."""
        return self.text_length + self.grid[0] * self.grid[1]

    def kind(self, index):
        """What tokens see in the block of this number."""
        if self.last_kind is not None and index == self.num_layers - 1:
            return self.last_kind
        return self.kinds[index % len(self.kinds)]


class DALLE(PictureDecoder):
    """Tokens of a text and of its picture in, hidden states out, every position attending to earlier ones.

    Input: `token_ids` (B, T), as `tokens_of` makes them, T at most `config.max_length`. Output:
    `sequence_output` (B, T, D).

    >>> model = keras_tfm.models.DALLE.from_size("tiny")
    >>> text, codes = np.array([[5, 6, 7] + [0] * 13]), np.zeros((1, 8, 8), int)
    >>> model({"token_ids": model.tokens_of(text, codes)[:, :-1]})["sequence_output"].shape
    TensorShape([1, 80, 128])
    """

    config_class = DALLEConfig

    def __init__(self, config: DALLEConfig, name: str = "dalle", **kwargs: Any) -> None:
        embedding = TokenAndPositionEmbedding(
            config.vocabulary_size,
            config.max_length,
            config.dim,
            position=TextAndGridPosition(config.text_length + 1, config.grid, NORMAL),
            initializer=NORMAL,
            name="embedding",
        )
        decoder = Stack(
            lambda token_ids, positions=None: embedding(token_ids, positions=positions),
            [_block(config, i) for i in range(config.num_layers)],
            LayerNormalization(config.epsilon, name="norm"),
        )
        dropout = Dropout(config.dropout, name="embedding_dropout")
        super().__init__(config, decoder, embedding, dropout, config.max_length, name=name, **kwargs)

    def tokens_of(self, text_ids, code_ids=None):
        """One sequence (B, 1 + L + N) for texts (B, L) and codes (B, rows, columns) or (B, N).

        It begins with 0. Padding of the text, which is 0, becomes a token of its place; codes count after the
        text's tokens. A prompt is a text without codes, or with the first of them. ValueError for texts of
        another length, and for ids outside their tables.
        """
        config = self.config
        text_ids = ops.convert_to_tensor(text_ids, "int32")
        if text_ids.shape[1] != config.text_length:
            raise ValueError(
                f"`text_ids` must be (B, {config.text_length}), 0 at padding; their shape is "
                f"{tuple(text_ids.shape)}."
            )
        padding = config.text_vocabulary_size + ops.arange(config.text_length, dtype="int32")
        refuse_outside(text_ids, config.text_vocabulary_size, "text_ids")
        text_ids = ops.pad(ops.where(text_ids == 0, padding, text_ids), ((0, 0), (1, 0)))  # (B, 1 + L)
        if code_ids is None:
            return text_ids
        code_ids = ops.convert_to_tensor(code_ids, "int32")
        refuse_outside(code_ids, config.num_codes, "code_ids")
        code_ids = ops.reshape(code_ids, (ops.shape(code_ids)[0], -1))  # (B, N)
        return ops.concatenate([text_ids, code_ids + config.num_text_tokens], axis=1)

    def forget_text(self, token_ids, positions):
        """The tokens (B, T) at these positions (B, T), with padding in place of the text."""
        is_text = (positions > 0) & (positions <= self.config.text_length)
        return ops.where(is_text, self.config.text_vocabulary_size + positions - 1, token_ids)

    def codes_in(self, token_ids):
        """The codes (B, rows, columns) at the end of whole sequences (B, 1 + L + rows columns)."""
        codes = token_ids[:, 1 + self.config.text_length :] - self.config.num_text_tokens
        return ops.reshape(codes, (-1, *self.config.grid))  # (B, rows, columns)


class TextAndGridPosition(SameShape):
    """Adds to x (B, T, D) a vector for each place of the text, then of each row and column of the picture."""

    def __init__(self, text_length, grid, initializer="uniform", **kwargs):
        super().__init__(**kwargs)
        self.text_length = text_length
        self.grid = tuple(grid)
        self.initializer = initializer

    def build(self, x_shape, positions_shape=None):
        self.text, self.rows, self.columns = (
            self.add_weight((size, x_shape[-1]), copy_of(self.initializer), name=name)
            for name, size in (("text", self.text_length), ("rows", self.grid[0]), ("columns", self.grid[1]))
        )

    def call(self, x, positions=None):
        """`positions` are (T,) or (B, T), by default 0 .. T-1; outside the tables the result is NaN."""
        if positions is None:
            positions = ops.arange(ops.shape(x)[1], dtype="int32")
        last = self.text_length - 1
        place = ops.maximum(positions - self.text_length, 0)
        of_text = ops.take(self.text, ops.minimum(positions, last), axis=0)
        of_rows = ops.take(self.rows, ops.minimum(place // self.grid[1], self.grid[0] - 1), axis=0)
        of_grid = of_rows + ops.take(self.columns, place % self.grid[1], axis=0)
        chosen = ops.where((positions <= last)[..., None], of_text, of_grid)
        size = self.text_length + self.grid[0] * self.grid[1]
        return x + ops.cast(chosen, x.dtype) + outside_is_nan(positions, size, x.dtype)


def _block(config, index):
    columns = config.grid[1]
    pattern = GridPattern(config.kind(index), columns, config.text_length + 1, config.kernel_size)
    projections = HeadProjections(
        config.num_heads, config.key_dim, use_bias=config.use_bias, kernel_initializer=NORMAL
    )
    output = Dense(config.dim, kernel_initializer=NORMAL.clone(), name="output")
    attention = PatternAttention(projections, pattern, config.attention_dropout, output)
    width = config.intermediate_dim or 4 * config.dim
    feedforward = FeedForward(width, "gelu", kernel_initializer=NORMAL, gated=config.gated)
    options = {"normalize_first": True, "layer_scale": config.layer_scale}
    part = residuals(config.dropout, config.epsilon, **options)
    return block_of(part, f"block_{index}", causal=True, attention=attention, feedforward=feedforward)


# dall-e: Ramesh et al. 2021, section 2.2, of 12 billion weights.
DALLE.sizes = {
    "tiny": DALLEConfig(128, 16, 64, (8, 8), num_layers=4, dim=128, num_heads=4, kernel_size=3),
    "dall-e": DALLEConfig(),
}
