"""ImageGPT (Chen et al. 2020, "Generative Pretraining from Pixels"): GPT-2 for pictures, whose tokens are the
colours of pixels, line by line.

It differs from GPT-2 in its norms, which subtract no mean, its activation, and its output, a table of its own
that starts at 0 and does not predict the token that begins a picture. Deviates from the paper in that token,
which is a vector there, and in the biases of attention, as transformers has both.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import Config, Depth, Heads, Length, Rate, Size
from keras_tfm.inputs import refuse_outside
from keras_tfm.layers.embeddings import TokenAndPositionEmbedding
from keras_tfm.layers.initializers import NORMAL
from keras_tfm.layers.normalization import RMSNormalization
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.layers.quantizer import nearest
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.text.decoder import DecoderModel
from keras_tfm.models.text.gpt2 import shrink_residuals, stack_of


@dataclasses.dataclass(frozen=True)
class ImageGPTConfig(Config):
    """The sizes of an `ImageGPT`; the defaults are the smallest published model's.

    Args:
        vocabulary_size: the colours, and the token that begins a picture.
        max_length: the pixels of a picture.
        intermediate_dim: the feed-forward width; None for 4 `dim`.
        dropout: the rate for the output of each sub-layer.
        attention_dropout: the rate for the attention weights.
        embedding_dropout: the rate for the embeddings.
    """

    vocabulary_size: Size = 513
    max_length: Length = 1024
    num_layers: Depth = 24
    dim: Size = 512
    num_heads: Heads = 8
    intermediate_dim: Size | None = None
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.1
    embedding_dropout: Rate = 0.1
    activation: str = "gelu_quick"
    epsilon: Rate = 1e-5

    # No fields: it is always so.
    normalize_first = True
    tied = False  # the head has a table of its own


class ImageGPT(DecoderModel):
    """Colours of pixels in, hidden states out, every position attending to those before it.

    Inputs and output are as in `DecoderModel`; `heads.LanguageModel` predicts the next colour. A picture
    begins with the token `start_id`, the last one.

    >>> model = keras_tfm.models.ImageGPT.from_size("tiny")
    >>> model({"token_ids": np.array([[model.start_id, 3, 5]])})["sequence_output"].shape
    TensorShape([1, 3, 64])
    """

    config_class = ImageGPTConfig
    reads_last = False

    def __init__(self, config: ImageGPTConfig, name: str = "imagegpt", **kwargs: Any) -> None:
        position = PositionEmbedding(
            config.max_length, keras.initializers.RandomNormal(stddev=0.01), name="position"
        )
        embedding = TokenAndPositionEmbedding(
            config.vocabulary_size,
            config.max_length,
            config.dim,
            position=position,
            initializer=NORMAL,
            name="embedding",
        )
        decoder = stack_of(config, embedding, norm=RMSNormalization)
        dropout = Dropout(config.embedding_dropout, name="embedding_dropout")
        super().__init__(config, decoder, embedding, dropout, config.max_length, name=name, **kwargs)
        self.output_size = self.start_id = config.vocabulary_size - 1
        shrink_residuals(decoder.blocks)


class Palette:
    """The colours of an ImageGPT, K of them: pixels become their numbers, and numbers pixels.

    Args:
        colors: (K, 3), from -1 to 1, as preprocessor_config.json has them; `convert.palette_of(folder)` reads
            them.

    >>> palette = keras_tfm.models.Palette([[-1, -1, -1], [1, 1, 1]])
    >>> palette.encode(np.array([[[[0.1, 0.2, 0.3], [0.9, 0.9, 0.9]]]])).numpy().tolist()
    [[0, 1]]
    """

    def __init__(self, colors: Any) -> None:
        self.colors = np.asarray(colors, "float32")
        if self.colors.ndim != 2 or self.colors.shape[1] != 3:
            raise ValueError(f"`colors` must have the shape (K, 3); it is {self.colors.shape}.")

    def encode(self, images: Any) -> Any:
        """The nearest colours of the pixels of `images` (B, H, W, 3) from 0 to 1: integers (B, H W)."""
        images = ops.convert_to_tensor(images, "float32")
        colors = nearest(2 * images - 1, self.colors)  # (B, H, W)
        return ops.reshape(colors, (-1, images.shape[1] * images.shape[2]))  # (B, H W)

    def decode(self, token_ids: Any, height: int) -> Any:
        """The images (B, `height`, W, 3) from 0 to 1 of colours (B, H W). ValueError for other ids."""
        token_ids = ops.convert_to_tensor(token_ids, "int32")
        refuse_outside(token_ids, len(self.colors), "token_ids")
        pixels = ops.take((self.colors + 1) / 2, token_ids, axis=0)  # (B, H W, 3)
        return ops.reshape(pixels, (-1, height, token_ids.shape[1] // height, 3))  # (B, H, W, 3)


# S, M, L: Chen et al. 2020, section 3.1, of 76, 455 and 1,362 million weights there.
ImageGPT.sizes = {
    "tiny": ImageGPTConfig(17, 64, num_layers=2, dim=64, num_heads=2),
    "S": ImageGPTConfig(),
    "M": ImageGPTConfig(num_layers=36, dim=1024),
    "L": ImageGPTConfig(num_layers=48, dim=1536, num_heads=16),
}
