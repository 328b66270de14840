"""TimeSformer (Bertasius et al. 2021, "Is Space-Time Attention All You Need for Video Understanding?").

A ViT on the patches of all frames, after one class token. In "divided" attention a patch sees its own place
in all frames, then, with the class token, the other patches of its frame; in "joint" attention all tokens see
each other; in "space" attention each frame is a sequence by itself, and the mean over the frames is
normalised and pooled. Deviates from the authors' code in where dropout and stochastic depth act: after the
linear layer that follows attention along time, not before it.
"""

import dataclasses
from typing import Annotated, Any, Literal

from keras import ops

from keras_tfm.configs import Between
from keras_tfm.layers.attention.axial import DividedAttention
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PatchEncoder
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel, Trace, growing_rates
from keras_tfm.models.vision.images import video_input
from keras_tfm.models.vision.vit import PatchesConfig, attention_of, encoder_block


@dataclasses.dataclass(frozen=True)
class TimeSformerConfig(PatchesConfig):
    """The sizes of a `TimeSformer`.

    Args:
        attention: "divided", "joint" or "space".
        qkv_bias: whether queries, keys and values have biases.
    """

    num_frames: Annotated[int, Between(1, 2**14)] = 8
    attention: Literal["divided", "joint", "space"] = "divided"
    qkv_bias: bool = True


class TimeSformer(ConfiguredModel):
    """TimeSformer: videos in, hidden states out.

    Input: `videos` (B, F, H, W, C), floating-point. Outputs: `sequence_output` (B, F N + 1, D), the class
    token first and then the patches, frame by frame and row by row, and `pooled_output` (B, D), the class
    token's final state. With "space" attention the sequence is the frames' mean (B, N + 1, D), and the states
    of the blocks are (B F, N + 1, D).

    >>> sizes = dict(num_frames=2, image_size=32, num_layers=1, dim=16, num_heads=2, intermediate_dim=32)
    >>> model = keras_tfm.models.TimeSformer.from_size("B/16", **sizes)
    >>> model(np.ones((1, 2, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 9, 16])
    """

    config_class = TimeSformerConfig

    def __init__(self, config: TimeSformerConfig, name: str = "timesformer", **kwargs: Any) -> None:
        num_frames, dim = config.num_frames, config.dim
        videos = video_input(config)
        images = ops.reshape(videos, (-1, *videos.shape[2:]))  # (B F, H, W, C)
        x = PatchEncoder(dim, config.patch_size, name="patch_encoder")(images)  # (B F, N + 1, D)
        x = Dropout(config.dropout, name="embedding_dropout")(x)
        length = x.shape[1]
        if config.attention != "space":
            x = _with_times(config, ops.reshape(x, (-1, num_frames, length, dim)))
        make = _divided_block if config.attention == "divided" else encoder_block
        rates = enumerate(growing_rates(config.stochastic_depth, config.num_layers))
        trace = Trace()
        x = trace.run("encoder", [make(config, rate, f"block_{i}") for i, rate in rates], x)
        if config.attention == "space":
            x = ops.mean(ops.reshape(x, (-1, num_frames, length, dim)), axis=1)  # (B, N + 1, D)
        x = LayerNormalization(config.epsilon, name="norm")(x)
        outputs = {"sequence_output": x, "pooled_output": ops.take(x, 0, axis=1)}
        super().__init__(config, {"videos": videos}, outputs, trace, name=name, **kwargs)


def _with_times(config, x):
    """One class token and the patches with a learned vector for their frame, (B, F N + 1, D), of each frame's
    tokens (B, F, N + 1, D).
    """
    num_frames, length, dim = x.shape[1:]
    places = ops.reshape(ops.transpose(x[:, :, 1:], (0, 2, 1, 3)), (-1, num_frames, dim))  # (B N, F, D)
    places = PositionEmbedding(num_frames, "zeros", name="time")(places)
    places = Dropout(config.dropout, name="time_dropout")(places)
    places = ops.reshape(places, (-1, length - 1, num_frames, dim))
    places = ops.reshape(ops.transpose(places, (0, 2, 1, 3)), (-1, num_frames * (length - 1), dim))
    return ops.concatenate([x[:, 0, :1], places], axis=1)


def _divided_block(config, rate, name):
    """Attention along time and a linear layer, attention along space, and a feed-forward layer."""
    part = residuals(config.dropout, config.epsilon, normalize_first=True, stochastic_depth=rate)
    attention = attention_of(config, config.dropout)
    temporal = Chain([attention_of(config, config.dropout), Dense(config.dim)])
    branches = {
        "temporal_attention": DividedAttention(temporal, "time", config.num_frames, prefix=1),
        "attention": DividedAttention(attention, "space", config.num_frames, prefix=1),
        "feedforward": FeedForward(config.intermediate_dim, config.activation),
    }
    return block_of(part, name, **branches)


# Bertasius et al. 2021, with the sizes of ViT: clips of 8, 16 and 96 frames; HR are larger images.
_BASE = TimeSformerConfig()
TimeSformer.sizes = {
    "B/16": _BASE,
    "B/16-HR": dataclasses.replace(_BASE, image_size=448, num_frames=16),
    "B/16-L": dataclasses.replace(_BASE, num_frames=96),
}
