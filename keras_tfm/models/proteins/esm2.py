"""ESM-2 (Lin et al. 2023, "Evolutionary-scale prediction of atomic-level protein structure with a language
model"): an encoder of the residues of a protein, which predicts masked residues.

    tokens --> x 0.88 / (share that is not masked) --> blocks --> norm

Blocks normalise first and have rotary positions. The vector of a masked token is 0, and the others are
scaled as by dropout, so that they sum to as much as in training, where 0.15 x 0.8 are masked. A logistic
regression on attention weights says which residues touch (Rao et al. 2021, "Transformer protein language
models are unsupervised structure learners"); it is not trained here. Weights and numbers equal
transformers' EsmModel with rotary positions; ESM-1b, which has learned ones, is not read.
"""

import dataclasses
from typing import Annotated, Any

import keras
from keras import ops

from keras_tfm.configs import Between, Config, Depth, Heads, Length, Rate, Size, TokenId
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.attention.positions import RotaryEmbedding
from keras_tfm.layers.attention.tap import recording
from keras_tfm.layers.base import Layer, SameShape
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.text.encoder import token_inputs

VOCABULARY = ("<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>")
MASKED = 0.15 * 0.8  # the share of tokens that are masked in training
END = 2  # <eos>, whose attention says nothing of contacts


@dataclasses.dataclass(frozen=True)
class ESM2Config(Config):
    """The sizes of an `ESM2`; the defaults are the model's of 650 M weights.

    Args:
        max_length: the longest protein in training, with its two special tokens.
        pad_id: the token id of padding.
        mask_id: the token id of a masked residue.
        token_dropout: whether masked tokens are vectors of 0, and others scaled.
        embedding_norm: whether the vectors of tokens are normalised.
        pooler: whether there is a pooled output; the released models have none.
        rotary_base: the base of the positions' frequencies.
        dropout: the rate for what each branch adds.
        attention_dropout: the rate for the attention weights.
    """

    vocabulary_size: Size = 33
    num_layers: Depth = 33
    dim: Size = 1280
    num_heads: Heads = 20
    intermediate_dim: Size = 5120
    max_length: Length = 1026
    pad_id: TokenId = 1
    mask_id: TokenId = 32
    token_dropout: bool = True
    embedding_norm: bool = False
    pooler: bool = False
    rotary_base: Annotated[float, Between(1)] = 10_000.0
    dropout: Rate = 0.0
    attention_dropout: Rate = 0.0
    activation: str = "gelu"
    epsilon: Rate = 1e-5


class ESM2(ConfiguredModel):
    """Token ids of residues in, hidden states out, every position attending to all.

    Inputs: `token_ids` and `padding_mask`, (B, T) each. Outputs: `sequence_output` (B, T, D) and, with a
    pooler, `pooled_output` (B, D), a tanh layer on the first token. `contacts` says which residues touch.

    >>> model = keras_tfm.models.ESM2.from_size("tiny")
    >>> inputs = {"token_ids": np.array([[0, 20, 11, 32, 2]])}  # <cls> M T <mask> <eos>
    >>> model(inputs)["sequence_output"].shape, model.contacts(inputs).shape
    (TensorShape([1, 5, 64]), TensorShape([1, 3, 3]))
    """

    config_class = ESM2Config

    def __init__(self, config: ESM2Config, name: str = "esm2", **kwargs: Any) -> None:
        inputs, trace = token_inputs(), Trace()
        embedding, states = esm2_states(config, trace, inputs["token_ids"], inputs["padding_mask"])
        outputs = {"sequence_output": states[-1]}
        if config.pooler:
            dense = keras.layers.Dense(
                config.dim, "tanh", kernel_initializer=TRUNCATED.clone(), name="pooler"
            )
            outputs["pooled_output"] = dense(states[-1][:, 0])
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self.embedding = embedding
        self.contact_head = ContactHead(name="contact_head")
        self.contact_head.build((None, config.num_layers * config.num_heads, None, None))

    def contacts(self, inputs: dict[str, Any]) -> Any:
        """The probabilities (B, T - 2, T - 2) that residues touch, for `token_ids` (B, T) between <cls> and
        <eos>, and `padding_mask`.
        """
        maps: list = []
        with recording(lambda _, weights: maps.append(weights)):
            self(inputs)
        token_ids = ops.convert_to_tensor(inputs["token_ids"])
        seen = ops.not_equal(token_ids, END)
        if "padding_mask" in inputs:
            seen = seen & ops.cast(inputs["padding_mask"], "bool")
        return self.contact_head(ops.concatenate(maps, axis=1), seen)


