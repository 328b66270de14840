"""Images and texts told apart by one another: logits of all pairs in a batch, and the losses of them.

CLIP (Radford et al. 2021, "Learning Transferable Visual Models From Natural Language Supervision") chooses
the right one of all texts for an image, and of all images for a text, by softmax. SigLIP (Zhai et al. 2023,
"Sigmoid Loss for Language Image Pre-Training") decides for each pair by itself.
"""

import abc
import math

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.layers.base import Layer
from keras_tfm.registry import register
from keras_tfm.training.replicas import rows_of_all_replicas

LOGIT_SCALE = math.log(1 / 0.07)
MAX_LOGIT_SCALE = math.log(100)  # Radford et al. 2021, section 2.5


class Contrastive(ModelWithHead):
    """A `backbone` of two towers and the logits' scale: B pairs of an image and a text in, vectors out.

    The output (B, 2, E) holds an image's and a text's vector, whose inner products are logits:
    `logits_per_image` gives all of them. So a loss can compare them with those of other replicas, and rows
    of a batch do not depend on each other. `logit_scale` is the first value of the logarithm of what the
    cosines are multiplied by, `logit_bias` that of a number which is added, None for no such number: CLIP
    begins with log(1 / 0.07) and None, SigLIP with log(10) and -10. To learn, `fit` takes inputs and a target
    for each that is not looked at, with the loss `SoftmaxContrast` or, with a bias, `SigmoidContrast`.
    """

    def __init__(self, backbone, logit_scale=LOGIT_SCALE, logit_bias=None, name="contrastive", **kwargs):
        head = ContrastiveHead(logit_scale, logit_bias, name="head")
        outputs = head(backbone.output["image_embeddings"], backbone.output["text_embeddings"])
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.logit_scale = logit_scale
        self.logit_bias = logit_bias
        self.head = head

    def compare(self, images, texts):
        """The logits (I, T) of `images` (I, H, W, C) and `texts`, the inputs of T texts by name."""
        images = self.backbone.image({"images": images})["embeddings"]
        texts = self.backbone.text(texts)["embeddings"]
        return ops.matmul(self.head.image_vectors(images), ops.transpose(self.head.text_vectors(texts)))


class ContrastiveHead(Layer):
    """Embeddings (B, E) of images and of texts -> vectors (B, 2, E) whose inner products are logits.

    The images' are multiplied by exp(`logit_scale`), a weight. With a `logit_bias`, a weight too, they have a
    further number, and the texts' a 1: (B, 2, E + 1). Without one the scale stays below 100, as the authors
    of CLIP have it.
    """

    def __init__(self, logit_scale=LOGIT_SCALE, logit_bias=None, **kwargs):
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
        self.built = True

    def _number(self, value, name, constraint=None):
        return self.add_weight((), keras.initializers.Constant(value), name=name, constraint=constraint)

    def call(self, images, texts):
        """(B, E) and (B, E) -> (B, 2, E), or (B, 2, E + 1)."""
        return ops.stack([self.image_vectors(images), self.text_vectors(texts)], axis=1)

    def image_vectors(self, x):
        """Those of images (I, E)."""
        y = x * ops.exp(ops.cast(self.scale, x.dtype))
        return y if self.bias is None else _with(y, ops.cast(self.bias, x.dtype))

    def text_vectors(self, x):
        """Those of texts (T, E)."""
        return x if self.bias is None else _with(x, 1)

    def compute_output_shape(self, images_shape, texts_shape):
        return (images_shape[0], 2, images_shape[-1] + (self.logit_bias is not None))


def _with(x, number):
    """`x` (B, E) and a `number` behind each row."""
    return ops.concatenate([x, ops.zeros_like(x[:, :1]) + number], axis=-1)


def logits_per_image(pairs):
    """The logits (B, B) of each image, a row, and each text, of `Contrastive`'s output (B, 2, E)."""
    return ops.matmul(pairs[:, 0], ops.transpose(pairs[:, 1]))


class PairLoss(keras.losses.Loss, abc.ABC):
    """A loss of `Contrastive`'s output (B, 2, E) with the pairs of all replicas as its negatives. Abstract.

    What is true is the pairing: the targets are not looked at. A subclass gives `combine`.
    """

    def __init__(self, name="loss", **kwargs):
        super().__init__(name=name, **kwargs)

    def call(self, _, pairs):
        """One number for each pair (B,)."""
        pairs = ops.cast(pairs, "float32")
        others, before = rows_of_all_replicas(pairs)  # (S, 2, E)
        rows = ops.arange(ops.shape(pairs)[0], dtype="int32") + before
        per_image, per_text = (ops.matmul(pairs[:, i], ops.transpose(others[:, 1 - i])) for i in range(2))
        return self.combine(per_image, per_text, rows)

    @abc.abstractmethod
    def combine(self, per_image, per_text, rows):
        """The loss (B,) by the logits (B, S) of each image and of each text, whose own are at `rows` (B,)."""


@register
class SoftmaxContrast(PairLoss):
    """Cross-entropy, in nats, of the right text among all of them and of the right image, their mean (CLIP).

    The texts and images are those of the whole batch, also where it is dealt to several replicas.
    """

    def combine(self, per_image, per_text, rows):
        is_own = ops.one_hot(rows, ops.shape(per_image)[1], dtype=per_image.dtype)

        def cross_entropy(logits):
            return ops.logsumexp(logits, axis=1) - ops.sum(logits * is_own, axis=1)

        return (cross_entropy(per_image) + cross_entropy(per_text)) / 2


@register
class SigmoidContrast(PairLoss):
    """Cross-entropy, in nats, of whether an image and a text fit, summed over an image's texts (SigLIP).

    The texts are those of the whole batch, also where it is dealt to several replicas.
    """

    def combine(self, per_image, per_text, rows):
        signs = 2 * ops.one_hot(rows, ops.shape(per_image)[1], dtype=per_image.dtype) - 1
        return ops.sum(ops.softplus(-signs * per_image), axis=1)
