"""FNet, an encoder without attention (Lee-Thorp et al. 2022, "FNet: Mixing Tokens with Fourier Transforms").

BERT with a Fourier transform, which has no weights, in place of attention (section 3.2). Two details follow
the authors' code instead of the paper's text: the embeddings are projected once more, and no dropout acts on
the output of the transform. Deviates from the code in one: dropout acts before that projection, not after
it.
"""

import dataclasses

import keras

from keras_tfm.configs import Config, Depth, Length, Rate, Size, Whole
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.mixing import FourierMixing
from keras_tfm.models.text.encoder import EncoderModel


@dataclasses.dataclass(frozen=True)
class FNetConfig(Config):
    """The sizes of an `FNet`; the defaults are the base model's.

    Args:
        dropout: the rate for the embeddings and for the output of each feed-forward layer.
        pooler: whether there is a pooled output, with weights of its own.
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
    """FNet: token ids in, hidden states out, every position mixed with all.

    Inputs: `token_ids`, `padding_mask` and, with several segments, `segment_ids`, each (B, T). Outputs:
    `sequence_output` (B, T, D) and `pooled_output` (B, D), a tanh layer on the first token, [CLS].

    As in the authors' code padding is mixed in like any token, so the output depends on how far a batch is
    padded. The mask is only for heads that pool.

    >>> config = keras_tfm.models.FNetConfig(100, num_layers=1, dim=16, intermediate_dim=32)
    >>> keras_tfm.models.FNet(config)({"token_ids": np.array([[1, 2, 3]])})["sequence_output"].shape
    TensorShape([1, 3, 16])
    """

    config_class = FNetConfig

    @classmethod
    def encode(cls, config, x, mask, trace):
        """The blocks mix all positions, whatever the `mask` says."""
        projection = keras.layers.Dense(config.dim, kernel_initializer=TRUNCATED.clone(), name="projection")
        blocks = [cls.block(config, f"block_{i}") for i in range(config.num_layers)]
        return trace.run("encoder", blocks, projection(x))

    @classmethod
    def block(cls, config, name):
        """A block that normalises after each sum."""
        mixing, part = (residuals(rate, config.epsilon) for rate in (0.0, config.dropout))
        feedforward = FeedForward(config.intermediate_dim, config.activation, kernel_initializer=TRUNCATED)
        return Block({"attention": mixing(FourierMixing()), "feedforward": part(feedforward)}, name=name)


# Lee-Thorp et al. 2022, section 4.1 and table 1. The published models have 32,000 word pieces.
FNet.sizes = {
    "base": FNetConfig(),
    "large": FNetConfig(num_layers=24, dim=1024, intermediate_dim=4096),
}
