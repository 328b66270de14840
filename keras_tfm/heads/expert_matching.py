"""How well videos and texts fit, by what several experts say of the videos (Gabeur et al. 2020, "Multi-modal
Transformer for Video Retrieval", sections 3.2 and 3.3).

Deviates from the authors' released runs in that an expert which says nothing of a video has no weight there:
the others' weights sum to 1.
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.loss import Loss
from keras_tfm.layers.base import Layer
from keras_tfm.layers.masks import in_float32, masked_softmax
from keras_tfm.layers.signatures import Tensor, Towers


def expert_similarity(videos: Tensor, experts: Tensor, texts: Tensor, logits: Tensor) -> Tensor:
    """The similarities (I, T) of `videos` (I, N, E) and `texts` (T, N, E), from -1 to 1 for unit vectors.

    The sum of the inner products of N experts, weighted by the softmax of a text's `logits` (T, N) over the
    `experts` (I, N) that the video has, 1 or True. It is 0 for a video that has none. In float32.

    >>> vectors = np.eye(2)[None]  # one video and one text, of two experts
    >>> keras_tfm.heads.expert_similarity(vectors, np.ones((1, 2)), 0.5 * vectors, np.zeros((1, 2))).numpy()
    array([[0.5]])
    """
    products = ops.einsum("ine,tne->itn", in_float32(videos), in_float32(texts))
    scores = ops.broadcast_to(in_float32(logits)[None], ops.shape(products))
    weights = masked_softmax(scores, ops.cast(experts, "bool")[:, None])  # (I, T, N)
    return ops.sum(weights * products, axis=-1)


class ExpertMatcher(ModelWithHead):
    """A `backbone` of experts' features and of texts, an `MMT`: I videos and T texts in, their similarities
    (I, T) out, as of `expert_similarity`.

    Train it with the loss `MarginRanking`; its `fit` takes the inputs and any target for each, which is
    ignored. As for `Contrastive`, do not let `predict` of Keras cut the inputs into batches.

    >>> model = keras_tfm.heads.ExpertMatcher(keras_tfm.models.MMT.from_size("tiny"))
    >>> inputs = {"motion_features": np.ones((2, 5, 32)), "sound_features": np.ones((2, 3, 16))}
    >>> model({**inputs, "token_ids": np.ones((3, 4), "int32")}).shape
    TensorShape([2, 3])
    """

    def __init__(self, backbone: Towers, name: str = "expert_matcher", **kwargs: Any) -> None:
        names = ("video_embeddings", "video_experts", "text_embeddings", "text_expert_logits")
        similarities = ExpertSimilarity(name="head")(*(backbone.output[key] for key in names))
        super().__init__(backbone, backbone.input, similarities, name=name, **kwargs)

    def learner(self) -> keras.Model:
        """The model to train: itself."""
        return self


class ExpertSimilarity(Layer):
    """`expert_similarity` as a layer."""

    def call(self, videos, experts, texts, logits):
        """(I, N, E), (I, N), (T, N, E) and (T, N) -> (I, T)."""
        return ops.cast(expert_similarity(videos, experts, texts, logits), self.compute_dtype)

    def compute_output_shape(self, videos_shape, experts_shape, texts_shape, logits_shape):
        return (videos_shape[0], texts_shape[0])


class MarginRanking(Loss):
    """How far other texts of a video, and other videos of a text, are from being worse than the right ones by
    a `margin`: of similarities s (B, B) with the right pairs on the diagonal, for each i the sum over j != i
    of max(0, margin + s_ij - s_ii) + max(0, margin + s_ji - s_ii).

    The pairs of a replica alone are compared. The targets are ignored.

    >>> float(keras_tfm.heads.MarginRanking(0.25)(np.zeros(2), np.array([[0.5, 0.5], [0.0, 1.0]])))
    0.125
    """

    def __init__(self, margin: float = 0.05, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.margin = margin

    def call(self, _, similarities):
        """One number per pair: (B,)."""
        s = in_float32(similarities)
        right = ops.diagonal(s)[:, None]
        others = 1 - ops.eye(ops.shape(s)[0], dtype=s.dtype)
        violations = (ops.relu(self.margin + x - right) for x in (s, ops.transpose(s)))
        return ops.sum(others * sum(violations), axis=1)
