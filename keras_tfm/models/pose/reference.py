"""Non-autoregressive decoding of a pose: what the queries are is a reference pose, all joints at once.

    input tokens ------------------> encoder ----> keys and values
                                                        |
    a reference pose: x, y, z ------> decoder: joints attend to each other, then to the input --> x, y, z

A decoder of texts sees what it wrote before; this one sees a pose that has the same structure as the answer,
such as the mean of all poses. Huang et al. 2020, "Hand-Transformer" and "HOT-Net".
"""

import dataclasses
from typing import Annotated

import keras

from keras_tfm.configs import Between, Config, Depth, Heads, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.models.base import ConfiguredModel, Trace

Joints = Annotated[int, Between(1, 2**12)]  # each attends to all others


@dataclasses.dataclass(frozen=True)
class ReferenceConfig(Config):
    """The Transformer; encoder and decoder have `num_layers` blocks each."""

    num_joints: Joints = 21
    dim: Size = 256
    num_layers: Depth = 6
    num_heads: Heads = 8
    intermediate_dim: Size = 1024
    dropout: Rate = 0.1
    epsilon: Rate = 1e-6


class FromReference(ConfiguredModel):
    """A model that turns tokens and a reference pose into a pose. Abstract.

    Its inputs are `points` and `reference` (B, J, 3), its outputs `encoder_sequence_output` (B, N, D),
    `decoder_sequence_output` (B, J, D) and `joints` (B, J, 3).
    """

    config_class: type[ReferenceConfig]

    def __init__(self, config, points, tokens, **kwargs):
        trace = Trace()
        encoder = [_block(config, "encoder", i) for i in range(config.num_layers)]
        context = trace.run("encoder", encoder, tokens)
        reference = keras.Input((config.num_joints, 3), name="reference")
        x = Dense(config.dim, name="decoder_embedding")(reference)
        x = PositionEmbedding(config.num_joints, TRUNCATED, name="decoder_position")(x)
        decoder = [_block(config, "decoder", i) for i in range(config.num_layers)]
        x = trace.run("decoder", decoder, x, context_attention={"context": context})
        outputs = {
            "encoder_sequence_output": context,
            "decoder_sequence_output": x,
            "joints": Dense(3, name="joints")(x),
        }
        super().__init__(config, {"points": points, "reference": reference}, outputs, trace, **kwargs)


def _block(config, stack, index):
    part = residuals(config.dropout, config.epsilon)
    attention, feedforward = MultiHeadAttention(config.num_heads), FeedForward(config.intermediate_dim)
    context = MultiHeadAttention(config.num_heads) if stack == "decoder" else None
    branches = {"attention": attention, "context_attention": context, "feedforward": feedforward}
    return block_of(part, f"{stack}_block_{index}", **branches)
