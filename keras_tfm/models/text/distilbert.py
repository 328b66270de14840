"""DistilBERT, the encoder of Sanh et al. 2019, "DistilBERT, a distilled version of BERT".

Every second layer of BERT, without segments and pooler (section 2).
"""

import dataclasses

from keras_tfm.configs import Config, Depth, Heads, Length, Rate, Size
from keras_tfm.models.text.encoder import EncoderModel


@dataclasses.dataclass(frozen=True)
class DistilBERTConfig(Config):
    """`dropout` acts on the embeddings and on what each sub-layer adds, `attention_dropout` on the attention
    weights.
    """

    vocabulary_size: Size = 30_522
    num_layers: Depth = 6
    dim: Size = 768
    num_heads: Heads = 12
    intermediate_dim: Size = 3072
    max_length: Length = 512
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.1
    activation: str = "gelu"
    epsilon: Rate = 1e-12


class DistilBERT(EncoderModel):
    """Token ids in, hidden states out, every position attending to all.

    Inputs: `token_ids` and `padding_mask`, (B, T) each. Output: `sequence_output` (B, T, D).
    """

    config_class = DistilBERTConfig


# Sanh et al. 2019, section 3 and table 3: 66 M parameters.
DistilBERT.sizes = {"base": DistilBERTConfig()}
