"""A Transformer that reads a clip and a text together and says how well they fit.

The third similarity of Luo et al. 2021, "CLIP4Clip", section 3.4, the tight type ("tightTransf"). It sees
more than a product of two vectors does, but compares every clip with every text anew, and is no use to an
index. Deviates from the authors' code in what it reads: the towers' vectors of unit length times sqrt(E), in
place of vectors that are not normalised.
"""

import math
from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.loss import Loss
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.feedforward import FeedForward, activation_of
from keras_tfm.layers.initializers import NORMAL
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.positions import PositionEmbedding

HEAD_DIM = 64


class CrossMatcher(ModelWithHead):
    """A `backbone` of clips and texts, a `CLIP4Clip`, with blocks that read both: I clips and T texts in,
    logits (I, T) out.

    For each pair the blocks read the text's vector and the vectors of the clip's frames. The output at the
    text, normalised, goes through a hidden layer to one number. Train it with the loss `LogitContrast`; its
    `fit` takes the inputs and any target for each, which is ignored. As for `Contrastive`, do not let
    `predict` of Keras cut the inputs into batches.

    Args:
        num_layers: the blocks.

    >>> backbone = keras_tfm.models.CLIP4Clip.from_size("tiny", num_frames=3)
    >>> model = keras_tfm.heads.CrossMatcher(backbone, num_layers=1)
    >>> model({"videos": np.zeros((2, 3, 32, 32, 3)), "token_ids": np.ones((5, 8), "int32")}).shape
    TensorShape([2, 5])
    """

    def __init__(
        self, backbone: keras.Model, num_layers: int = 4, name: str = "cross_matcher", **kwargs: Any
    ) -> None:
        config = backbone.config
        texts, frames = backbone.output["text_embeddings"], backbone.output["video_sequence_output"]
        dim = texts.shape[-1]
        x, mask = AllPairs(name="pairs")(texts, frames, backbone.input["frame_mask"])
        x = PositionEmbedding(x.shape[1], NORMAL, name="pair_position")(x)
        part = residuals(epsilon=config.epsilon, normalize_first=True)
        for number in range(num_layers):
            attention = MultiHeadAttention(max(1, dim // HEAD_DIM), dropout=config.attention_dropout)
            feedforward = FeedForward(4 * dim, config.activation)
            block = block_of(part, f"pair_block_{number}", attention=attention, feedforward=feedforward)
            x = block(x, attention={"mask": mask})
        x = LayerNormalization(config.epsilon, name="pair_norm")(ops.take(x, 0, axis=1))
        x = keras.layers.Dense(dim, activation_of(config.activation), name="pair_hidden")(x)
        x = keras.layers.Dense(1, name="pair_score")(x)
        logits = Table(name="logits")(x, texts)
        super().__init__(backbone, backbone.input, logits, name=name, **kwargs)
        self.num_layers = num_layers

    def learner(self) -> keras.Model:
        """The model to train: itself."""
        return self


class AllPairs(Layer):
    """Texts (T, E) of unit length, frames (I, F, E) and their mask (I, F) -> a sequence for each pair, the
    text and then the frames, (I T, 1 + F, E), and its mask (I T, 1 + F). A clip's pairs follow each other.
    """

    def call(self, texts, frames, mask):
        clips, (count, dim) = ops.shape(frames)[0], ops.shape(texts)
        length = frames.shape[1]
        first = ops.broadcast_to(texts[None, :, None], (clips, count, 1, dim))
        rest = ops.broadcast_to(frames[:, None], (clips, count, length, dim))
        x = ops.concatenate([first, rest], axis=2) * math.sqrt(texts.shape[-1])
        is_frame = ops.broadcast_to(ops.cast(mask, "bool")[:, None], (clips, count, length))
        is_read = ops.pad(is_frame, ((0, 0), (0, 0), (1, 0)), constant_values=True)
        x = ops.reshape(x, (-1, 1 + length, texts.shape[-1]))  # (I T, 1 + F, E)
        return x, ops.reshape(is_read, (-1, 1 + length))  # (I T, 1 + F)

    def compute_output_spec(self, texts, frames, mask):
        length = 1 + frames.shape[1]
        x = keras.KerasTensor((None, length, texts.shape[-1]), self.compute_dtype)
        return x, keras.KerasTensor((None, length), "bool")


class Table(Layer):
    """Scores (I T, 1) of pairs, and the texts (T, E) -> (I, T)."""

    def call(self, scores, texts):
        return ops.reshape(scores, (-1, ops.shape(texts)[0]))  # (I, T)

    def compute_output_shape(self, scores_shape, texts_shape):
        return (None, texts_shape[0])


class LogitContrast(Loss):
    """The mean of two cross-entropies of logits (B, B): of the right text for a clip, and of the right clip
    for a text, which have the same place.

    In nats. The pairs of a replica alone are compared. The targets are ignored.

    >>> round(float(keras_tfm.heads.LogitContrast()(np.zeros(2), np.eye(2))), 4)  # log(1 + 1/e)
    0.3133
    """

    def call(self, _, logits):
        """One number per pair: (B,)."""
        logits = ops.cast(logits, "float32")
        right = ops.diagonal(logits)
        return (ops.logsumexp(logits, axis=1) + ops.logsumexp(logits, axis=0)) / 2 - right
