"""DeBERTa's pre-training: masked tokens are predicted by their absolute positions too.

He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", section 3.2. The encoder sees
relative positions alone; absolute ones enter right before the softmax. With H the hidden states before the
last block and I the vectors of the absolute positions, `num_layers` layers follow, which share the weights of
the last block and attend each from its queries to the same H:

    query_0 = H + I        query_n = block(query_(n-1), keys and values of H)

The released code has two layers. Without I, a single layer is the encoder's own last block. The vectors of
positions are as wide as the hidden states here, also where the tokens' are narrower.
"""

import keras

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.masked_language_model import MaskedLMHead
from keras_tfm.layers.positions import PositionEmbedding

MOST_LAYERS = 64  # no weights bear out how many there are: a folder's number alone must not cost hours


class EnhancedMaskedLM(ModelWithHead):
    """A DeBERTa and its masked language model: logits (B, M, V) at `mask_positions` (B, M), by default all.

    `MaskedLMHead` reads what `num_layers` applications of the backbone's last block make of the states before
    it; `activation` is by default the backbone's. What it trains is the backbone, which other heads then read
    without the decoder. ValueError for impossible sizes, and for a backbone that is no DeBERTa.
    """

    def __init__(self, backbone, num_layers=2, activation=None, name="masked_lm", **kwargs):
        if not 1 <= num_layers <= MOST_LAYERS:
            raise ValueError(f"`num_layers` must lie in [1, {MOST_LAYERS}]; it is {num_layers}.")
        if not hasattr(backbone, "decode"):
            raise ValueError(
                f"`backbone` must be a DeBERTa, whose blocks attend disentangled; it is {backbone.name!r}."
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
