"""The next frames of a video (Liu et al. 2020, "ConvTransformer")."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_tfm.asking import Foreseeing
from keras_tfm.configs import Refusal
from keras_tfm.data.batches.degradations import as_bytes
from keras_tfm.models import ConvTransformer, ConvTransformerConfig
from keras_tfm.serving.examples import listed, refuse_rows
from keras_tfm.serving.video_files import clip_of
from keras_tfm.tasks.images.drawing import Pictures
from keras_tfm.tasks.signatures import Endpoints
from keras_tfm.tasks.videos.frame_task import FrameConfig, FrameOptions, FrameTask


@dataclasses.dataclass(frozen=True)
class FramePredictorOptions(FrameOptions):
    """A `ConvTransformer` with fresh weights."""

    model_class: ClassVar[Any] = ConvTransformer
    tiny: ClassVar[Any] = ConvTransformerConfig(image_size=64, num_layers=1, dim=16, num_heads=2)


class FramePredictor(FrameTask):
    """Predicts the frames that come next, by a `ConvTransformer`, which learns what differs from the last.

    Examples are videos, as `VideoTask` describes them. `fields` are fields of `FrameConfig`.

    >>> sizes = {"num_frames": 3, "image_size": 16, "num_layers": 1, "dim": 8, "num_heads": 2}
    >>> model = keras_tfm.models.ConvTransformer.from_size("base", **sizes)
    >>> task = keras_tfm.tasks.FramePredictor(model)
    >>> history = task.fit(np.zeros((8, 6, 16, 16, 3), "uint8"), epochs=1)
    >>> task.predict(np.zeros((1, 6, 16, 16, 3), "uint8"), frames=2)[0]["video"].shape
    (2, 16, 16, 3)
    """

    name = "predict-frames"
    rule = "the last frame"
    last_layer = "colours"
    model_options = FramePredictorOptions

    def __init__(self, model: keras.Model, config: FrameConfig | None = None, **fields: Any):
        if getattr(model.config, "target", "next") != "next":
            raise Refusal("model", "one of the target 'next'", repr(model.config.target))
        super().__init__(model, config, **fields)

    @property
    def more(self) -> int:
        return self.model.output["videos"].shape[1]

    def change(self, videos: tf.Tensor, key: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        given, following = videos[:, : self.num_frames], videos[:, self.num_frames :]
        return {"videos": given}, tf.concat([following, tf.ones_like(following[..., :1])], -1)

    def by_rule(self, inputs: Mapping[str, Any]) -> Any:
        return ops.repeat(inputs["videos"][:, -1:], self.more, axis=1)

    def added(self, inputs: Mapping[str, Any]) -> Any:
        return self.model({"videos": 2 * inputs["videos"] - 1})["videos"]

    def predict(  # type: ignore[override]  # of one video after another
        self, videos: Any, /, *, frames: int | None = None, draw: Pictures | None = None
    ) -> list[dict[str, Any]]:
        """The `frames` that follow each video, by default as many as the model predicts at once; for more it
        goes on from its own: {"video": 8-bit (frames, H, W, C), of the model's size, "file"}.

        With `draw`, a folder or the file of each video, a GIF shows the last known frames and these; else
        "file" is None. Before a video of too few frames the first one is repeated. ValueError for the first
        video that is broken.
        """
        Foreseeing(frames=frames)  # refuses what is out of range
        videos = listed(self.as_list(videos))
        refuse_rows(self.refusals(videos))
        return self._written(videos, self._followed(self.check_videos(videos), frames or self.more), draw)

    def _followed(self, videos: Any, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        step, run = self.config.frame_step, self._function("answer")
        for video in videos.videos:
            last = len(video) - 1
            places = np.maximum(last - step * np.arange(self.num_frames)[::-1], 0)
            known = clip_of(video, places, videos.fitted)[None]
            whole = tf.cast(known, tf.float32) / 255
            while whole.shape[1] < self.num_frames + count:
                whole = tf.concat([whole, run({"videos": whole[:, -self.num_frames :]})], 1)
            shown = as_bytes(whole[0, : self.num_frames + count]).numpy()
            yield shown[self.num_frames :], shown

    def export_endpoints(self) -> Endpoints:
        """The bytes of PNG files of the next frames, by the bytes of the last frames' image files."""

        def answer(frame_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            videos = tf.cast(self.decoded_frames(frame_bytes), tf.float32) / 255
            return self.as_pngs(self.answered({"videos": videos}), self.more)

        files = tf.TensorSpec([None, self.num_frames], tf.string, "frame_bytes")
        return {"serving_default": (answer, [files])}
