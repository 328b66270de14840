"""Following one object: a template of it, cut from the first frame, is searched near where it last was.

    first frame, its box ---> template --+
                                         +--> model ---> a score and a box for each cell ---> box
    this frame, last box ---> search ----+    scores lose by the distance from the middle
                    ^                                                                          |
                    +--------------------------------------------------------------------------+

Chen et al. 2021, "Transformer Tracking", section 3.4.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.configs import FieldError
from keras_tfm.data.batches.search_windows import SEARCH, TEMPLATE, TargetPairs, side_of, window
from keras_tfm.data.sources.tracked_videos import TrackedVideos, pixels_of
from keras_tfm.layers.boxes import corners_of
from keras_tfm.serving.video_files import Video
from keras_tfm.tasks.signatures import Endpoints
from keras_tfm.tasks.tracking.kind import Seen, TrackingKind
from keras_tfm.tasks.tracking.measures import single_object_measures
from keras_tfm.tasks.tracking.options import TrackingTraining

LEAST_SIDE = 10.0  # of an object, in pixels
GAP = 100  # frames between template and search at most, in training


class OneObject(TrackingKind):
    """One object, given in the first frame, by a `TargetDetector` or a `HeatmapDetector`. Its state is the
    last box.
    """

    needs_box = True

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        if self.canvas.keep_aspect:
            raise FieldError("{keep_aspect} is of many objects: what surrounds one is cut out as a square.")
        self.template_shape: tuple[int, int, int] = tuple(self.model.input["template_images"].shape[1:])
        grid = self.model.backbone.grid
        rows, columns = (np.hanning(length) for length in grid)
        self.middle = tf.constant(np.outer(rows, columns).ravel(), tf.float32)  # (N,)
        frame = tf.TensorSpec([None, None, self.image_shape[-1]], tf.uint8)
        specs = [
            tf.TensorSpec([None, *self.template_shape], tf.float32),
            frame,
            tf.TensorSpec([4], tf.float32),
        ]
        self._template = tf.function(self.template, input_signature=[frame, specs[2]], autograph=False)
        self._step = tf.function(self._search, input_signature=specs, autograph=False)

    def check_examples(self, examples: TrackedVideos) -> None:
        pass  # any number of objects: each is an example

    def batches(
        self, examples: TrackedVideos, training: TrackingTraining, is_validation: bool
    ) -> TargetPairs:
        if training.least_area != 1:
            raise FieldError("{least_area} is of many objects: what surrounds one is cut out in any case.")
        options: dict[str, Any] = {"batch_size": training.batch_size, "max_gap": training.max_gap or GAP}
        if not is_validation:
            options |= {"seed": training.seed, "flips": training.flip}
        return TargetPairs(examples, self.canvas, self.template_shape, self.image_shape, **options)

    def template(self, image: tf.Tensor, box: tf.Tensor) -> tf.Tensor:
        """What shows the object in an `image` (H, W, C), from 0 to 1, of the template's shape; the `box` is
        (left, top, right, bottom) in pixels.
        """
        return self._window(image, box, TEMPLATE, self.template_shape)

    def _window(self, image: tf.Tensor, box: tf.Tensor, margin: float, shape: tuple) -> tf.Tensor:
        image = tf.cast(image, tf.float32) / 255 if image.dtype == tf.uint8 else image
        return window(image, (box[:2] + box[2:]) / 2, side_of(box[2:] - box[:2], margin), shape[:2])

    def found(self, templates: Any, searched: Any, boxes: Any, sizes: Any) -> dict[str, tf.Tensor]:
        """Where the objects are now, `boxes` (B, 4), and the `scores` (B,) of the cells that say so, for raw
        windows, the last `boxes` (B, 4), around which the searched windows are, and the frames' `sizes`
        (B, 2).
        """
        inputs = {"template_images": templates, "images": searched}
        prepared = {name: self.canvas.normalized(x) for name, x in inputs.items()}
        outputs = {name: tf.cast(x, tf.float32) for name, x in self.model(prepared, training=False).items()}
        penalty = self.config.penalty
        best = tf.argmax(outputs["scores"] * (1 - penalty) + self.middle * penalty, axis=-1)  # (B,)
        scores, cells = (tf.gather(outputs[name], best, batch_dims=1) for name in ("scores", "boxes"))
        side = side_of(boxes[:, 2:] - boxes[:, :2], SEARCH)[:, None]
        limits = tf.cast(sizes[:, ::-1], tf.float32)  # width, height
        centre = (boxes[:, :2] + boxes[:, 2:]) / 2 + (cells[:, :2] - 0.5) * side
        size = tf.maximum(tf.minimum(cells[:, 2:] * side, limits), LEAST_SIDE)
        moved = tf.concat([tf.clip_by_value(centre, 0.0, limits), size], axis=-1)
        return {"boxes": corners_of(moved), "scores": scores}

    def _search(self, template: Any, image: Any, box: Any) -> dict[str, tf.Tensor]:
        searched = self._window(image, box, SEARCH, self.image_shape)
        sizes = tf.shape(image)[None, :2]
        return self.found(template, searched[None], box[None], sizes)

    def follow(
        self, video: Video, box: Any = None, first: int = 0, threshold: float | None = None
    ) -> Iterator[Seen]:
        box, template = tf.constant(box, tf.float32), None
        for frame in video.frames(range(first, len(video))):
            image = tf.constant(pixels_of(frame, self.image_shape[-1]))
            if template is None:
                template = self._template(image, box)[None]
                found = {"boxes": box[None], "scores": tf.ones(1)}
            else:
                found = self._step(template, image, box)
            box = found["boxes"][0]
            yield Seen(np.ones(1, "int64"), found["boxes"].numpy().astype("float64"), found["scores"].numpy())

    def measure(self, examples: TrackedVideos) -> dict[str, float]:
        """ "auc" and "precision", means over the objects, each of which is followed from the first frame that
        shows it; and the same of a box that stays where it was.
        """
        found = []
        for video, boxes in zip(examples.videos.videos, examples.boxes, strict=True):
            for identity in np.unique(boxes.ids):
                own = boxes.ids == identity
                frames, corners = boxes.frames[own] - 1, boxes.boxes[own]
                truth = np.zeros((len(video), 4))
                truth[frames] = corners
                first = int(frames.min())
                seen = self.follow(video, truth[first], first)
                truth = truth[first:]
                still = single_object_measures(truth, np.broadcast_to(truth[:1], truth.shape))
                measures = single_object_measures(truth, np.concatenate([each.boxes for each in seen]))
                found.append(measures | {f"{name}_of_a_still_box": x for name, x in still.items()})
        return {name: float(np.mean([each[name] for each in found])) for name in found[0]}

    def endpoints(self) -> Endpoints:
        boxes = [tf.TensorSpec([None, 4], tf.float32, name) for name in ("template_boxes", "boxes")]
        files = [tf.TensorSpec([None], tf.string, name) for name in ("template_bytes", "image_bytes")]
        shape = [None, None, None, self.image_shape[-1]]
        arrays = [tf.TensorSpec(shape, tf.float32, name) for name in ("template_images", "images")]
        return {
            "serving_default": (self._of_files, [files[0], boxes[0], files[1], boxes[1]]),
            "images": (self._of_arrays, [arrays[0], boxes[0], arrays[1], boxes[1]]),
        }

    def _of_files(self, template_bytes: Any, template_boxes: Any, image_bytes: Any, boxes: Any) -> Any:
        return self._of_frames(self.decoded, template_bytes, template_boxes, image_bytes, boxes)

    def _of_arrays(self, template_images: Any, template_boxes: Any, images: Any, boxes: Any) -> Any:
        return self._of_frames(tf.identity, template_images, template_boxes, images, boxes)

    def _of_frames(self, decode: Any, first: Any, first_boxes: Any, frames: Any, boxes: Any) -> Any:
        def windows(each: tuple) -> tuple:
            image = decode(each[2])
            searched = self._window(image, each[3], SEARCH, self.image_shape)
            return self.template(decode(each[0]), each[1]), searched, tf.shape(image)[:2]

        shapes = self.template_shape, self.image_shape
        kinds = (*(tf.TensorSpec(shape, tf.float32) for shape in shapes), tf.TensorSpec((2,), tf.int32))
        found = tf.map_fn(windows, (first, first_boxes, frames, boxes), fn_output_signature=kinds)
        templates, searched, sizes = found
        return self.found(templates, searched, boxes, sizes)
