"""The head of a tracker of many objects: the classes of a frame's objects, and of those found again.

Sun et al. 2020, "TransTrack: Multiple Object Tracking with Transformer", section 3.2.
"""

from typing import Any

from keras_tfm.heads.object_detector import ReferencedDetector
from keras_tfm.layers.signatures import Backbone
from keras_tfm.training.model import FunctionalModel


class TrackDetector(ReferencedDetector):
    """A `ReferencedDetector` around a `TransTrack`, with its inputs.

    `logits` (B, Q, num_classes) and `boxes` (B, Q, 4) are of this frame's objects. `tracking` is a model with
    these and `track_logits` (B, Q, num_classes) and `expected_boxes` (B, Q, 4), of the objects of the frame
    before, in their order, and with the state for the next frame, `states` (B, Q, D), beside `boxes`. The
    loss of training is of this frame's objects; the second decoder learns nothing by it.

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
