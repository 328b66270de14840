"""Mistral, a Llama whose positions see a window of those before them (Jiang et al. 2023, "Mistral 7B")."""

import dataclasses

from keras_tfm.configs import Count
from keras_tfm.models.text.decoder import RotaryDecoder, RotaryDecoderConfig


@dataclasses.dataclass(frozen=True)
class MistralConfig(RotaryDecoderConfig):
    """The sizes of a `Mistral`; `window` is how many positions each sees, its own included, None for all."""

    window: Count | None = None


class Mistral(RotaryDecoder):
    """Mistral: a `Llama` with a `window` in each block.

    >>> model = keras_tfm.models.Mistral.from_size("tiny", vocabulary_size=100)
    >>> model({"token_ids": np.array([[1, 2, 3]])})["sequence_output"].shape
    TensorShape([1, 3, 128])
    """

    config_class = MistralConfig

    @classmethod
    def attention_options(cls, config, index):
        """The window."""
        return {"window": config.window}


# 7b: Jiang et al. 2023, table 1. tiny is this package's own.
Mistral.sizes = {
    "tiny": MistralConfig(8_000, 256, 4, 128, 4, 2, intermediate_dim=344, window=64),
    "7b": MistralConfig(
        max_length=32_768, num_key_value_heads=8, intermediate_dim=14_336, epsilon=1e-5, window=4_096
    ),
}
