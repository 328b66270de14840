"""MART (Lei et al. 2020, "MART: Memory-Augmented Recurrent Transformer for Coherent Video Paragraph
Captioning"): a text about a video, a sentence for each of its clips, with a memory from clip to clip.

    [clip | sentence] -> attention -> H --------------> attends to [M, H] -> feed-forward -> ...
    M, the memory of the clips before --+-> attends to H -> gates -> M of the next clip

The memory is an argument and a result, never a variable. The clip's first positions and the sentence's count
from 0 each, and the kinds of both are embedded. A clip does not see its sentence, so that decoding reads it
once and keeps its keys and values. The authors' weights are not read.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Config, Depth, Heads, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer, SameShape
from keras_tfm.layers.blocks import Block, block_of, residuals
from keras_tfm.layers.cache import BlockCache, PositionCache
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import LearnedVectors, TokenEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.masks import masked_mean
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.positions import SinePositionEncoding
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.text.seq2seq import DecoderCache


@dataclasses.dataclass(frozen=True)
class MARTConfig(Config):
    """The sizes of a `MART`.

    Args:
        feature_dim: the width of a clip's features: of appearance, 2,048, and of flow, 1,024.
        word_dim: the width of the tokens' table, GloVe's for example.
        num_memory_cells: the vectors of each block's memory.
    """

    vocabulary_size: Size = 30_000
    feature_dim: Size = 3072
    word_dim: Size = 300
    num_layers: Depth = 2
    dim: Size = 768
    num_heads: Heads = 12
    intermediate_dim: Size = 768
    num_memory_cells: Size = 1
    dropout: Rate = 0.1
    activation: str = "gelu"
    epsilon: Rate = 1e-12

    @property
    def tied(self):
        """Whether a head can share the tokens' table: where it is as wide as the states."""
        return self.word_dim == self.dim


class MART(ConfiguredModel):
    """Features of a clip, the tokens of its sentence and a memory in; the sentence's states and the memory
    for the next clip out.

    Inputs: `features` (B, S, F), floating-point, and `feature_mask` (B, S); `token_ids` (B, T) and
    `padding_mask` (B, T); `memory` (B, L, M, D), of the clip before, and `clip_number` (B,), 0 for a first
    clip, whose memory is made of its own features. Outputs: `sequence_output` (B, T, D), each of which sees
    the clip, the memory and the tokens up to its own, and `memory` (B, L, M, D). `heads.LanguageModel` writes
    a sentence, given the other inputs as `context`; a call with the whole sentence gives the next memory.

    >>> model = keras_tfm.models.MART.from_size("tiny", vocabulary_size=50)
    >>> clip = {"features": np.ones((1, 7, 32)), "token_ids": np.array([[1, 2, 3]])}
    >>> first = model({**clip, "memory": np.zeros((1, 2, 1, 64)), "clip_number": np.array([0])})
    >>> second = model({**clip, "memory": first["memory"], "clip_number": np.array([1])})
    >>> second["sequence_output"].shape, second["memory"].shape
    (TensorShape([1, 3, 64]), TensorShape([1, 2, 1, 64]))
    """

    config_class = MARTConfig

    def __init__(self, config: MARTConfig, name: str = "mart", **kwargs: Any) -> None:
        cells = config.num_layers, config.num_memory_cells, config.dim
        inputs = {
            "features": keras.Input((None, config.feature_dim), name="features"),
            "feature_mask": keras.Input((None,), dtype="bool", name="feature_mask"),
            "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
            "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask"),
            "memory": keras.Input(cells, name="memory"),
            "clip_number": keras.Input((), dtype="int32", name="clip_number"),
        }
        embedding = TokenEmbedding(config.vocabulary_size, config.word_dim, name="embedding")
        place_clip, place_text = placing(config, "video"), placing(config, "text")
        video, text = place_clip(inputs["features"]), place_text(embedding(inputs["token_ids"]))
        is_clip, is_text = inputs["feature_mask"], inputs["padding_mask"]
        mask = ReadingMask(name="mask")(is_clip, is_text)
        is_there = ops.concatenate([is_clip, is_text], axis=1)  # (B, S + T)
        is_clip = ops.concatenate([is_clip, ops.zeros_like(is_text)], axis=1)
        x, trace, memory = ops.concatenate([video, text], axis=1), Trace(), []
        for i in range(config.num_layers):
            attend = residuals(dropout=config.dropout, epsilon=config.epsilon)(attention(config))
            h = Block({"attention": attend}, name=f"attention_{i}")(x, attention={"mask": mask})
            first = FirstMemory(config.num_memory_cells, config.epsilon, name=f"first_memory_{i}")
            own = first(h, is_clip)
            before = memory_before(own, inputs["memory"][:, i], inputs["clip_number"])
            update = MemoryUpdate(config.num_heads, config.dropout, name=f"memory_update_{i}")
            memory.append(update(before, h, is_there))
            block = reading_block(config, f"block_{i}")
            x = trace.run("decoder", [block], h, context_attention=with_memory(before, h, mask))
        x = LastStates(name="sentence")(x, text)
        outputs = {"sequence_output": x, "memory": ops.stack(memory, axis=1)}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self.embedding = self.output_embedding = embedding
        self.place_clip, self.place_text = place_clip, place_text

    def start(self, batch_size: Any, max_length: Any, context: dict[str, Any]) -> DecoderCache:
        """A cache for decoding up to `max_length` tokens about a clip; the `context` has the inputs
        `features`, `memory`, `clip_number` and, if some features only fill up, `feature_mask`.
        """
        if missing := {"features", "memory", "clip_number"} - context.keys():
            names = ", ".join(sorted(missing))
            raise ValueError(f"`context` must have {names}; it has {', '.join(context) or 'nothing'}.")
        features, memory = (
            ops.convert_to_tensor(context[name], self.compute_dtype) for name in ("features", "memory")
        )
        mask = context.get("feature_mask", ops.ones(ops.shape(features)[:2], "bool"))
        x, mask, caches = self.place_clip(features), ops.cast(mask, "bool"), []
        for i, block in enumerate(self.blocks["decoder"]):
            attend, first = (self.get_layer(f"{name}_{i}") for name in ("attention", "first_memory"))
            attention, reading = attend.attention.branch, block.context_attention.branch
            _, *keys = attention.projections.project(x)
            own = filled(attention, keys, mask, max_length)
            h = attend(x, attention={"mask": mask})
            before = memory_before(first(h, mask), memory[:, i], context["clip_number"])
            tensors = with_memory(before, h, mask[:, None])
            keys = reading.projections.project_context(tensors["context"])
            caches.append(BlockCache(own, filled(reading, keys, tensors["mask"][:, 0], max_length)))
            x = block(h, context_attention=tensors)
        return DecoderCache(PositionCache.empty(batch_size), caches)

    def step(self, token_ids: Any, cache: DecoderCache, padding_mask: Any = None) -> tuple[Any, DecoderCache]:
        """The states (B, T, D) of the next T tokens (B, T), and the new cache."""
        positions, position = cache.position.append(ops.shape(token_ids)[1], padding_mask)
        x, caches = self.place_text(self.embedding(token_ids), positions), []
        for i, (block, (own, read)) in enumerate(zip(self.blocks["decoder"], cache.blocks, strict=True)):
            h, (own, _) = self.get_layer(f"attention_{i}").step(x, BlockCache(own), padding_mask)
            x, read = step_reading(block, h, read, padding_mask)
            caches.append(BlockCache(own, read))
        return x, DecoderCache(position, caches)


