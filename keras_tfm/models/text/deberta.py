"""DeBERTa (He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention").

BERT's blocks with disentangled attention (section 3.1). Versions 2 and 3 (He et al. 2023, "DeBERTaV3") put
distances into buckets, normalise their table and use the projections of the contents for them; the models of
version 2 add a convolution next to the first block. The enhanced mask decoder for pre-training (section 3.2)
is `keras_tfm.heads.EnhancedMaskedLM`. transformers leaves it out, and so does `MaskedLM`, whose head reads
the last hidden states.
"""

import dataclasses

import keras
from keras import ops

from keras_tfm.configs import Length, Rate, Size, Whole
from keras_tfm.layers.attention.disentangled import DisentangledAttention, DistanceEmbedding
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.embeddings import TokenAndPositionEmbedding, TokenEmbedding
from keras_tfm.layers.empty_batch import never_empty
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.masks import key_mask_of
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.text.encoder import EncoderConfig, EncoderModel, encoder_block


@dataclasses.dataclass(frozen=True)
class DeBERTaConfig(EncoderConfig):
    """The sizes of a `DeBERTa`; the defaults give version 3's base model.

    Args:
        embedding_dim: the width of the embeddings; None for `dim`.
        absolute_positions: whether absolute positions are added to the tokens.
        position_terms: `terms` of `DisentangledAttention`.
        max_distance: the largest distance with a vector of its own; None for `max_length`.
        num_buckets: the buckets for distances; 0 for one row per distance.
        normalize_distances: whether the table of distances is layer-normalised.
        share_projections: as in `DisentangledAttention`, like `key_bias`.
        convolution: the kernel size of the convolution next to the first block; 0 for none.
        dropout: the rate for the embeddings, the distances and the output of each sub-layer.
    """

    vocabulary_size: Size = 128_100
    num_segments: Whole = 0
    embedding_dim: Size | None = None
    absolute_positions: bool = False
    position_terms: tuple[str, ...] = ("p2c", "c2p")
    max_distance: Length | None = None
    num_buckets: Whole = 256
    normalize_distances: bool = True
    share_projections: bool = True
    key_bias: bool = True
    convolution: Whole = 0
    convolution_activation: str = "tanh"
    epsilon: Rate = 1e-7

    @property
    def embedding_width(self):
        """The width of the token embeddings."""
        return self.embedding_dim or self.dim


class ConvolutionBranch(SameShape):
    """norm(y + activation(convolution(x))), for embeddings x and the first block's output y, both (B, T, D).

    From the released code of version 2. The convolution has a kernel of `width` positions and reads zeros at
    padding.
    """

    def __init__(self, width, activation="tanh", dropout=0.0, epsilon=1e-7, **kwargs):
        super().__init__(**kwargs)
        if width % 2 == 0:
            raise ValueError(f"`convolution` must be odd, or 0 for none; it is {width}.")
        self.width = width
        self.activation = activation
        self.dropout = dropout
        self.epsilon = epsilon
        self.inner_dropout = Dropout(dropout, name="dropout")

    def build(self, x_shape):
        self.convolution = keras.layers.Conv1D(
            x_shape[-1],
            self.width,
            padding="same",
            kernel_initializer=TRUNCATED.clone(),
            name="convolution",
        )
        self.convolution.build(x_shape)
        self.norm = LayerNormalization(self.epsilon, name="norm")
        self.norm.build(x_shape)

    def call(self, x, y, mask, training=None):
        """(B, T, D) -> (B, T, D); `mask` (B, T) is False at padding."""
        is_token = ops.cast(mask, x.dtype)[..., None]  # (B, T, 1)
        x = self.inner_dropout(never_empty(self.convolution, x * is_token), training=training)
        return self.norm(y + activation_of(self.activation)(x))

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)


