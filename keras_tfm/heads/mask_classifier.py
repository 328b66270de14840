"""Mask classification: a class and a mask for each query, and the class of every pixel.

Cheng et al. 2021, "Per-Pixel Classification is Not All You Need for Semantic Segmentation" (MaskFormer).
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import SetPredictor
from keras_tfm.heads.mask_set_losses import MaskMatchingLoss, MaskSetLoss, PointMaskSetLoss
from keras_tfm.heads.object_detector import check_classes
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.signatures import Backbone, Tensor

MOST_POINTS = 12_544  # at which Cheng et al. 2022 compare masks


class MaskClassifier(SetPredictor):
    """A `backbone` with `mask_features` and `decoder_outputs`, a `MaskFormer`, and a head.

    Outputs: `logits` (B, Q, num_classes + 1), whose last class is "no segment", and `masks` (B, Q, rows,
    columns), the logits of each pixel's being in a query's mask. Both come from the last decoder block;
    `predictions` (B, L, Q, num_classes + 1 + rows columns) holds the logits and masks of all L blocks, side
    by side. Train the `learner`, which outputs `predictions`, with the loss of `loss_of_training`.

    >>> backbone = keras_tfm.models.MaskFormer.from_size("tiny", image_size=32)
    >>> model = keras_tfm.heads.MaskClassifier(backbone, num_classes=3)
    >>> outputs = model({"images": np.zeros((1, 32, 32, 3))})
    >>> outputs["logits"].shape, outputs["masks"].shape
    (TensorShape([1, 16, 4]), TensorShape([1, 16, 8, 8]))
    """

    def __init__(
        self, backbone: Backbone, num_classes: int, name: str = "mask_classifier", **kwargs: Any
    ) -> None:
        check_classes(num_classes)
        states, features = (backbone.output[x] for x in ("decoder_outputs", "mask_features"))
        classes = keras.layers.Dense(num_classes + 1, name="class_head")
        last, vectors = self.mask_vectors(backbone.output)
        pixels = ops.reshape(features, (-1, features.shape[1] * features.shape[2], features.shape[3]))
        masks = ops.einsum("bqe,bne->bqn", last, pixels)
        outputs = {
            "logits": classes(states[:, -1]),
            "masks": ops.reshape(masks, (-1, states.shape[2], *features.shape[1:3])),
        }
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.num_classes = num_classes
        masks = ops.einsum("blqe,bne->blqn", vectors, pixels)
        self.predictions = ops.concatenate([classes(states), masks], axis=-1)
        self.grid = tuple(features.shape[1:3])

    def mask_vectors(self, outputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """What is multiplied with the features of pixels: the vectors of the last block (B, Q, E), and the
        vectors of all blocks (B, L, Q, E), of the backbone's `outputs`.
        """
        states, mask_dim = outputs["decoder_outputs"], outputs["mask_features"].shape[-1]
        dim = states.shape[-1]
        vectors = Chain([Dense(dim, "relu"), Dense(dim, "relu"), Dense(mask_dim)], name="mask_head")
        return vectors(states[:, -1]), vectors(states)

    def loss_of_training(self) -> MaskMatchingLoss:
        """The loss of what `learner` gives, for classes of pixels."""
        return MaskSetLoss(self.grid)

    def class_scores(self, outputs):
        """The scores of classes (B, rows, columns, C), float32, of which the largest is the answer."""
        return class_maps(outputs["logits"], outputs["masks"])

    def probabilities(self, scores):
        """The shares that the classes (..., C) have in the sum of their scores."""
        return ops.divide_no_nan(scores, ops.sum(scores, axis=-1, keepdims=True))


class PointMaskClassifier(MaskClassifier):
    """The `MaskClassifier` of a `Mask2Former`, which has predicted masks by itself; it learns by points.

    The loss of its training, a `PointMaskSetLoss`, has 12,544 points, and at most as many as the masks have
    cells.

    >>> backbone = keras_tfm.models.Mask2Former.from_size("tiny", image_size=32)
    >>> model = keras_tfm.heads.PointMaskClassifier(backbone, num_classes=3)
    >>> outputs = model({"images": np.zeros((1, 32, 32, 3))})
    >>> outputs["logits"].shape, outputs["masks"].shape
    (TensorShape([1, 16, 4]), TensorShape([1, 16, 8, 8]))
    """

    def __init__(
        self, backbone: Backbone, num_classes: int, name: str = "point_mask_classifier", **kwargs: Any
    ) -> None:
        super().__init__(backbone, num_classes, name=name, **kwargs)
        self.seed_generator = keras.random.SeedGenerator()

    def mask_vectors(self, outputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The mask vectors, by which the backbone's decoder looked: of the last block, and of all."""
        vectors = outputs["mask_vectors"]
        return vectors[:, -1], vectors

    def loss_of_training(self) -> MaskMatchingLoss:
        """The loss of what `learner` gives, for classes of pixels."""
        num_points = min(MOST_POINTS, self.grid[0] * self.grid[1])
        return PointMaskSetLoss(self.grid, num_points=num_points, seed=self.seed_generator)

    def learner(self) -> keras.Model:
        """The model to train; it holds the generator of the points, so that a checkpoint saves it."""
        model = super().learner()
        model.seed_generator = self.seed_generator
        return model


def class_maps(logits: Tensor, masks: Tensor) -> Tensor:
    """The scores of classes at each pixel, (B, rows, columns, C), by `logits` (B, Q, C + 1) and `masks` (B,
    Q, rows, columns) of a `MaskClassifier`.

    Each score is the sum over the queries of the class's probability times the probability that the pixel is
    in the mask (section 3.4); it is not a probability itself.

    >>> logits = np.array([[[9.0, 0.0, 0.0]]])  # one query, most likely of the first of two classes
    >>> masks = np.array([[[[9.0, -9.0]]]])  # of two pixels the first is in its mask
    >>> keras_tfm.heads.class_maps(logits, masks).numpy().round(2).tolist()
    [[[[1.0, 0.0], [0.0, 0.0]]]]
    """
    classes = ops.softmax(ops.cast(logits, "float32"))[..., :-1]
    return ops.einsum("bqc,bqyx->byxc", classes, ops.sigmoid(ops.cast(masks, "float32")))
