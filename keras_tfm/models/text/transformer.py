"""The encoder-decoder Transformer of Vaswani et al. 2017, "Attention Is All You Need".

Deviates from the paper where the configuration says so: `normalize_first` normalises each
sub-layer's input (Xiong et al. 2020), which trains without much warm-up; dropout acts on the
attention weights too, as in the authors' own code.
"""

import dataclasses
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_tfm.configs import Config, Depth, Heads, Length, Rate, Size
from keras_tfm.layers.blocks import TransformerDecoder, TransformerEncoder
from keras_tfm.layers.cache import PositionCache
from keras_tfm.layers.embeddings import TokenAndPositionEmbedding
from keras_tfm.layers.positions import SinePositionEncoding
from keras_tfm.layers.regularization import Dropout
from keras_tfm.training.model import ConfiguredModel


@dataclasses.dataclass(frozen=True)
class TransformerConfig(Config):
    """`vocabulary_size` is the source's; the target's is the same and shares its embedding table
    unless `target_vocabulary_size` is given. `key_dim` None means truncated heads, dim / num_heads.
    """

    vocabulary_size: Size
    target_vocabulary_size: Size | None = None
    num_layers: Depth = 6
    dim: Size = 512
    num_heads: Heads = 8
    intermediate_dim: Size = 2048
    key_dim: Size | None = None
    dropout: Rate = 0.1
    activation: str = "relu"
    normalize_first: bool = False
    epsilon: Rate = 1e-6
    max_length: Length = 512


class TransformerCache(NamedTuple):
    """What decoding keeps: the position of the next token, and the decoder's caches."""

    position: PositionCache
    blocks: Any


class Transformer(ConfiguredModel):
    """Encoder and decoder stacks: token ids in, hidden states out.

    Inputs: `token_ids` (B, S), `padding_mask` (B, S), `decoder_token_ids` (B, T) and
    `decoder_padding_mask` (B, T). Outputs: `encoder_sequence_output` (B, S, D) and
    `decoder_sequence_output` (B, T, D). The encoder's final output feeds every decoder block.
    """

    config_class = TransformerConfig

    def __init__(self, config, name="transformer", **kwargs):
        vocabulary_size, target_vocabulary_size = config.vocabulary_size, config.target_vocabulary_size
        inputs = {
            "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
            "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask"),
            "decoder_token_ids": keras.Input((None,), dtype="int32", name="decoder_token_ids"),
            "decoder_padding_mask": keras.Input((None,), dtype="bool", name="decoder_padding_mask"),
        }
        embedding = self._embedding(config, vocabulary_size, "embedding")
        decoder_embedding = embedding
        if target_vocabulary_size is not None:
            decoder_embedding = self._embedding(config, target_vocabulary_size, "decoder_embedding")
        block = {
            field: getattr(config, field)
            for field in (
                "num_layers",
                "num_heads",
                "intermediate_dim",
                "key_dim",
                "dropout",
                "activation",
                "normalize_first",
                "epsilon",
            )
        }
        encoder = TransformerEncoder(**block, name="encoder")
        decoder = TransformerDecoder(**block, cross_attention=True, name="decoder")
        dropout = Dropout(config.dropout, name="embedding_dropout")

        encoded = encoder(dropout(embedding(inputs["token_ids"])), mask=inputs["padding_mask"])
        decoded = decoder(
            dropout(decoder_embedding(inputs["decoder_token_ids"])),
            encoded,
            mask=inputs["decoder_padding_mask"],
            context_mask=inputs["padding_mask"],
        )
        outputs = {"encoder_sequence_output": encoded, "decoder_sequence_output": decoded}
        super().__init__(config, inputs, outputs, name=name, **kwargs)
        self.embedding, self.output_embedding = embedding, decoder_embedding
        self.encoder, self.decoder = encoder, decoder

    @staticmethod
    def _embedding(config, vocabulary_size, name):
        initializer = keras.initializers.RandomNormal(stddev=config.dim**-0.5)
        return TokenAndPositionEmbedding(
            vocabulary_size,
            config.max_length,
            config.dim,
            scale=True,
            position=SinePositionEncoding(name="position"),
            initializer=initializer,
            name=name,
        )

    def encode(self, token_ids, padding_mask=None):
        """The encoder's output (B, S, D)."""
        return self.encoder(self.embedding(token_ids), mask=padding_mask)

    def start(self, batch_size, max_length, context):
        """Encode `context` ({"token_ids", "padding_mask"}); a cache to decode `max_length` tokens."""
        padding_mask = context.get("padding_mask")
        encoded = self.encode(context["token_ids"], padding_mask)
        return TransformerCache(
            PositionCache.empty(batch_size),
            self.decoder.start(batch_size, max_length, encoded, padding_mask),
        )

    def step(self, token_ids, cache, padding_mask=None):
        """The decoder's output (B, T, D) at the next T tokens (B, T), and the new cache."""
        positions, position = cache.position.append(ops.shape(token_ids)[1], padding_mask)
        x = self.output_embedding(token_ids, positions=positions)
        x, blocks = self.decoder.step(x, cache.blocks, padding_mask)
        return x, TransformerCache(position, blocks)


# base and big: Vaswani et al. 2017, table 3, with their shared vocabulary of 37,000 (section 5.1).
# tiny and small are this package's own, for some 10^4 and 10^5 sentence pairs.
Transformer.sizes = {
    "tiny": TransformerConfig(8_000, num_layers=2, dim=128, num_heads=4, intermediate_dim=512),
    "small": TransformerConfig(
        8_000, num_layers=3, dim=256, num_heads=4, intermediate_dim=1024, normalize_first=True
    ),
    "base": TransformerConfig(37_000),
    "big": TransformerConfig(37_000, dim=1024, num_heads=16, intermediate_dim=4096, dropout=0.3),
}
