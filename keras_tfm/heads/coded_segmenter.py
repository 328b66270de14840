"""ISTR's head: the class and the box of each query, and the mask in the box by a code of few numbers.

Hu et al. 2021, "ISTR: End-to-End Instance Segmentation with Transformers".
"""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.heads.base import SetPredictor
from keras_tfm.heads.mask_codes import MaskCodec
from keras_tfm.heads.mask_losses import NO_IMAGE, dice_loss, matched_masks, segments_of
from keras_tfm.heads.object_detector import check_classes, class_head
from keras_tfm.heads.panoptic_loss import boxes_around
from keras_tfm.heads.set_prediction import FocalSetPredictionLoss
from keras_tfm.layers.attention.deformable import sample_bilinear
from keras_tfm.layers.boxes import corners_of, corners_of_masks
from keras_tfm.layers.signatures import Backbone, Tensor

CELLS = 4  # sides of a mask, in sides of the region that its code is made from
MOST_FITTED = 4_096  # masks from which the code is made


class CodedSegmenter(SetPredictor):
    """An `ISTR` as `backbone` and a head: images in, Q objects out, each with a mask in its box.

    Outputs: `logits` (B, Q, num_classes), whose sigmoid is the probability of a class, the mean over all
    stages but the first; the last stage's `boxes` (B, Q, 4), (x, y, width, height) around the centre as parts
    of the image's sides, padding apart; and `masks` (B, Q, side, side), the logits of the cells of a box.
    `predictions` (B, L, Q, num_classes + K + 4) hold the logits, codes and boxes of all L stages. Before
    training, `fit_codes` makes the code of masks; the weights keep it. Train the `learner`, which outputs
    `predictions`, with the loss of `loss_of_training`.

    >>> backbone = keras_tfm.models.ISTR.from_size("tiny", image_size=32)
    >>> model = keras_tfm.heads.CodedSegmenter(backbone, num_classes=3)
    >>> {name: x.shape[1:] for name, x in model.output.items()}
    {'logits': (16, 3), 'boxes': (16, 4), 'masks': (16, 32, 32)}
    """

    def __init__(
        self, backbone: Backbone, num_classes: int, name: str = "coded_segmenter", **kwargs: Any
    ) -> None:
        check_classes(num_classes)
        states = backbone.output["decoder_outputs"]
        boxes, codes = (ops.cast(backbone.output[x], "float32") for x in ("decoder_boxes", "mask_codes"))
        num_stages = states.shape[1]
        heads = [class_head(num_classes, f"class_head_{i}") for i in range(num_stages)]
        logits = ops.stack([head(states[:, i]) for i, head in enumerate(heads)], axis=1)
        config: Any = backbone.config
        codec = MaskCodec(CELLS * config.mask_region_size, codes.shape[-1], name="mask_codec")
        outputs = {
            "logits": ops.mean(logits[:, min(1, num_stages - 1) :], axis=1),
            "boxes": boxes[:, -1],
            "masks": codec(codes[:, -1]),
        }
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.num_classes = num_classes
        self.codec = codec
        self.predictions = ops.concatenate([ops.cast(logits, "float32"), codes, boxes], axis=-1)

    def loss_of_training(self):
        """The loss of what `learner` gives, for a set of masks."""
        return CodedSetLoss(self.num_classes, self.codec)

    def learner(self):
        """The model to train; it holds the code of masks, so that its weights are saved with the others."""
        model = super().learner()
        model.codec = self.codec
        return model

    def fit_codes(self, targets: Iterable[Tensor]) -> None:
        """Fit the code of masks, unless it is fitted, to the first `MOST_FITTED` masks of `targets`, sets of
        masks as the loss takes them. ValueError where there are none.
        """
        if self.codec.is_fitted:
            return
        crops: list[np.ndarray] = []
        for batch in targets:
            classes, masks = segments_of(batch)
            found = cropped(masks, corners_of_masks(masks), self.codec.side)
            crops.extend(ops.convert_to_numpy(found)[ops.convert_to_numpy(classes) >= 0])
            if len(crops) >= MOST_FITTED:
                break
        if not crops:
            raise ValueError("masks: expected some, to make a code of them; there are none")
        self.codec.fit(np.stack(crops[:MOST_FITTED]))

    @staticmethod
    def probabilities(logits):
        """The probabilities of the classes, (..., num_classes)."""
        return ops.sigmoid(ops.cast(logits, "float32"))


