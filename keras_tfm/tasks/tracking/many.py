"""Following many objects: detections in each frame, and where the objects of the frame before are expected.

frame before, this frame, state ---> model ---> detections, expected boxes ---> associate ---> tracks
                    ^                  |                                            |
                    +----- state ------+                                         identities
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.configs import Field, FieldError
from keras_tfm.data.batches.frame_pairs import FramePairs
from keras_tfm.data.sources.tracked_videos import TrackedVideos, frame_size
from keras_tfm.data.sources.videos import fitted
from keras_tfm.layers.boxes import corners_of
from keras_tfm.serving.tracks import associate, no_tracks
from keras_tfm.serving.video_files import Video
from keras_tfm.tasks.signatures import Endpoints
from keras_tfm.tasks.tracking.kind import Seen, TrackingKind
from keras_tfm.tasks.tracking.measures import Frame, multiple_object_measures
from keras_tfm.tasks.tracking.options import TrackingTraining


class ManyObjects(TrackingKind):
    """All objects of a video, by a `TrackDetector`. Its state is what the model made of the frame before:
    `track_states` (B, Q, D) and `track_boxes` (B, Q, 4).
    """

    needs_box = False

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.network = self.model.tracking()
        self.state_shapes = {
            name: self.model.input[name].shape[1:] for name in ("track_states", "track_boxes")
        }
        self._step = tf.function(self.step, autograph=False)

    def check_examples(self, examples: TrackedVideos) -> None:
        most = self.model.backbone.config.num_queries
        for row, boxes in enumerate(examples.boxes):
            frames, counts = np.unique(boxes.frames, return_counts=True)
            if counts.max() > most:
                expected = "{}: expected at most {}, the model's queries, in a frame; frame {} of {} has {:,}"
                frame = frames[counts.argmax()]
                raise FieldError(
                    expected, Field("boxes"), most, frame, examples.videos.place(row), counts.max()
                )

    def batches(self, examples: TrackedVideos, training: TrackingTraining, is_validation: bool) -> FramePairs:
        options: dict[str, Any] = {"batch_size": training.batch_size}
        if not is_validation:
            options |= {"seed": training.seed, "flips": training.flip, "max_gap": training.max_gap or 1}
            options["areas"] = training.least_area, 1.0
        return FramePairs(examples, self.canvas, self.image_shape, **options)

    def step(
        self, images: Any, previous: Any, sizes: Any, track_states: Any, track_boxes: Any
    ) -> dict[str, Any]:
        """What the model finds in raw frames on the canvas (B, H, W, C), with the frames `previous` to them,
        of the own `sizes` (B, 2), and the state for the next frames.

        `boxes` (B, Q, 4) and `expected_boxes` (B, Q, 4), (left, top, right, bottom) in pixels of the frame,
        and `scores` (B, Q).
        """
        inputs = self.canvas.inputs(images, sizes)
        before = self.canvas.inputs(previous, sizes)["images"]
        state = {"track_states": track_states, "track_boxes": track_boxes}
        found = self.network({**inputs, "previous_images": before, **state}, training=False)
        scale = tf.cast(tf.gather(sizes, [1, 0, 1, 0], axis=1), tf.float32)[:, None]

        def in_pixels(boxes: tf.Tensor) -> tf.Tensor:
            return tf.clip_by_value(corners_of(tf.cast(boxes, tf.float32)), 0.0, 1.0) * scale

        return {
            "boxes": in_pixels(found["boxes"]),
            "scores": tf.reduce_max(self.model.probabilities(found["logits"]), axis=-1),
            "expected_boxes": in_pixels(found["expected_boxes"]),
            "track_states": tf.cast(found["states"], tf.float32),
            "track_boxes": tf.cast(found["boxes"], tf.float32),
        }

    def follow(
        self, video: Video, box: Any = None, first: int = 0, threshold: float | None = None
    ) -> Iterator[Seen]:
        least = self.config.threshold if threshold is None else threshold
        sizes = tf.constant([frame_size(video)], tf.int64)
        state = {name: tf.zeros((1, *shape)) for name, shape in self.state_shapes.items()}
        tracks, previous = no_tracks(), None
        for frame in video.frames(range(first, len(video))):
            images = tf.constant(fitted(frame, self.image_shape, self.canvas)[None])
            found = self._step(images, images if previous is None else previous, sizes, **state)
            state, before = {name: found.pop(name) for name in state}, previous is not None
            boxes, scores, expected = (
                found[name][0].numpy() for name in ("boxes", "scores", "expected_boxes")
            )
            tracks = associate(
                tracks,
                scores,
                boxes,
                expected if before else None,
                least_score=least,
                max_age=self.config.max_age,
            )
            previous, seen = images, tracks.is_seen
            yield Seen(tracks.ids[seen], tracks.boxes[seen], tracks.scores[seen])

    def measure(self, examples: TrackedVideos) -> dict[str, float]:
        """ "mota", "idf1" and "hota" with its parts; and "idf1_of_true_boxes", what the association alone
        reaches with the true boxes for detections, each expected where it was.
        """
        found, bound = [], []
        for video, boxes in zip(examples.videos.videos, examples.boxes, strict=True):
            truth = [Frame(each.ids, each.boxes) for each in map(boxes.of_frame, range(1, len(video) + 1))]
            found.append((truth, [Frame(seen.ids, seen.boxes) for seen in self.follow(video)]))
            bound.append((truth, list(self._associated(truth))))
        best = multiple_object_measures(bound)["idf1"]
        return {**multiple_object_measures(found), "idf1_of_true_boxes": best}

    def _associated(self, truth: list[Frame]) -> Iterator[Frame]:
        """The tracks that true boxes alone give."""
        tracks = no_tracks()
        for frame in truth:
            tracks = associate(tracks, np.ones(len(frame.ids)), frame.boxes, max_age=self.config.max_age)
            yield Frame(tracks.ids[tracks.is_seen], tracks.boxes[tracks.is_seen])

    def endpoints(self) -> Endpoints:
        shapes = self.state_shapes.items()
        state = [tf.TensorSpec([None, *shape], tf.float32, name) for name, shape in shapes]
        frames = [tf.TensorSpec([None], tf.string, name) for name in ("image_bytes", "previous_bytes")]
        arrays = [
            tf.TensorSpec([None, *self.image_shape], tf.float32, name)
            for name in ("images", "previous_images")
        ]
        return {
            "serving_default": (self._of_files, [*frames, *state]),
            "images": (self._of_arrays, [*arrays, *state]),
        }

    def _of_files(self, image_bytes: Any, previous_bytes: Any, track_states: Any, track_boxes: Any) -> Any:
        decoded = tf.TensorSpec(self.image_shape, tf.uint8), tf.TensorSpec((2,), tf.int64)
        (images, sizes), (previous, _) = (
            tf.map_fn(
                lambda each: self.canvas.decoded_whole(each, *self.image_shape),
                data,
                fn_output_signature=decoded,
            )
            for data in (image_bytes, previous_bytes)
        )
        return self.step(images, previous, sizes, track_states, track_boxes)

    def _of_arrays(self, images: Any, previous_images: Any, track_states: Any, track_boxes: Any) -> Any:
        sizes = tf.broadcast_to(tf.constant(self.image_shape[:2], tf.int64), (tf.shape(images)[0], 2))
        return self.step(images, previous_images, sizes, track_states, track_boxes)
