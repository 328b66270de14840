"""DistilBERT, a smaller BERT (Sanh et al. 2019, "DistilBERT, a distilled version of BERT").

Half of BERT's layers, without segments and without a pooler (section 2).
"""

import dataclasses

from keras_tfm.configs import Depth
from keras_tfm.models.text.encoder import EncoderConfig, EncoderModel


@dataclasses.dataclass(frozen=True)
class DistilBERTConfig(EncoderConfig):
    """The sizes of a `DistilBERT`; the defaults are the published model's."""

    num_layers: Depth = 6


class DistilBERT(EncoderModel):
    """DistilBERT: token ids in, hidden states out, every position attending to all.

    Inputs: `token_ids` and `padding_mask`, each (B, T). Output: `sequence_output` (B, T, D).

    >>> sizes = {"num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 32}
    >>> model = keras_tfm.models.DistilBERT(keras_tfm.models.DistilBERTConfig(100, **sizes))
    >>> model({"token_ids": np.array([[1, 2, 3]])})["sequence_output"].shape
    TensorShape([1, 3, 16])
    """

    config_class = DistilBERTConfig


# Sanh et al. 2019, section 3 and table 3: 66 M parameters.
DistilBERT.sizes = {"base": DistilBERTConfig()}
