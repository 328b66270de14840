"""Contrastive learning of images and texts: logits for all pairs of a batch, and two losses.

CLIP (Radford et al. 2021, "Learning Transferable Visual Models From Natural Language Supervision") chooses,
by a softmax, the right text for each image among all texts, and the right image for each text. SigLIP (Zhai
et al. 2023, "Sigmoid Loss for Language Image Pre-Training") decides for each pair separately whether it
fits.
"""

import abc
import math
from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.loss import Loss
from keras_tfm.layers.base import Layer
from keras_tfm.layers.signatures import Towers
from keras_tfm.training.model import FunctionalModel
from keras_tfm.training.replicas import rows_of_all_replicas

LOGIT_SCALE = math.log(1 / 0.07)
MAX_LOGIT_SCALE = math.log(100)  # Radford et al. 2021, section 2.5


class Contrastive(ModelWithHead):
    """A `backbone` with an image and a text tower, and the scale of the logits: I images, or clips, and T
    texts in, logits (I, T) out.

    `learner()` is the model to train: B pairs in, vectors (B, 2, E) out, which the loss `SoftmaxContrast` or,
    with a bias, `SigmoidContrast` compares with the vectors of all other pairs, on other replicas too. Its
    `fit` takes the inputs and any target for each, which is ignored. `predict` of Keras cuts both inputs into
    batches, and compares within each of them only: call the model, or give `batch_size` the number of all.

    Args:
        logit_scale: the first value of the logarithm of the factor of the cosines. CLIP starts with log(1 /
            0.07), SigLIP with log(10).
        logit_bias: the first value of a number added to the logits; None for no such number, as in CLIP.
            SigLIP starts with -10.

    >>> model = keras_tfm.heads.Contrastive(keras_tfm.models.CLIP.from_size("tiny"))
    >>> model({"images": np.zeros((3, 32, 32, 3)), "token_ids": np.ones((5, 8), "int32")}).shape
    TensorShape([3, 5])
    """

    def __init__(
        self,
        backbone: Towers,
        logit_scale: float = LOGIT_SCALE,
        logit_bias: float | None = None,
        name: str = "contrastive",
        **kwargs: Any,
    ) -> None:
        head = ContrastiveHead(logit_scale, logit_bias, name="head")
        vectors = head(*(backbone.output[f"{side}_embeddings"] for side in backbone.sides))
        super().__init__(backbone, backbone.input, Products(name="logits")(*vectors), name=name, **kwargs)
        self.logit_scale = logit_scale
        self.logit_bias = logit_bias
        self.head = head
        self.pairs = Pairs(name="pairs")(*vectors)

    def learner(self) -> FunctionalModel:
        """The model to train: one of the same layers that gives the vectors of each pair, (B, 2, E)."""
        return FunctionalModel(self.input, self.pairs, name=self.name)


