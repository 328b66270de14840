"""DeBERTa's pre-training: masked tokens are predicted by their absolute positions too.

He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", section 3.2. The encoder sees
relative positions alone; absolute ones enter right before the softmax. With H the hidden states before the
last block and I the vectors of the absolute positions, `num_layers` layers follow, which share the weights of
the last block and attend each from its queries to the same H:

    query_0 = H + I        query_n = block(query_(n-1), keys and values of H)

The released code has two layers. Without I, a single layer is the encoder's own last block. The vectors of
positions are as wide as the hidden states here, also where the tokens' are narrower.
"""

import itertools

import keras

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.masked_language_model import MaskedLMHead
from keras_tfm.layers.base import Layer
from keras_tfm.layers.positions import PositionEmbedding

MOST_LAYERS = 64  # no weights bear out how many there are: a folder's number alone must not cost hours


class EnhancedMaskDecoder(Layer):
    """What `encoder`, a `DisentangledEncoder`, is called with to states that know positions: (B, T, D) both.

    It runs all but the last block of `encoder`, then `num_layers` times the last one; its only weights of its
    own are the vectors of `max_length` positions. ValueError for impossible sizes, and where T is known and
    exceeds `max_length`.
    """

    def __init__(self, encoder, max_length, num_layers=2, **kwargs):
        super().__init__(**kwargs)
        if not 1 <= num_layers <= MOST_LAYERS:
            raise ValueError(f"`num_layers` must lie in [1, {MOST_LAYERS}]; it is {num_layers}.")
        if not hasattr(encoder, "states"):
            raise ValueError(
                f"`encoder` must be a DeBERTa's, whose blocks attend disentangled; it is {encoder.name!r}."
            )
        self.encoder = encoder
        self.max_length = max_length
        self.num_layers = num_layers
        initializer = keras.initializers.TruncatedNormal(stddev=0.02)
        self.position = PositionEmbedding(max_length, initializer, name="position")

    def build(self, x_shape, mask_shape=None):
        if not self.encoder.built:
            self.encoder.build(x_shape)
        self.position.build(x_shape)
        self.built = True

    def call(self, x, mask, training=None):
        """(B, T, D) -> (B, T, D); `mask` (B, T) hides padding."""
        blocks = self.encoder.blocks
        *_, hidden = itertools.islice(self.encoder.states(x, mask, training), len(blocks))
        query = self.position(hidden)
        for _ in range(self.num_layers):
            query = decode(blocks[-1], query, hidden, mask, training)
        return query

    def rematerialized_call(self, layer_call, *args, **kwargs):
        """As it is: the blocks recompute, each for itself."""
        return layer_call

    def compute_output_shape(self, x_shape, mask_shape=None):
        return tuple(x_shape)


def decode(block, query, hidden, mask=None, training=None):
    """`block` as a layer that attends from `query` to `hidden`, at the same positions: (B, T, D) each."""
    y = block.attention(query, hidden, mask=mask, training=training)
    query = block.attention_norm(query + block.residual_dropout(y, training=training))
    y = block.feedforward(query, training=training)
    return block.feedforward_norm(query + block.residual_dropout(y, training=training))


class EnhancedMaskedLM(ModelWithHead):
    """A DeBERTa and its masked language model: logits (B, M, V) at `mask_positions` (B, M), by default all.

    `MaskedLMHead` reads what `EnhancedMaskDecoder` of `num_layers` layers makes of the embedded tokens;
    `activation` is by default the backbone's. What it trains is the backbone, which other heads then read
    without the decoder. ValueError for a backbone that is no DeBERTa.
    """

    def __init__(self, backbone, num_layers=2, activation=None, name="masked_lm", **kwargs):
        config = backbone.config
        activation = activation or config.activation
        positions = keras.Input((None,), dtype="int32", name="mask_positions")
        decoder = EnhancedMaskDecoder(backbone.encoder, config.max_length, num_layers, name="decoder")
        mlm = MaskedLMHead(backbone.embedding, activation, config.epsilon, name="mlm")
        embedded, padding_mask = backbone.encoder.input
        logits = mlm(decoder(embedded, padding_mask), positions)
        inputs = {**backbone.input, "mask_positions": positions}
        super().__init__(backbone, inputs, logits, name=name, **kwargs)
        self.num_layers = num_layers
        self.activation = activation
