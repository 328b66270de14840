"""DeBERTa's pre-training: masked tokens are predicted from their absolute positions too.

He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", section 3.2. The encoder only
knows relative positions; absolute ones are added just before the softmax. H are the hidden states before the
last block, and I the vectors of the absolute positions. `num_layers` layers follow. They share the weights
of the last block, and each attends from its own queries to the same H:

    query_0 = H + I        query_n = block(query_(n-1), keys and values of H)

The released code has two layers. A single layer without I would be the encoder's own last block. Here the
vectors of positions are as wide as the hidden states, also where the embeddings are narrower.
"""

from typing import Any

import keras

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.masked_language_model import MaskedLMHead
from keras_tfm.layers.positions import PositionEmbedding

MOST_LAYERS = 64  # the layers share weights, so a file could ask for any number, which would take hours


class EnhancedMaskedLM(ModelWithHead):
    """A DeBERTa with the enhanced mask decoder: logits (B, M, V) at `mask_positions` (B, M), by default at
    all.

    `MaskedLMHead` reads the decoder's output. Training it trains the backbone, which other heads then use
    without the decoder.

    Args:
        backbone: a `DeBERTa`.
        num_layers: how often the backbone's last block is applied to the states before it.
        activation: of the head; by default the backbone's.

    >>> sizes = {"num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 32}
    >>> backbone = keras_tfm.models.DeBERTa(keras_tfm.models.DeBERTaConfig(100, **sizes))
    >>> keras_tfm.heads.EnhancedMaskedLM(backbone)({"token_ids": np.array([[1, 2, 3]])}).shape
    TensorShape([1, 3, 100])
    """

    def __init__(
        self,
        backbone: keras.Model,
        num_layers: int = 2,
        activation: str | None = None,
        name: str = "masked_lm",
        **kwargs: Any,
    ) -> None:
        if not 1 <= num_layers <= MOST_LAYERS:
            raise ValueError(f"`num_layers` must lie in [1, {MOST_LAYERS}]; it is {num_layers}.")
        if not hasattr(backbone, "decode"):
            raise ValueError(
                f"`backbone` must be a DeBERTa, with disentangled attention; it is {backbone.name!r}."
            )
        config = backbone.config
        activation = activation or config.activation
        positions = keras.Input((None,), dtype="int32", name="mask_positions")
        hidden = backbone.hidden_states["encoder"][-2]
        initializer = keras.initializers.TruncatedNormal(stddev=0.02)
        query = PositionEmbedding(config.max_length, initializer, name="decoder_position")(hidden)
        for _ in range(num_layers):
            query = backbone.decode(query, hidden)
        mlm = MaskedLMHead(backbone.embedding, activation, config.epsilon, name="mlm")
        inputs = {**backbone.input, "mask_positions": positions}
        super().__init__(backbone, inputs, mlm(query, positions), name=name, **kwargs)
        self.num_layers = num_layers
        self.activation = activation
