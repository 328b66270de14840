"""The head of a tracker of many objects: the classes of a frame's objects, and of those found again; and how
both learn.

Sun et al. 2020, "TransTrack: Multiple Object Tracking with Transformer", sections 3.2 and 3.3.
"""

from typing import Any

from keras import ops

from keras_tfm.heads.object_detector import ReferencedDetector
from keras_tfm.heads.set_prediction import FocalSetPredictionLoss, taken
from keras_tfm.layers.signatures import Backbone
from keras_tfm.training.model import FunctionalModel

FRAMES = "images", "previous_images"


class TrackDetector(ReferencedDetector):
    """A `ReferencedDetector` around a `TransTrack`, with its inputs.

    `logits` (B, Q, num_classes) and `boxes` (B, Q, 4) are of this frame's objects. `tracking` is a model with
    these and `track_logits` (B, Q, num_classes) and `expected_boxes` (B, Q, 4), of the objects of the frame
    before, in their order, and with the state for the next frame, `states` (B, Q, D), beside `boxes`. Train
    the `learner` of two frames with the loss of `loss_of_training`.

    >>> model = keras_tfm.heads.TrackDetector(keras_tfm.models.TransTrack.from_size("tiny"), num_classes=1)
    >>> sorted(model.tracking().output)
    ['boxes', 'expected_boxes', 'logits', 'states', 'track_logits']
    """

    def __init__(
        self, backbone: Backbone, num_classes: int, name: str = "track_detector", **kwargs: Any
    ) -> None:
        super().__init__(backbone, num_classes, name=name, **kwargs)

    def tracking(self):
        """The model that tracks, of the same layers."""
        features = self.backbone.output
        found = features["track_outputs"]
        last = self.get_layer(f"class_head_{found.shape[1] - 1}")
        outputs = {
            **self.output,
            "track_logits": last(found[:, -1]),
            "expected_boxes": features["expected_boxes"],
            "states": features["decoder_sequence_output"],
        }
        return FunctionalModel(self.input, outputs, name=self.name)

    def loss_of_training(self):
        """The loss of what `learner` gives."""
        return TrackLoss()

    def learner(self):
        """The model to train, of `images`, `previous_images` and `pixel_mask`: the frame before is seen as a
        first frame, and what is found there is the state for this one.

        Its output is what `TrackLoss` takes, (B, 2 L + 1, Q, num_classes + 4): the predictions of the L
        blocks for the frame before, of the L blocks for this frame, and of the second decoder.
        """
        inputs = {name: self.input[name] for name in (*FRAMES, "pixel_mask")}
        features = self.backbone.output
        state = {"predictions": self.predictions, "states": features["decoder_sequence_output"]}
        detecting = FunctionalModel(inputs, state, name=f"{self.name}_detecting")
        tracked = self.tracking().output
        track = [ops.cast(tracked[name], "float32") for name in ("track_logits", "expected_boxes")]
        both = ops.concatenate([self.predictions, ops.concatenate(track, axis=-1)[:, None]], axis=1)
        following = FunctionalModel(self.input, both, name=f"{self.name}_following")

        before = detecting({**inputs, "images": inputs["previous_images"]})
        boxes = ops.stop_gradient(before["predictions"][:, -1, :, -4:])
        after = following({**inputs, "track_states": before["states"], "track_boxes": boxes})
        return FunctionalModel(
            inputs, ops.concatenate([before["predictions"], after], axis=1), name=self.name
        )


class TrackLoss(FocalSetPredictionLoss):
    """The loss of both decoders of a `TrackDetector`, in nats.

    Targets are (B, M, 10): for each object its class and box, as `FocalSetPredictionLoss` has them, in the
    frame before, and the same in this frame; the class is -1 where it is not seen. Predictions (B, 2 L + 1,
    Q, C + 4) come from the `learner`. The first 2 L blocks learn as detectors. The last one's queries learn
    the objects that the last block for the frame before matched to them: where these are now, or "no object"
    if they are gone.

    >>> loss, box, other = keras_tfm.heads.TrackLoss(), [0.2, 0.2, 0.1, 0.1], [0.7, 0.7, 0.1, 0.1]
    >>> targets = np.array([[[0, *box, 0, *other]]])  # an object moves
    >>> blocks = [[[9.0, *box]], [[9.0, *other]], [[9.0, *other]]]  # before, now, of the second decoder
    >>> round(float(loss(targets, np.array([blocks]))), 2)
    0.0
    """

    def means_and_pairs(self, targets, predictions):
        targets, predictions = ops.cast(targets, "float32"), ops.cast(predictions, "float32")
        num_blocks = predictions.shape[1] // 2
        before, now = targets[..., :5], targets[..., 5:]
        parts = before, predictions[:, :num_blocks], now, predictions[:, num_blocks:-1]
        first, of_before = super().means_and_pairs(*parts[:2])
        second, of_now = super().means_and_pairs(*parts[2:])
        of_track = of_before[:, -1]  # (B, Q)
        found, query_targets = predictions[:, -1], taken(now, of_track)
        total, _ = self.class_mean(found, query_targets)
        badness = self.weights[0] * total + self.box_total(found, query_targets)
        count = ops.sum(ops.cast(query_targets[..., 0] >= 0, "float32"))
        pairs = ops.concatenate([of_before, of_now, of_track[:, None]], axis=1)
        return [*first, *second, (badness, count)], pairs
