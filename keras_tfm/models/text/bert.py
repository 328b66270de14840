"""BERT, the bidirectional encoder (Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional
Transformers").

A Transformer encoder that normalises after each sum, on the normalised sum of token, position and segment
embeddings. The heads for pre-training and fine-tuning are in `keras_tfm.heads`.
"""

import dataclasses

from keras_tfm.configs import Whole
from keras_tfm.models.text.encoder import EncoderConfig, EncoderModel


@dataclasses.dataclass(frozen=True)
class BERTConfig(EncoderConfig):
    """The sizes of a `BERT`; the defaults are the base model's.

    Args:
        num_segments: how many kinds of text a sequence has, such as question and passage.
        pooler: whether there is a pooled output, with weights of its own.
    """

    num_segments: Whole = 2
    pooler: bool = True


class BERT(EncoderModel):
    """BERT: token ids in, hidden states out, every position attending to all.

    Inputs: `token_ids`, `padding_mask` and, with several segments, `segment_ids`, each (B, T). Outputs:
    `sequence_output` (B, T, D) and `pooled_output` (B, D), a tanh layer on the first token, [CLS].

    >>> model = keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100)
    >>> model({"token_ids": np.array([[1, 2, 3]])})["sequence_output"].shape
    TensorShape([1, 3, 128])
    """

    config_class = BERTConfig


def _turc(num_layers, dim):
    return BERTConfig(num_layers=num_layers, dim=dim, num_heads=dim // 64, intermediate_dim=4 * dim)


# base and large: Devlin et al. 2019, section 3. The 24 models L-*_H-*, of which tiny to medium have names:
# Turc et al. 2019, "Well-Read Students Learn Better", and its released models.
BERT.sizes = {
    "tiny": _turc(2, 128),
    "mini": _turc(4, 256),
    "small": _turc(4, 512),
    "medium": _turc(8, 512),
    "base": _turc(12, 768),
    "large": _turc(24, 1024),
    **{f"L-{n}_H-{dim}": _turc(n, dim) for n in (2, 4, 6, 8, 10, 12) for dim in (128, 256, 512, 768)},
}