class ContrastiveHead(Layer):
    """Embeddings (I, E) of images and (T, E) of texts -> vectors of both whose inner products are logits.

    The images' vectors are multiplied by exp(`logit_scale`), a weight. With a `logit_bias`, a weight too,
    they get the bias as a further entry, and the texts' vectors a 1: (I, E + 1) and (T, E + 1). Without a
    bias the scale is kept below 100, as by CLIP's authors. The arguments are the weights' first values.

    >>> images, texts = keras_tfm.heads.ContrastiveHead()(np.ones((3, 8)), np.ones((5, 8)))
    >>> images.shape, texts.shape
    (TensorShape([3, 8]), TensorShape([5, 8]))
    """

    def __init__(
        self, logit_scale: float = LOGIT_SCALE, logit_bias: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.logit_scale = logit_scale
        self.logit_bias = logit_bias

    def build(self, images_shape, texts_shape):
        def limited(x):
            return ops.minimum(x, MAX_LOGIT_SCALE)

        self.scale = self._number(
            self.logit_scale, "logit_scale", limited if self.logit_bias is None else None
        )
        self.bias = None if self.logit_bias is None else self._number(self.logit_bias, "logit_bias")

    def _number(self, value, name, constraint=None):
        return self.add_weight((), keras.initializers.Constant(value), name=name, constraint=constraint)

    def call(self, images, texts):
        """(I, E) and (T, E) -> (I, E) and (T, E), or E + 1."""
        images = images * ops.exp(ops.cast(self.scale, images.dtype))
        if self.bias is None:
            return images, texts
        return _with(images, ops.cast(self.bias, images.dtype)), _with(texts, 1)

    def compute_output_shape(self, images_shape, texts_shape):
        more = self.logit_bias is not None
        return tuple((shape[0], shape[-1] + more) for shape in (images_shape, texts_shape))


class Products(Layer):
    """Vectors (I, E) and (T, E) -> their inner products (I, T)."""

    def call(self, images, texts):
        return ops.matmul(images, ops.transpose(texts))

    def compute_output_shape(self, images_shape, texts_shape):
        return (images_shape[0], texts_shape[0])


class Pairs(Layer):
    """Vectors (B, E) and (B, E) -> (B, 2, E)."""

    def call(self, images, texts):
        return ops.stack([images, texts], axis=1)

    def compute_output_shape(self, images_shape, texts_shape):
        return (images_shape[0], 2, images_shape[-1])


def _with(x, number):
    """`x` (B, E) with `number` appended to each row."""
    return ops.concatenate([x, ops.zeros_like(x[:, :1]) + number], axis=-1)


class PairLoss(Loss, abc.ABC):
    """A loss for the vectors (B, 2, E) of `Contrastive.learner()`; the negatives are the other pairs on all
    replicas. Abstract.

    The pairing itself says what is true, so the targets are ignored. A subclass defines `combine`.

    Raises:
        ValueError: for logits (I, T), which `Contrastive` itself gives.
    """

    def call(self, _, pairs):
        """One number per pair: (B,)."""
        if len(pairs.shape) != 3 or pairs.shape[1] != 2:
            raise ValueError(
                f"A loss of pairs takes their vectors, (B, 2, E), it was given {tuple(pairs.shape)}: train "
                "the `learner()` of a `Contrastive`, which itself gives logits."
            )
        pairs = ops.cast(pairs, "float32")
        others, before = rows_of_all_replicas(pairs)  # (S, 2, E)
        rows = ops.arange(ops.shape(pairs)[0], dtype="int32") + before
        per_image, per_text = (ops.matmul(pairs[:, i], ops.transpose(others[:, 1 - i])) for i in range(2))
        return self.combine(per_image, per_text, rows)

    @abc.abstractmethod
    def combine(self, per_image, per_text, rows):
        """The loss (B,), from the logits (B, S) of each image and of each text; the right ones are at `rows`
        (B,).
        """


class SoftmaxContrast(PairLoss):
    """CLIP's loss: the mean of two cross-entropies, of the right text for an image and the right image for a
    text.

    In nats. All pairs of the whole batch are compared, also if it is distributed to several replicas.

    >>> pairs = np.stack([np.eye(2), np.eye(2)], axis=1)
    >>> round(float(keras_tfm.heads.SoftmaxContrast()(np.zeros(2), pairs)), 4)  # log(1 + 1/e)
    0.3133
    """

    def combine(self, per_image, per_text, rows):
        is_own = ops.one_hot(rows, ops.shape(per_image)[1], dtype=per_image.dtype)

        def cross_entropy(logits):
            return ops.logsumexp(logits, axis=1) - ops.sum(logits * is_own, axis=1)

        return (cross_entropy(per_image) + cross_entropy(per_text)) / 2


class SigmoidContrast(PairLoss):
    """SigLIP's loss: the cross-entropy of whether an image and a text fit, summed over the texts for each
    image.

    In nats. All pairs of the whole batch are compared, also if it is distributed to several replicas.

    >>> pairs = np.zeros((2, 2, 3))
    >>> round(float(keras_tfm.heads.SigmoidContrast()(np.zeros(2), pairs)), 4)  # 2 log 2
    1.3863
    """

    def combine(self, per_image, per_text, rows):
        signs = 2 * ops.one_hot(rows, ops.shape(per_image)[1], dtype=per_image.dtype) - 1
        return ops.sum(ops.softplus(-signs * per_image), axis=1)
