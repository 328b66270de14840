"""Gemma 2, a Llama whose scores and logits are bounded, and whose every other block sees a window (Gemma Team
2024, "Gemma 2: Improving Open Language Models at a Practical Size", section 2).

Each branch has a norm before and one behind it; a norm's factors are 1 + gamma, and the embedding is
multiplied by sqrt(D), as in the released code.
"""

import dataclasses
from typing import Any

from keras_tfm.configs import Count, Depth, Length, Positive, Size
from keras_tfm.layers.attention.on_scores import SoftCap
from keras_tfm.models.text.decoder import RotaryDecoder, RotaryDecoderConfig


@dataclasses.dataclass(frozen=True)
class Gemma2Config(RotaryDecoderConfig):
    """The sizes of a `Gemma2`; the defaults are those of the smallest model.

    Args:
        window: how many positions each sees in the first block and every other one.
        query_scale_dim: scores are divided by its root.
        score_cap: the bound of the scores; None for none.
        logit_cap: the bound of a language model's logits; None for none.
    """

    vocabulary_size: Size = 256_000
    max_length: Length = 8_192
    num_layers: Depth = 26
    dim: Size = 2_304
    num_heads: Size = 8
    num_key_value_heads: Size | None = 4
    key_dim: Size | None = 256
    intermediate_dim: Size = 9_216
    activation: str = "gelu_tanh"
    tied: bool = True
    window: Count = 4_096
    query_scale_dim: Length = 256
    score_cap: Positive | None = 50.0
    logit_cap: Positive | None = 30.0


class Gemma2(RotaryDecoder):
    """Gemma 2: token ids in, hidden states out, every position attending to those before it.

    >>> model = keras_tfm.models.Gemma2.from_size("tiny", vocabulary_size=100)
    >>> model({"token_ids": np.array([[1, 2, 3]])})["sequence_output"].shape
    TensorShape([1, 3, 128])
    """

    config_class = Gemma2Config
    scales_embedding = True
    has_output_norms = True
    norm_offset = 1.0

    def __init__(self, config: Gemma2Config, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(config, name, **kwargs)
        self.output_cap = config.logit_cap

    @classmethod
    def attention_options(cls, config, index):
        """A scale of its own, a bound, and in every other block a window."""
        return {
            "scale": config.query_scale_dim**-0.5,
            "on_scores": None if config.score_cap is None else SoftCap(config.score_cap),
            "window": None if index % 2 else config.window,
        }


# Gemma Team 2024, table 1. tiny is this package's own.
Gemma2.sizes = {
    "tiny": Gemma2Config(8_000, 256, 4, 128, 4, 2, 32, 256, window=64, query_scale_dim=32),
    "2b": Gemma2Config(),
    "9b": Gemma2Config(
        num_layers=42, dim=3_584, num_heads=16, num_key_value_heads=8, intermediate_dim=14_336
    ),
    "27b": Gemma2Config(
        num_layers=46,
        dim=4_608,
        num_heads=32,
        num_key_value_heads=16,
        key_dim=128,
        intermediate_dim=36_864,
        query_scale_dim=144,
    ),
}
