"""FNet, the encoder of Lee-Thorp et al. 2022, "FNet: Mixing Tokens with Fourier Transforms".

BERT with a Fourier transform without weights in place of attention (section 3.2). As in the authors' code the
embeddings are projected once more, of which the paper's text says nothing, and no dropout acts on what the
transform adds. Deviates in that dropout acts before that projection, not after it.
"""

import dataclasses

import keras

from keras_tfm.configs import Config, Depth, Length, Rate, Size, Whole
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.mixing import FourierMixing
from keras_tfm.models.base import states_of
from keras_tfm.models.text.encoder import INITIALIZER, EncoderModel


@dataclasses.dataclass(frozen=True)
class FNetConfig(Config):
    """`dropout` acts on the embeddings and on what each feed-forward layer adds. Without `pooler` there is no
    pooled output, and none of its weights.
    """

    vocabulary_size: Size = 32_000
    num_layers: Depth = 12
    dim: Size = 768
    intermediate_dim: Size = 3072
    max_length: Length = 512
    num_segments: Whole = 4
    dropout: Rate = 0.1
    activation: str = "gelu_tanh"
    epsilon: Rate = 1e-12
    pooler: bool = True


class FNet(EncoderModel):
    """Token ids in, hidden states out, every position mixed with all.

    Inputs: `token_ids`, `padding_mask` and, where there are several segments, `segment_ids`, (B, T) each.
    Padding is mixed in as tokens are, as in the authors' code: the mask is for heads that pool, and answers
    depend on how far a batch is padded. Outputs: `sequence_output` (B, T, D) and `pooled_output` (B, D), a
    tanh layer over the first token, [CLS].
    """

    config_class = FNetConfig

    @classmethod
    def encode(cls, config, x, mask):
        """The blocks see all positions, whatever the `mask`."""
        projection = keras.layers.Dense(config.dim, kernel_initializer=INITIALIZER.clone(), name="projection")
        blocks = [cls.block(config, f"block_{i}") for i in range(config.num_layers)]
        return blocks, states_of(blocks, projection(x))

    @classmethod
    def block(cls, config, name):
        """A block that normalises each sum."""
        mixing, part = (residuals(False, rate, config.epsilon) for rate in (0.0, config.dropout))
        feedforward = FeedForward(config.intermediate_dim, config.activation, kernel_initializer=INITIALIZER)
        return Block(mixing(FourierMixing()), part(feedforward), name=name)


# Lee-Thorp et al. 2022, section 4.1 and table 1; the published models have the vocabulary of 32,000 pieces.
FNet.sizes = {
    "base": FNetConfig(),
    "large": FNetConfig(num_layers=24, dim=1024, intermediate_dim=4096),
}