def placing(config, kind):
    """A function of features or words (B, N, F), and of their positions, by default 0 to N - 1, that gives
    states (B, N, D) with their places and what kind they are.
    """
    norm = LayerNormalization(config.epsilon, name=f"{kind}_norm")
    dropout = Dropout(config.dropout, name=f"{kind}_dropout")
    projection = Dense(config.dim, activation="relu", name=f"{kind}_projection")
    projection_norm = LayerNormalization(config.epsilon, name=f"{kind}_projection_norm")
    kinds = LearnedVectors(1, config.dim, name=f"{kind}_kind")
    position = SinePositionEncoding(name=f"{kind}_position")

    def place(x, positions=None):
        x = projection_norm(projection(dropout(norm(x))))
        return position(x + kinds(x), positions=positions)

    return place


def memory_before(own, memory, clip_number):
    """The memory (B, M, D) of the clip before, of the first clip its `own`; `clip_number` is (B,)."""
    return ops.where(ops.equal(clip_number, 0)[:, None, None], own, memory)


def attention(config):
    """Attention with heads of D / H."""
    return MultiHeadAttention(config.num_heads, dropout=config.dropout)


def reading_block(config, name):
    """Attention to the memory and the states, and a feed-forward layer."""
    part = residuals(dropout=config.dropout, epsilon=config.epsilon)
    feedforward = FeedForward(config.intermediate_dim, config.activation)
    return block_of(part, name, context_attention=attention(config), feedforward=feedforward)


def with_memory(memory, x, mask):
    """What `reading_block` attends to: the memory (B, M, D), seen by all, and the states (B, N, D)."""
    cells = ops.ones_like(mask[..., :1])
    cells = ops.repeat(cells, memory.shape[1], axis=-1)  # (B, N, M)
    return {
        "context": ops.concatenate([memory, x], axis=1),
        "mask": ops.concatenate([cells, mask], axis=-1),
    }