class CodedSetLoss(FocalSetPredictionLoss):
    """ISTR's loss of a set of objects with coded masks, of a `CodedSegmenter`, in nats.

    Targets are a set of masks (B, M, H, W), as of `PanopticSetLoss`; an object's box is the smallest one
    around its pixels, its code the `codec`'s of the mask in this box. Predictions are (B, L, Q, num_classes +
    K + 4). The loss is `FocalSetPredictionLoss`, and over the number of objects the smooth L1 distance of
    codes, averaged over their K numbers, and the dice loss of decoded masks, with the `code_weights`. To the
    cost of a pair it adds `code_cost` times -(cosine of the codes + 1) / 2.

    >>> codec = keras_tfm.heads.MaskCodec(side=2, code_dim=1)
    >>> codec.fit(np.array([[[1, 1], [1, 0]], [[1, 1], [0, 1]]]))
    >>> loss = keras_tfm.heads.CodedSetLoss(1, codec, code_weights=(1.0, 0.0))
    >>> targets = np.array([[[[1, 1], [1, 0]]]])  # one object, in a box that is the image
    >>> code = float(codec.encode(np.array([[1, 1], [1, 0]]))[0])
    >>> query = [99.0, code, 0.5, 0.5, 1.0, 1.0]  # the class, the code, the box
    >>> round(float(loss(targets, np.array([[[query]]]))), 4)  # all of it is right
    0.0
    """

    def __init__(
        self,
        num_classes: int,
        codec: MaskCodec,
        weights: Sequence[float] = (2.0, 5.0, 2.0),
        code_weights: Sequence[float] = (1.0, 5.0),
        code_cost: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(weights, **kwargs)
        self.num_classes = num_classes
        self.codec = codec
        self.code_weights = tuple(code_weights)
        self.code_cost = code_cost

    def means(self, targets, predictions):
        predictions = ops.cast(predictions, "float32")
        _, num_blocks, num_queries, _ = predictions.shape
        classes, segments = segments_of(targets)
        num_segments = classes.shape[1]
        boxes = boxes_around(segments, ops.not_equal(ops.cast(targets[:, :1], "int32"), NO_IMAGE))
        masks = cropped(segments, corners_of_masks(segments), self.codec.side)  # (B, M, side, side)
        codes = self.codec.encode(masks)  # (B, M, K)
        truth = ops.concatenate([ops.cast(classes, "float32")[..., None], boxes, codes], axis=-1)
        means, of_query = self.means_and_pairs(truth, predictions)
        own = ops.reshape(self.codes_of(predictions), (-1, num_queries, codes.shape[-1]))  # (B L, Q, K)
        of_query = ops.reshape(of_query, (-1, num_queries))
        own, is_matched = matched_masks(own, of_query, num_segments)  # (B L, M, K), (B L, M)
        masks = ops.reshape(masks, (-1, num_segments, self.codec.side**2))
        masks, codes = (ops.repeat(x, num_blocks, axis=0) for x in (masks, codes))
        of_code, of_dice = self.code_weights
        badness = of_code * smooth_distance(codes, own)
        badness += of_dice * dice_loss(masks, ops.reshape(self.codec.code.logits(own), ops.shape(masks)))
        return [*means, (ops.sum(is_matched * badness), ops.sum(ops.cast(classes >= 0, "float32")))]

    def pair_costs(self, targets, predictions):
        """What each pair of a query and a target (class, box, code) would cost: (B, Q, M)."""
        codes, own = (_unit(x) for x in (targets[..., 5:], self.codes_of(predictions)))
        cosines = ops.einsum("bqk,bmk->bqm", own, codes)
        return super().pair_costs(targets[..., :5], predictions) - self.code_cost * (cosines + 1) / 2

    def box_total(self, predictions, query_targets):
        return super().box_total(predictions, query_targets[..., :5])

    def logits_of(self, predictions):
        return predictions[..., : self.num_classes]

    def codes_of(self, predictions):
        """The codes (..., K) in the `predictions` (..., num_classes + K + 4)."""
        return predictions[..., self.num_classes : -4]

    def get_config(self):
        codec = keras.saving.serialize_keras_object(self.codec)
        return super().get_config() | {"codec": codec}

    @classmethod
    def from_config(cls, config):
        """The loss of a configuration; its codec has fresh weights."""
        return cls(**{**config, "codec": keras.saving.deserialize_keras_object(config["codec"])})


def smooth_distance(targets, numbers):
    """The smooth L1 distance of vectors (..., K), averaged over their numbers: half the square below 1, the
    difference less one half above (Girshick 2015, "Fast R-CNN", eq. 3).
    """
    apart = ops.abs(numbers - targets)
    return ops.mean(ops.where(apart < 1, ops.square(apart) / 2, apart - 0.5), axis=-1)


def cropped(masks: Tensor, corners: Tensor, side: int) -> Tensor:
    """What masks (B, M, H, W), 0 or 1, have in boxes (left, top, right, bottom), in pixels (B, M, 4): masks
    (B, M, `side`, `side`), 1 where the value between the centres of pixels is one half or more.
    """
    count, height, width = masks.shape[1:]
    centres = (np.arange(side, dtype="float32") + 0.5) / side
    first, last = corners[..., None, :2], corners[..., None, 2:]
    places = first + centres[:, None] * (last - first)  # (B, M, side, 2)
    places = places / np.array([width, height], "float32")
    x, y = (ops.reshape(places[..., i], (-1, side)) for i in (0, 1))
    shape = (ops.shape(x)[0], side, side)
    points = ops.stack([ops.broadcast_to(x[:, None], shape), ops.broadcast_to(y[:, :, None], shape)], axis=-1)
    maps = ops.reshape(ops.cast(masks, "float32"), (-1, height, width, 1))
    values = sample_bilinear(maps, ops.reshape(points, (-1, side * side, 2)))
    return ops.cast(ops.reshape(values, (-1, count, side, side)) >= 0.5, "float32")


def pasted(masks: Tensor, boxes: Tensor, size: tuple[Any, Any]) -> Tensor:
    """Masks (N, side, side) in boxes (x, y, width, height), parts of the image's sides, (N, 4), on images of
    the `size` (H, W): (N, H, W), 0 outside of the boxes. Between the centres of cells they are linear.

    >>> box = np.array([[0.75, 0.5, 0.5, 1.0]])  # the right half
    >>> from keras_tfm.heads.coded_segmenter import pasted
    >>> pasted(np.ones((1, 2, 2)), box, (1, 4)).numpy().tolist()
    [[[0.0, 0.0, 1.0, 1.0]]]
    """
    masks, corners = ops.cast(masks, "float32"), corners_of(ops.cast(boxes, "float32"))
    (rows, columns), (height, width) = masks.shape[1:], size
    down = _weights(corners[:, 1], corners[:, 3], rows, height)
    across = _weights(corners[:, 0], corners[:, 2], columns, width)
    return ops.einsum("nhi,nij,nwj->nhw", down, masks, across)


def _weights(first, last, count, length):
    """How much each of `count` cells from `first` to `last` (N,), parts of a side, has of each of `length`
    pixels: (N, `length`, `count`).
    """
    centres = (ops.cast(ops.arange(length), "float32") + 0.5) / ops.cast(length, "float32")
    share = ops.divide_no_nan(centres - first[:, None], (last - first)[:, None])  # (N, length)
    place = ops.clip(share * count - 0.5, 0, count - 1)[..., None]
    weights = ops.maximum(0.0, 1 - ops.abs(place - ops.arange(count, dtype="float32")))
    is_inside = ops.logical_and(centres >= first[:, None], centres <= last[:, None])
    return ops.where(is_inside[..., None], weights, 0.0)


def _unit(x):
    """Vectors (..., K) of the length 1; zeros stay."""
    return ops.divide_no_nan(x, ops.sqrt(ops.sum(ops.square(x), axis=-1, keepdims=True)))
