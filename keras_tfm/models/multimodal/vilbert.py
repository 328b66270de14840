"""The two-stream encoder of ViLBERT (Lu et al. 2019, "ViLBERT: Pretraining Task-Agnostic Visiolinguistic
Representations for Vision-and-Language Tasks"), section 2.2.

One stream encodes image regions, the other text tokens, both by BERT's blocks. They are connected by
co-attention: the queries of each stream attend to the keys and values of the other. The embeddings of regions
and tokens are not part of this model.
"""

import dataclasses
from typing import Annotated, Any

import keras

from keras_tfm.configs import Config, Depth, Divides, Rate, Size, Whole
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.multimodal.dual_encoder import SIDES, ImageHeads, TextHeads, sizes_of


@dataclasses.dataclass(frozen=True)
class ViLBERTConfig(Config):
    """The sizes of a `ViLBERT`: of its two streams and of the connections between them.

    Args:
        connection_dim: the width of a connection's queries, keys and values.
        image_connections: for each connection, the number of blocks that the image stream has before it.
        text_connections: the same for the text stream.
        dropout: the rate for the output of each sub-layer and for the attention weights.
        image_activation: the image stream's activation, by default `activation` too.

    Raises:
        ValueError: if the two lists differ in length, decrease, or exceed the number of blocks.
    """

    num_image_layers: Depth = 6
    image_dim: Size = 1024
    num_image_heads: ImageHeads = 8
    image_intermediate_dim: Size = 1024
    num_text_layers: Depth = 12
    text_dim: Size = 768
    num_text_heads: TextHeads = 12
    text_intermediate_dim: Size = 3072
    connection_dim: Size = 1024
    num_connection_heads: Annotated[Size, Divides("connection_dim")] = 8
    image_connections: tuple[Whole, ...] = (0, 1, 2, 3, 4, 5)
    text_connections: tuple[Whole, ...] = (6, 7, 8, 9, 10, 11)
    dropout: Rate = 0.1
    activation: str = "gelu"
    epsilon: Rate = 1e-12
    image_activation: str | None = None

    def __post_init__(self):
        super().__post_init__()
        if len(self.image_connections) != len(self.text_connections):
            counts = len(self.image_connections), len(self.text_connections)
            raise ValueError(
                f"`image_connections` and `text_connections` must have one length; they have {counts}."
            )
        for side in SIDES:
            places, most = getattr(self, f"{side}_connections"), getattr(self, f"num_{side}_layers")
            if list(places) != sorted(places) or any(place > most for place in places):
                raise ValueError(
                    f"`{side}_connections` must rise, to {most} blocks at most; they are {places}."
                )

    @property
    def num_layers(self):
        """The blocks of both streams, connections included."""
        return self.num_image_layers + self.num_text_layers + 2 * len(self.image_connections)


class ViLBERT(ConfiguredModel):
    """ViLBERT's encoder: embedded image regions and text tokens in, hidden states of both streams out.

    Inputs: `image_tokens` (B, S, Di) and `text_tokens` (B, T, Dt), floating-point; `image_mask` (B, S) and
    `text_mask` (B, T), False at padding, by default True everywhere. Outputs: `image_sequence_output`
    (B, S, Di) and `text_sequence_output` (B, T, Dt). `blocks` and `hidden_states` list the blocks of each
    stream in their order, connections included.

    >>> model = keras_tfm.models.ViLBERT.from_size("tiny")
    >>> outputs = model({"image_tokens": np.ones((1, 9, 96)), "text_tokens": np.ones((1, 5, 128))})
    >>> {name: tuple(x.shape) for name, x in outputs.items()}
    {'image_sequence_output': (1, 9, 96), 'text_sequence_output': (1, 5, 128)}
    """

    config_class = ViLBERTConfig

    def __init__(self, config: ViLBERTConfig, name: str = "vilbert", **kwargs: Any) -> None:
        inputs = {
            f"{side}_tokens": keras.Input((None, sizes_of(config, side).dim), name=f"{side}_tokens")
            for side in SIDES
        }
        masks = {side: keras.Input((None,), dtype="bool", name=f"{side}_mask") for side in SIDES}
        x = {side: inputs[f"{side}_tokens"] for side in SIDES}
        trace = Trace({side: [] for side in SIDES}, {side: [x[side]] for side in SIDES})
        first = dict.fromkeys(SIDES, 0)
        ends = zip(config.image_connections, config.text_connections, strict=True)
        for number, places in enumerate([*ends, (config.num_image_layers, config.num_text_layers)]):
            for side, place in zip(SIDES, places, strict=True):
                names = [f"{side}_block_{index}" for index in range(first[side], place)]
                blocks = [stream_block(config, side, name) for name in names]
                x[side] = trace.run(side, blocks, x[side], attention={"mask": masks[side]})
                first[side] = place
            if number < len(config.image_connections):
                before = dict(x)
                for side, other in (SIDES, SIDES[::-1]):
                    block = connection_block(config, side, f"{side}_connection_{number}")
                    tensors = {"context": before[other], "mask": masks[other]}
                    x[side] = trace.run(side, [block], x[side], context_attention=tensors)
        outputs = {f"{side}_sequence_output": x[side] for side in SIDES}
        inputs |= {f"{side}_mask": mask for side, mask in masks.items()}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)


def stream_block(config, side, name):
    """A block of one stream: self-attention and a feed-forward layer, as BERT's."""
    sizes = sizes_of(config, side)
    part = residuals(dropout=config.dropout, epsilon=config.epsilon)
    attention = MultiHeadAttention(sizes.num_heads, dropout=config.dropout)
    return block_of(part, name, attention=attention, feedforward=feedforward_of(config, side))


def feedforward_of(config, side):
    """The feed-forward layer of one stream's blocks and connections."""
    activation = config.image_activation if side == "image" else None
    return FeedForward(sizes_of(config, side).intermediate_dim, activation or config.activation)


def connection_block(config, side, name):
    """A connection's block for one stream, which attends to the other (figure 2b)."""
    part = residuals(dropout=config.dropout, epsilon=config.epsilon)
    heads = config.num_connection_heads
    attention = MultiHeadAttention(heads, config.connection_dim // heads, dropout=config.dropout)
    return block_of(part, name, context_attention=attention, feedforward=feedforward_of(config, side))


# base: Lu et al. 2019, section 3.1, and the released configuration of six connections. tiny is this
# package's own.
ViLBERT.sizes = {
    "tiny": ViLBERTConfig(2, 96, 4, 384, 3, 128, 4, 512, 64, 4, (0, 1), (1, 2)),
    "base": ViLBERTConfig(),
}