def esm2_states(config, trace, token_ids, mask, part=None):
    """(The embedding layer, [the first block's input, ..., the last block's output normalised]), symbols.

    As `part` of another model its name names the stack of blocks, and begins the names of all layers.
    """
    stack, prefix = (part, f"{part}_") if part else ("encoder", "")
    embedding = TokenEmbedding(
        config.vocabulary_size, config.dim, initializer=TRUNCATED, name=f"{prefix}embedding"
    )
    x = embedding(token_ids)
    if config.token_dropout:
        x = MaskedTokens(config.mask_id, name=f"{prefix}masked_tokens")(x, token_ids, mask)
    if config.embedding_norm:
        x = LayerNormalization(config.epsilon, name=f"{prefix}embedding_norm")(x)
    blocks = [esm2_block(config, f"{prefix}block_{i}") for i in range(config.num_layers)]
    x = trace.run(stack, blocks, x, attention={"mask": mask})
    x = LayerNormalization(config.epsilon, name=f"{prefix}norm")(x)
    return embedding, [*trace.hidden_states[stack][:-1], x]


def esm2_block(config, name):
    """A block that normalises first, with rotary positions."""
    part = residuals(config.dropout, config.epsilon, normalize_first=True)
    attention = MultiHeadAttention(
        config.num_heads,
        dropout=config.attention_dropout,
        position=RotaryEmbedding(config.rotary_base),
        kernel_initializer=TRUNCATED,
    )
    feedforward = FeedForward(config.intermediate_dim, config.activation, kernel_initializer=TRUNCATED)
    return block_of(part, name, attention=attention, feedforward=feedforward)


class MaskedTokens(SameShape):
    """Vectors x (B, T, D), 0 at masked tokens, the others times 1 - `MASKED` over the share of a row that is
    not masked. `token_ids` and `padding_mask` are (B, T).
    """

    def __init__(self, mask_id: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mask_id = mask_id

    def call(self, x, token_ids, padding_mask):
        """(B, T, D) -> (B, T, D)."""
        is_masked = ops.equal(token_ids, self.mask_id)
        length, visible = (
            ops.sum(ops.cast(flags, "float32"), axis=1) for flags in (padding_mask, padding_mask & ~is_masked)
        )  # (B,)
        scale = (1 - MASKED) * length / ops.maximum(visible, 1.0)
        scale = ops.where(is_masked, 0.0, scale[:, None])  # (B, T)
        return x * ops.cast(scale, x.dtype)[..., None]


class ContactHead(Layer):
    """The probabilities (B, T - 2, T - 2) that residues touch, from weights (B, C, T, T) of all heads.

    Weights of ij and ji are added, less the product of their row's and their column's sums over the sum of
    all; the rest is a logistic regression on the C numbers. What is not `seen` (B, T) counts 0.
    """

    def build(self, maps_shape, seen_shape=None):
        self.kernel = self.add_weight((maps_shape[1], 1), "zeros", trainable=False, name="kernel")
        self.bias = self.add_weight((1,), "zeros", trainable=False, name="bias")

    def call(self, maps, seen):
        """(B, C, T, T), (B, T) -> (B, T - 2, T - 2), in float32."""
        pairs = ops.cast(seen[:, None, :, None] & seen[:, None, None, :], "float32")
        maps = (in_float32(maps) * pairs)[:, :, 1:-1, 1:-1]
        maps = maps + ops.swapaxes(maps, 2, 3)
        rows, columns = (ops.sum(maps, axis=axis, keepdims=True) for axis in (3, 2))
        total = ops.sum(rows, axis=2, keepdims=True)
        expected = ops.where(total > 0, rows * columns / ops.where(total > 0, total, 1.0), 0.0)
        logits = ops.einsum("bcij,cd->bijd", maps - expected, in_float32(self.kernel)) + self.bias
        return ops.sigmoid(logits[..., 0])

    def compute_output_spec(self, maps, seen):
        length = maps.shape[-1] and maps.shape[-1] - 2
        return keras.KerasTensor((maps.shape[0], length, length), "float32")


# Lin et al. 2023, table S1; tiny is this package's own.
ESM2.sizes = {
    "tiny": ESM2Config(num_layers=2, dim=64, num_heads=4, intermediate_dim=256),
    "8m": ESM2Config(num_layers=6, dim=320, intermediate_dim=1280),
    "35m": ESM2Config(num_layers=12, dim=480, intermediate_dim=1920),
    "150m": ESM2Config(num_layers=30, dim=640, intermediate_dim=2560),
    "650m": ESM2Config(),
    "3b": ESM2Config(num_layers=36, dim=2560, num_heads=40, intermediate_dim=10_240),
    "15b": ESM2Config(num_layers=48, dim=5120, num_heads=40, intermediate_dim=20_480),
}
