"""RoBERTa, the encoder of Liu et al. 2019, "RoBERTa: A Robustly Optimized BERT Pretraining Approach".

BERT's body over byte-level sub-words, without segments. As in the released models positions are numbered
from `pad_id` + 1, padding left out; the rows before are those of a padding that none attends to.
"""

import dataclasses

from keras import ops

from keras_tfm.configs import Config, Depth, Heads, Length, Rate, Size, TokenId, Whole
from keras_tfm.layers.embeddings import TokenAndPositionEmbedding
from keras_tfm.models.text.encoder import INITIALIZER, EncoderModel


@dataclasses.dataclass(frozen=True)
class RoBERTaConfig(Config):
    """`dropout` acts on the embeddings and on what each sub-layer adds, `attention_dropout` on the attention
    weights. The released models have no `pooler` but for fine-tuning multiple choice.
    """

    vocabulary_size: Size = 50_265
    num_layers: Depth = 12
    dim: Size = 768
    num_heads: Heads = 12
    intermediate_dim: Size = 3072
    max_length: Length = 512
    num_segments: Whole = 1
    pad_id: TokenId = 1
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.1
    activation: str = "gelu"
    epsilon: Rate = 1e-5
    pooler: bool = False

    @property
    def num_positions(self):
        """Rows of the positions' table."""
        return self.max_length + self.pad_id + 1


class RoBERTa(EncoderModel):
    """Token ids in, hidden states out, every position attending to all.

    Inputs: `token_ids`, `padding_mask` and, where there are several segments, `segment_ids`, (B, T) each.
    Outputs: `sequence_output` (B, T, D) and, with a pooler, `pooled_output` (B, D).
    """

    config_class = RoBERTaConfig

    @classmethod
    def embed(cls, config, inputs):
        """Positions are numbered from `pad_id` + 1, that of all padding is `pad_id`."""
        embedding = TokenAndPositionEmbedding(
            config.vocabulary_size,
            config.num_positions,
            config.dim,
            config.num_segments,
            initializer=INITIALIZER,
            name="embedding",
        )
        mask = ops.cast(inputs["padding_mask"], "int32")
        positions = config.pad_id + ops.cumsum(mask, axis=1) * mask
        return embedding, embedding(
            inputs["token_ids"], segment_ids=inputs.get("segment_ids"), positions=positions
        )


# Liu et al. 2019, section 3.1 (base, of BERT's size) and section 5 (large).
RoBERTa.sizes = {
    "base": RoBERTaConfig(),
    "large": RoBERTaConfig(num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096),
}
