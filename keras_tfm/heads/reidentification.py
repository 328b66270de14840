"""Finding the same person or car again: the neck between vectors that are compared and classes that are
learnt, and the loss of both.

Luo et al. 2019, "Bag of Tricks and A Strong Baseline for Deep Person Re-identification", section 3.5; He et
al. 2021, "TransReID: Transformer-based Object Re-Identification", sections 3.1 and 3.4.
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.loss import SumOfMeans
from keras_tfm.layers.convolution import BatchNormalization
from keras_tfm.layers.signatures import Backbone
from keras_tfm.training.model import FunctionalModel
from keras_tfm.training.replicas import rows_of_all_replicas


class Reidentifier(ModelWithHead):
    """A `backbone` with a vector of the whole image, `pooled_output`, and perhaps vectors of P parts,
    `local_outputs`, as `TransReID` has them; and a neck on each vector: batch normalisation without a shift,
    then classes without a bias.

    Outputs: `embeddings` (B, (1 + P) D), the whole vector beside the vectors of the parts divided by P, to be
    compared by their cosines; `logits` (B, num_classes) of the whole, and `local_logits` (B, P, num_classes).
    Train the `learner` with the loss of `loss_of_training`; its output `predictions` (B, 1 + P, num_classes +
    D) is the logits of each neck and the vector before it. Classes are the identities of the training; other
    identities can be looked for later.

    >>> backbone = keras_tfm.models.TransReID.from_size("tiny")
    >>> model = keras_tfm.heads.Reidentifier(backbone, num_classes=7)
    >>> model({"images": np.zeros((2, 64, 32, 3))})["embeddings"].shape
    TensorShape([2, 640])
    """

    def __init__(
        self, backbone: Backbone, num_classes: int, name: str = "reidentifier", **kwargs: Any
    ) -> None:
        if num_classes < 1:
            raise ValueError(f"`num_classes` must be at least 1; it is {num_classes}.")
        vectors = ops.expand_dims(backbone.output["pooled_output"], 1)
        embeddings = [vectors[:, 0]]
        if (local := backbone.output.get("local_outputs")) is not None:
            vectors = ops.concatenate([vectors, local], axis=1)  # (B, 1 + P, D)
            embeddings += [local[:, i] / local.shape[1] for i in range(local.shape[1])]
        logits = []
        for i in range(vectors.shape[1]):
            neck = BatchNormalization(center=False, name=f"neck_{i}")(vectors[:, i])
            logits.append(keras.layers.Dense(num_classes, use_bias=False, name=f"classes_{i}")(neck))
        outputs = {"logits": logits[0], "embeddings": ops.concatenate(embeddings, axis=-1)}
        if local is not None:
            outputs["local_logits"] = ops.stack(logits[1:], axis=1)
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.num_classes = num_classes
        self.predictions = ops.concatenate([ops.stack(logits, axis=1), vectors], axis=-1)

    def loss_of_training(self) -> keras.losses.Loss:
        """The loss of what `learner` gives."""
        return ReidentificationLoss(self.num_classes)

    def learner(self) -> keras.Model:
        """The model to train: one of the same layers that gives `predictions`."""
        return FunctionalModel(self.input, self.predictions, name=self.name)


class ReidentificationLoss(SumOfMeans):
    """The loss of a `Reidentifier`, in nats: half of the whole vector's, half the mean of the parts'.

    Labels are identities (B,), predictions (B, 1 + P, `num_classes` + D). A vector's loss is the
    cross-entropy of its logits and the triplet loss log(1 + exp(p - n)), p its distance from the farthest
    vector of its own identity in the batch, n from the nearest of another; without another it is 0. A batch
    has several images of each of several identities, and is compared whole, on other replicas too. Hermans et
    al. 2017, "In Defense of the Triplet Loss for Person Re-Identification", section 2.

    >>> loss = keras_tfm.heads.ReidentificationLoss(num_classes=2)
    >>> round(float(loss(np.array([0, 1]), np.array([[[9.0, -9.0, 50.0]], [[-9.0, 9.0, 0.0]]]))), 3)
    0.0
    """

    def __init__(self, num_classes: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_classes = num_classes

    def means(self, labels, predictions):
        labels, predictions = ops.cast(labels, "int32"), ops.cast(predictions, "float32")
        labels = ops.reshape(labels, (-1,))
        num_vectors = predictions.shape[1]
        logits, vectors = ops.split(predictions, [self.num_classes], axis=-1)  # (B, 1 + P, .)
        (others, _), (other_labels, _) = map(rows_of_all_replicas, (vectors, labels))
        weights = [1.0] if num_vectors == 1 else [0.5] + [0.5 / (num_vectors - 1)] * (num_vectors - 1)
        total = 0.0
        for i, weight in enumerate(weights):
            entropies = ops.sparse_categorical_crossentropy(labels, logits[:, i], True)
            triplets = hardest_triplets(labels, vectors[:, i], other_labels, others[:, i])
            total += weight * ops.sum(entropies + triplets)
        return [(total, ops.cast(ops.shape(labels)[0], "float32"))]


def hardest_triplets(labels, vectors, other_labels, others):
    """log(1 + exp(p - n)) of each of the `vectors` (B, D), see `ReidentificationLoss`, among all `others` (S,
    D) of the batch, of the identities `other_labels`: (B,).
    """
    squares = ops.sum(ops.square(vectors[:, None] - others[None]), axis=-1)  # (B, S)
    distances = ops.sqrt(ops.maximum(squares, 1e-12))  # the root of 0 has no gradient
    is_same = labels[:, None] == other_labels[None]
    farthest = ops.max(ops.where(is_same, distances, 0.0), axis=1)
    nearest = ops.min(ops.where(is_same, float("inf"), distances), axis=1)
    return ops.softplus(farthest - nearest)