class DeBERTa(EncoderModel):
    """DeBERTa: token ids in, hidden states out, every position attending to all by content and by distance.

    Inputs: `token_ids`, `padding_mask` and, with several segments, `segment_ids`, each (B, T). Output:
    `sequence_output` (B, T, D).

    >>> config = keras_tfm.models.DeBERTaConfig(100, num_layers=1, dim=16, num_heads=2, intermediate_dim=32)
    >>> keras_tfm.models.DeBERTa(config)({"token_ids": np.array([[1, 2, 3]])})["sequence_output"].shape
    TensorShape([1, 3, 16])
    """

    config_class = DeBERTaConfig

    @classmethod
    def embed(cls, config, inputs):
        """Embeddings that may be narrower than the model; positions only if the configuration asks
        for them.
        """
        embedding = _embedding(config)
        segments = {"segment_ids": inputs["segment_ids"]} if "segment_ids" in inputs else {}
        x = embedding(inputs["token_ids"], **segments)
        if config.embedding_width != config.dim:
            x = keras.layers.Dense(
                config.dim,
                use_bias=False,
                kernel_initializer=TRUNCATED.clone(),
                name="embedding_projection",
            )(x)
        return embedding, x

    @classmethod
    def encode(cls, config, x, mask, trace):
        """All blocks get the vectors of the distances; a convolution may stand next to the first."""
        distances = distances_of(config, x)
        first, *others = (cls.block(config, f"block_{i}") for i in range(config.num_layers))
        tensors = {"mask": mask, "bias": distances}
        y = trace.run("encoder", [first], x, attention=tensors)
        if config.convolution:
            y = ConvolutionBranch(
                config.convolution,
                config.convolution_activation,
                config.dropout,
                config.epsilon,
                name="convolution",
            )(x, y, mask)
            trace.hidden_states["encoder"][-1] = y
        return trace.run("encoder", others, y, attention=tensors)

    def decode(self, query, hidden):
        """The last block, attending from `query` to `hidden` at the same positions: (B, T, D) each."""
        distances = self.get_layer("distances").output if self.config.position_terms else None
        tensors = {"context": hidden, "mask": self.input["padding_mask"], "bias": distances}
        return self.blocks["encoder"][-1](query, attention=tensors)

    @classmethod
    def block(cls, config, name):
        """BERT's block with disentangled attention."""
        attention = DisentangledAttention(
            config.num_heads,
            config.position_terms,
            config.share_projections,
            config.key_bias,
            config.attention_dropout,
            config.dropout,
            TRUNCATED,
        )
        return encoder_block(config, attention, name)


def distances_of(config, x):
    """The vectors (2T, D) of all distances in a sequence `x` (B, T, D); None without positional terms."""
    if not config.position_terms:
        return None
    return DistanceEmbedding(
        config.dim,
        config.max_distance or config.max_length,
        config.num_buckets,
        config.epsilon if config.normalize_distances else None,
        TRUNCATED,
        name="distances",
    )(x)


def _embedding(config):
    """The token embedding, with segments and absolute positions if the configuration has them."""
    if config.num_segments == 0 and not config.absolute_positions:
        return TokenEmbedding(
            config.vocabulary_size, config.embedding_width, initializer=TRUNCATED, name="embedding"
        )
    position = None if config.absolute_positions else NoPosition(name="position")
    return TokenAndPositionEmbedding(
        config.vocabulary_size,
        config.max_length,
        config.embedding_width,
        config.num_segments,
        position=position,
        initializer=TRUNCATED,
        name="embedding",
    )


class NoPosition(SameShape):
    """Returns `x` as it is: in place of positions, where there are segments but no positions."""

    def call(self, x, positions=None):
        """Any shape in, the same out."""
        return x


def _sizes(config):
    """(base, large) of a version."""
    return config, dataclasses.replace(config, num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096)


V1 = DeBERTaConfig(  # one row per distance, separate projections for them, and no biases of keys
    50_265, num_buckets=0, normalize_distances=False, share_projections=False, key_bias=False
)
V2_XLARGE = DeBERTaConfig(
    num_layers=24,
    dim=1536,
    num_heads=24,
    intermediate_dim=6144,
    convolution=3,
    convolution_activation="gelu",
)

# Version 1: He et al. 2021, table 8. Version 2: the models released with that paper's code. Version 3: He et
# al. 2023, section 5.
DeBERTa.sizes = {
    **dict(zip(("v1-base", "v1-large"), _sizes(V1), strict=True)),
    "v2-xlarge": V2_XLARGE,
    "v2-xxlarge": dataclasses.replace(V2_XLARGE, num_layers=48),
    "v3-xsmall": DeBERTaConfig(dim=384, num_heads=6, intermediate_dim=1536),
    "v3-small": DeBERTaConfig(num_layers=6),
    **dict(zip(("v3-base", "v3-large"), _sizes(DeBERTaConfig()), strict=True)),
}
