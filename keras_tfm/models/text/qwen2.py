"""Qwen2, a Llama whose queries, keys and values have biases (Yang et al. 2024, "Qwen2 Technical Report")."""

import dataclasses

from keras_tfm.models.text.decoder import RotaryDecoder, RotaryDecoderConfig


@dataclasses.dataclass(frozen=True)
class Qwen2Config(RotaryDecoderConfig):
    """The sizes of a `Qwen2`, by the fields of `RotaryDecoderConfig`."""


class Qwen2(RotaryDecoder):
    """Qwen2: a `Llama` with biases of queries, keys and values.

    >>> model = keras_tfm.models.Qwen2.from_size("tiny", vocabulary_size=100)
    >>> model({"token_ids": np.array([[1, 2, 3]])})["sequence_output"].shape
    TensorShape([1, 3, 128])
    """

    config_class = Qwen2Config
    has_biases = True


def _size(num_layers, dim, num_heads, num_key_value_heads, intermediate_dim, vocabulary_size, tied):
    return Qwen2Config(
        vocabulary_size,
        32_768,
        num_layers,
        dim,
        num_heads,
        num_key_value_heads,
        intermediate_dim=intermediate_dim,
        rotary_base=1_000_000.0,
        tied=tied,
    )


# Yang et al. 2024, table 1; Qwen2.5's models of these sizes are the same. tiny is this package's own.
Qwen2.sizes = {
    "tiny": Qwen2Config(8_000, 256, 4, 128, 4, 2, intermediate_dim=344),
    "0.5b": _size(24, 896, 14, 2, 4_864, 151_936, tied=True),
    "1.5b": _size(28, 1_536, 12, 2, 8_960, 151_936, tied=True),
    "7b": _size(28, 3_584, 28, 4, 18_944, 152_064, tied=False),
    "72b": _size(80, 8_192, 64, 8, 29_568, 152_064, tied=False),
}
