"""Classes of pixels: a backbone, a decoder of its maps, a linear layer; and the loss.

Xie et al. 2021, "SegFormer", and Zheng et al. 2021, SETR, whose decoders stand in `map_decoders.py`.
"""

import math
from typing import Any

from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.loss import SumOfMeans
from keras_tfm.heads.map_decoders import (
    MLPDecoder,
    MultiLevelDecoder,
    NaiveDecoder,
    ProgressiveDecoder,
    maps_of,
)
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.regularization import Dropout
from keras_tfm.layers.resizing import resize_bilinear
from keras_tfm.layers.signatures import Backbone

DECODERS = ("mlp", "naive", "pup", "mla", "linear")
IGNORED = 255  # the label of pixels that count nowhere, by the custom of data sets


class SemanticSegmenter(ModelWithHead):
    """A `backbone` and a decoder of its maps: images (B, H, W, C) in, logits (B, rows, columns, classes) out.

    `decoder` is "mlp", SegFormer's, whose logits have the size of the backbone's first map; or one of SETR's:
    "naive" of the last map's size, "pup" and "mla" up to the image's. "linear" is none, for a backbone whose
    first map has features of pixels, as MedT. `dim` is the decoder's width, `dropout`
    acts on its output, before the linear layer of the classes. The loss, and a task, resize logits to the
    size of a mask. A backbone is one with `maps`, or one that keeps patches to its end, a ViT for example.

    >>> backbone = keras_tfm.models.MiT(keras_tfm.models.tiny_config(keras_tfm.models.MiT))
    >>> model = keras_tfm.heads.SemanticSegmenter(backbone, num_classes=3)
    >>> model({"images": np.zeros((1, 32, 32, 3))}).shape
    TensorShape([1, 16, 16, 3])
    """

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        decoder: str = "mlp",
        dim: int = 256,
        dropout: float = 0.1,
        name: str = "semantic_segmenter",
        **kwargs: Any,
    ) -> None:
        if num_classes < 2:
            raise ValueError(
                f"`num_classes` must be at least 2, the ground one of them; it is {num_classes}."
            )
        maps = maps_of(backbone)
        height = backbone.input["images"].shape[1]
        x = maps[0] if decoder == "linear" else decoder_of(decoder, dim, height, maps)(maps)
        x = Dropout(dropout, name="dropout")(x)
        logits = Dense(num_classes, name="classes")(x)
        super().__init__(backbone, backbone.input, logits, name=name, **kwargs)
        self.num_classes = num_classes
        self.decoder = decoder
        self.dim = dim
        self.dropout = dropout

    def loss_of_training(self):
        """The loss of what `learner` gives."""
        return SegmentationLoss()

    def learner(self):
        """The model to train."""
        return self

    def class_scores(self, outputs):
        """The scores of classes (B, rows, columns, C), float32, of which the largest is the answer."""
        return ops.cast(outputs, "float32")

    def probabilities(self, scores):
        """The probabilities of the classes (..., C), by their scores."""
        return ops.softmax(scores)


def decoder_of(kind, dim, height, maps):
    """The decoder of a `kind` for these `maps` of images of a `height`; ValueError for no kind."""
    if kind not in DECODERS:
        raise ValueError(f"`decoder` must be one of {', '.join(DECODERS)}; it is {kind!r}.")
    if kind == "mlp":
        return MLPDecoder(dim, name="decoder")
    if kind == "naive":
        return NaiveDecoder(dim, name="decoder")
    if kind == "pup":
        return ProgressiveDecoder(dim, int(math.log2(max(1, height // maps[-1].shape[1]))), name="decoder")
    return MultiLevelDecoder(dim, max(1, min(4, height // maps[0].shape[1])), name="decoder")


class SegmentationLoss(SumOfMeans):
    """The cross-entropy of the pixels' labels, in nats, averaged over the pixels that have one.

    Targets are labels (B, H, W), `ignored` where a pixel counts nowhere; predictions are logits (B, rows,
    columns, classes), which are resized to (H, W). Its denominator is the number of labelled pixels of the
    whole batch, over all replicas.

    >>> loss = keras_tfm.heads.SegmentationLoss()
    >>> labels = np.array([[[0, 255]]])  # two pixels, the second without a label
    >>> round(float(loss(labels, np.zeros((1, 1, 2, 2)))), 4)  # log 2
    0.6931
    """

    def __init__(self, ignored: int = IGNORED, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ignored = ignored

    def means(self, targets, logits):
        targets = ops.cast(targets, "int32")
        logits = resize_bilinear(ops.cast(logits, "float32"), ops.shape(targets)[1:3])
        is_labelled = ops.not_equal(targets, self.ignored)
        entropies = ops.sparse_categorical_crossentropy(ops.where(is_labelled, targets, 0), logits, True)
        # Not a product: what a pixel without a label may give is no number.
        total = ops.sum(ops.where(is_labelled, entropies, 0.0))
        return [(total, ops.sum(ops.cast(is_labelled, "float32")))]
