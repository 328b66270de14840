"""RoBERTa (Liu et al. 2019, "RoBERTa: A Robustly Optimized BERT Pretraining Approach").

BERT's body on byte-level sub-words, without segments. As in the released models the first token has the
position `pad_id` + 1, and padding is not counted.
"""

import dataclasses

from keras import ops

from keras_tfm.configs import Rate, Size, TokenId, Whole
from keras_tfm.layers.embeddings import TokenAndPositionEmbedding
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.models.text.encoder import EncoderConfig, EncoderModel


@dataclasses.dataclass(frozen=True)
class RoBERTaConfig(EncoderConfig):
    """The sizes of a `RoBERTa`; the defaults are the base model's.

    Args:
        pad_id: the token id of padding, which also is the position of padding.
        pooler: whether there is a pooled output. The released models have one only if fine-tuned for
            multiple choice.
    """

    vocabulary_size: Size = 50_265
    num_segments: Whole = 1
    pad_id: TokenId = 1
    epsilon: Rate = 1e-5
    pooler: bool = False

    @property
    def num_positions(self):
        """The number of rows of the position table."""
        return self.max_length + self.pad_id + 1


class RoBERTa(EncoderModel):
    """RoBERTa: token ids in, hidden states out, every position attending to all.

    Inputs: `token_ids`, `padding_mask` and, with several segments, `segment_ids`, each (B, T). Outputs:
    `sequence_output` (B, T, D) and, with a pooler, `pooled_output` (B, D).

    >>> config = keras_tfm.models.RoBERTaConfig(100, num_layers=1, dim=16, num_heads=2, intermediate_dim=32)
    >>> keras_tfm.models.RoBERTa(config)({"token_ids": np.array([[1, 2, 3]])})["sequence_output"].shape
    TensorShape([1, 3, 16])
    """

    config_class = RoBERTaConfig

    @classmethod
    def embed(cls, config, inputs):
        """Tokens are at the positions from `pad_id` + 1 on, padding at the position `pad_id`."""
        embedding = TokenAndPositionEmbedding(
            config.vocabulary_size,
            config.num_positions,
            config.dim,
            config.num_segments,
            initializer=TRUNCATED,
            name="embedding",
        )
        mask = ops.cast(inputs["padding_mask"], "int32")
        positions = config.pad_id + ops.cumsum(mask, axis=1) * mask
        return embedding, embedding(
            inputs["token_ids"], segment_ids=inputs.get("segment_ids"), positions=positions
        )


# Liu et al. 2019, section 3.1 (base, as large as BERT's) and section 5 (large).
RoBERTa.sizes = {
    "base": RoBERTaConfig(),
    "large": RoBERTaConfig(num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096),
}
