"""Llama, a decoder of norms without a mean, rotary positions and gated feed-forward layers (Touvron et al.
2023, "LLaMA: Open and Efficient Foundation Language Models", section 2.2).

No layer has a bias. From Llama 2 on the large models have fewer heads of keys and values than of queries
(Touvron et al. 2023, "Llama 2"); Llama 3.1 and 3.2 divide slow frequencies of the positions (Grattafiori et
al. 2024, "The Llama 3 Herd of Models", and its released code).
"""

import dataclasses
from typing import Any

from keras_tfm.models.text.decoder import RotaryDecoder, RotaryDecoderConfig


@dataclasses.dataclass(frozen=True)
class LlamaConfig(RotaryDecoderConfig):
    """The sizes of a `Llama`, by the fields of `RotaryDecoderConfig`: by default the paper's smallest."""


class Llama(RotaryDecoder):
    """Llama: token ids in, hidden states out, every position attending to those before it.

    Inputs: `token_ids`, `padding_mask` and `segment_ids`, each (B, T), and output `sequence_output` (B, T, D)
    are those of `DecoderModel`.

    >>> model = keras_tfm.models.Llama.from_size("tiny", vocabulary_size=100)
    >>> model({"token_ids": np.array([[1, 2, 3]])})["sequence_output"].shape
    TensorShape([1, 3, 128])
    """

    config_class = LlamaConfig


# 7b to 65b: Touvron et al. 2023, table 2. 2-*: Touvron et al. 2023, "Llama 2". 3-* and 3.2-*: Grattafiori et
# al. 2024 and the released configurations. tiny is this package's own.
_THREE = LlamaConfig(128_256, 8_192, num_key_value_heads=8, intermediate_dim=14_336, rotary_base=500_000.0,
                     epsilon=1e-5)  # fmt: skip
_LONG = dataclasses.replace(
    _THREE,
    max_length=131_072,
    rotary_scaling={
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8_192,
    },
    intermediate_dim=8_192,
    tied=True,
)
_LARGE: dict[str, Any] = {"num_layers": 80, "dim": 8_192, "num_heads": 64}
Llama.sizes = {
    "tiny": LlamaConfig(8_000, 256, 4, 128, 4, 2, intermediate_dim=344),
    "7b": LlamaConfig(),
    "13b": LlamaConfig(num_layers=40, dim=5_120, num_heads=40, intermediate_dim=13_824),
    "33b": LlamaConfig(num_layers=60, dim=6_656, num_heads=52, intermediate_dim=17_920),
    "65b": LlamaConfig(**_LARGE, intermediate_dim=22_016, epsilon=1e-5),
    "2-7b": LlamaConfig(max_length=4_096, epsilon=1e-5),
    "2-70b": LlamaConfig(
        max_length=4_096, **_LARGE, num_key_value_heads=8, intermediate_dim=28_672, epsilon=1e-5
    ),
    "3-8b": _THREE,
    "3-70b": dataclasses.replace(_THREE, **_LARGE, intermediate_dim=28_672),
    "3.2-1b": dataclasses.replace(_LONG, num_layers=16, dim=2_048, num_heads=32),
    "3.2-3b": dataclasses.replace(_LONG, num_layers=28, dim=3_072, num_heads=24),
}