def filled(attention, keys, mask, room):
    """The cache of an `attention` layer with these keys and values of N positions, which count where the
    `mask` (B, N) is True, and with room for more.
    """
    batch_size, length = ops.shape(mask)
    return attention.start(batch_size, length + room).append(*keys, mask)


def step_reading(block, x, cache, mask=None):
    """(The output (B, T, D) of a `reading_block` at the next T states `x`, which are among what it attends
    to, the new cache).
    """
    residual = block.context_attention
    attention = residual.branch
    cache = cache.append(*attention.projections.project_context(x), mask)
    (query,) = attention.projections.project_query(residual.before(x))
    y = attention.merge(cache.ungroup(attention.attend(cache.group(query), cache)))
    return block.feedforward(residual.after(x, y)), cache


class ReadingMask(Layer):
    """Who sees whom, of masks (B, S) and (B, T): a clip sees itself; a token the clip, and tokens up to its
    own. (B, S + T, S + T).

            clip   tokens
    clip    1 1 1  . .
    tokens  1 1 1  1 .
            1 1 1  1 1
    """

    def call(self, clip_mask, text_mask):
        is_there = ops.concatenate([clip_mask, text_mask], axis=1)  # (B, N)
        places = ops.arange(ops.shape(is_there)[1])
        is_text = places >= ops.shape(clip_mask)[1]  # (N,)
        later = places[None] > places[:, None]  # (N, N)
        return is_there[:, None] & ~(is_text[None] & later)

    def compute_output_shape(self, clip_shape, text_shape):
        total = None if None in (clip_shape[1], text_shape[1]) else clip_shape[1] + text_shape[1]
        return (clip_shape[0], total, total)

    def compute_output_spec(self, clip_mask, text_mask):
        return keras.KerasTensor(self.compute_output_shape(clip_mask.shape, text_mask.shape), "bool")


class LastStates(Layer):
    """The last T of the states (B, N, D), for a sentence (B, T, D)."""

    def call(self, x, sentence):
        return x[:, ops.shape(x)[1] - ops.shape(sentence)[1] :]

    def compute_output_shape(self, x_shape, sentence_shape):
        return tuple(sentence_shape)


class FirstMemory(Layer):
    """The memory (B, M, D) of a first clip: the mean of the states (B, N, D) where the mask (B, N) is True,
    beside a learned vector for each cell, through a layer and a norm.
    """

    def __init__(self, num_cells: int, epsilon: float = 1e-12, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_cells = num_cells
        self.epsilon = epsilon

    def build(self, x_shape, mask_shape=None):
        dim = x_shape[-1]
        self.cells = self.add_weight((self.num_cells, dim), "random_normal", name="cells")
        self.dense = Dense(dim, name="dense")
        self.norm = LayerNormalization(self.epsilon, name="norm")
        for layer in (self.dense, self.norm):
            layer.build((x_shape[0], self.num_cells, dim))

    def call(self, x, mask):
        mean = ops.cast(masked_mean(x, mask), x.dtype)[:, None]  # (B, 1, D)
        return self.norm(self.dense(mean + ops.cast(self.cells, x.dtype)))

    def compute_output_shape(self, x_shape, mask_shape=None):
        return (x_shape[0], self.num_cells, x_shape[-1])


class MemoryUpdate(SameShape):
    """The next memory of a memory M (B, M, D) and states H (B, N, D): with S = attention(M, H),

    C = tanh(W M + W' S),  Z = sigmoid(U M + U' S),  (1 - Z) C + Z M   (section 3.3 of Lei et al. 2020)
    """

    def __init__(self, num_heads: int, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout = dropout
        self.attention = MultiHeadAttention(num_heads, dropout=dropout)

    def build(self, memory_shape, x_shape=None, mask_shape=None):
        self.attention.build(memory_shape, x_shape)
        for name in ("content", "gate"):
            of_memory = Dense(memory_shape[-1], use_bias=False, name=f"memory_{name}")
            of_states = Dense(memory_shape[-1], name=f"state_{name}")
            setattr(self, of_memory.name, of_memory)
            setattr(self, of_states.name, of_states)
            of_memory.build(memory_shape)
            of_states.build(memory_shape)

    def call(self, memory, x, mask=None, training=None):
        """`mask` (B, N) is True at states that are there."""
        states = self.attention(memory, x, mask=mask, training=training)
        content = ops.tanh(self.memory_content(memory) + self.state_content(states))
        keep = ops.sigmoid(self.memory_gate(memory) + self.state_gate(states))
        return (1 - keep) * content + keep * memory


# base: Lei et al. 2020, section 4.2. tiny is this package's own.
MART.sizes = {
    "tiny": MARTConfig(8_000, 32, 32, num_layers=2, dim=64, num_heads=2, intermediate_dim=128),
    "base": MARTConfig(),
}
