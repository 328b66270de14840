"""Holes of videos filled (Zeng et al. 2020, "STTN")."""

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Field, FieldError, Option, Refusal
from keras_tfm.data.batches.degradations import as_bytes
from keras_tfm.data.batches.video_holes import Motion, Seen, drawn_holes, known_of, num_hints, seen_in
from keras_tfm.data.sources.holed_videos import (
    LEAST,
    HoledVideo,
    HoledVideos,
    hole_in,
    masks_beside,
    named_as,
    opened_masks,
    read_holed_videos,
    with_hole,
)
from keras_tfm.data.sources.lines import by_stem
from keras_tfm.data.sources.preprocessing import decode_pixels
from keras_tfm.data.sources.tracked_videos import pixels_of
from keras_tfm.data.sources.videos import VideoFiles
from keras_tfm.models import STTN, STTNConfig
from keras_tfm.serving.examples import Refused, check_column, listed, refuse_rows, refuse_unequal
from keras_tfm.serving.video_files import Video, clip_of, opened
from keras_tfm.tasks.images.drawing import Pictures, new_pictures
from keras_tfm.tasks.learning import with_side
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.tasks.task import refuse_columns
from keras_tfm.tasks.videos.frame_task import FrameConfig, FrameOptions, FrameTask, FrameTraining, write_gif
from keras_tfm.tasks.videos.video_task import refuse_cuts, shape_and_sampling
from keras_tfm.training.folder import Path, new_folder, refuse_existing

GREY = 127  # of a hole in a GIF


@dataclasses.dataclass(frozen=True, kw_only=True)
class VideoInpainterConfig(FrameConfig):
    """The preprocessing of frames, how far apart they are, and what holes are drawn where there are no masks.

    Args:
        motion: whether drawn holes are "still", "moving", or "both".
    """

    motion: Annotated[Motion, Option("how drawn holes move, in videos without masks")] = "both"

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_cuts(self, "holes")


@dataclasses.dataclass(frozen=True)
class VideoInpainterOptions(FrameOptions):
    """An `STTN` with fresh weights."""

    model_class: ClassVar[Any] = STTN
    tiny: ClassVar[Any] = STTNConfig(
        num_frames=8,
        image_size=64,
        num_layers=2,
        encoder_dims=(24, 24, 32, 64),
        decoder_dims=(32, 24, 24),
        patch_sizes=((8, 8), (4, 4)),
        num_hints=num_hints(3),
    )


class Filled(NamedTuple):
    """A video's frames (T, H, W, C), 8-bit, its holes filled, and where they are: (T, H, W, 1), boolean."""

    frames: np.ndarray
    holes: np.ndarray


class VideoInpainter(FrameTask):
    """Fills the holes of videos, by an `STTN`.

    Examples are videos, as `VideoTask` describes them, into which holes are drawn, or (videos, masks): the
    masks of each are a file or a folder, or an array (T, H, W) or (H, W), 0 outside of holes. What is under
    a mask is what should be answered there. A model with `num_hints` learns what differs from a rule, which
    takes the mean of what is seen in the place of a hole in other frames; one without, the paper's, begins
    with empty holes. `fields` are fields of `VideoInpainterConfig`.

    >>> sizes = {"num_frames": 3, "image_size": 16, "num_layers": 1, "patch_sizes": [[4, 4], [2, 2]]}
    >>> widths = {"encoder_dims": [4, 4, 4, 8], "decoder_dims": [4, 4, 4], "num_hints": 11}
    >>> task = keras_tfm.tasks.VideoInpainter(keras_tfm.models.STTN.from_size("base", **sizes, **widths))
    >>> history = task.fit(np.zeros((8, 5, 16, 16, 3), "uint8"), epochs=1)
    >>> video, mask = np.zeros((5, 20, 24, 3), "uint8"), np.eye(20, 24)
    >>> task.predict([video], holes=[mask])[0]["video"].shape
    (5, 20, 24, 3)
    """

    name = "inpaint-videos"
    rule = "the mean of what is seen"
    last_layer = "decoder_3"
    reads = "hints", "holes"
    files = (
        "what train pretrain-videos reads: folders of videos, or of frames, in which holes are drawn; or a "
        "folder with videos/ and masks/, whose names are the same"
    )
    training = FrameTraining(epochs=50, patience=None, schedule="cosine", learning_rate=1e-3)
    optimizer_options = {"global_clipnorm": 0.1}  # a large step saturates tanh
    model_options = VideoInpainterOptions
    config_class = VideoInpainterConfig
    picture_suffixes: ClassVar[Mapping[str, str]] = {"draw": ".gif", "filled": ""}
    more = 0
    config: VideoInpainterConfig

    def __init__(self, model: keras.Model, config: VideoInpainterConfig | None = None, **fields: Any):
        super().__init__(model, config, **fields)
        expected = num_hints(self.video_shape[-1])
        if self.model.config.num_hints not in (0, expected):
            hints = f"one whose `num_hints` are {expected}, or 0"
            raise Refusal("model", hints, f"one of {self.model.config.num_hints}")

    @classmethod
    def make(
        cls, examples: Any, options: VideoInpainterOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        values = vars(options.base()) | with_side(changes, fields)
        if values["num_hints"] and "num_hints" not in changes:
            changes = {**changes, "num_hints": num_hints(values["num_channels"])}
        return super().make(examples, options, changes, **fields)

    @classmethod
    def read_files(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        video_shape: tuple[int, int, int, int] = (8, 64, 64, 3),
        **fields: Any,
    ) -> VideoFiles:
        """Videos, of the shape, sampling and preprocessing that the fields describe; with their masks, as a
        further channel, if they lie in a folder with videos/ and masks/.
        """
        shape, preprocessing, sampling = shape_and_sampling(video_shape, **fields)
        further = *shape[:3], shape[3] + 1
        if (found := read_holed_videos(paths, further, preprocessing, sampling)) is not None:
            refuse_columns(columns, "a folder with videos/ and masks/ has no columns")
            return found
        return cls.read_unlabelled(paths, columns, video_shape, **fields)

    @classmethod
    def adds_to_rule(cls, model: keras.Model) -> bool:
        return "hints" in model.input

    def check_videos(self, videos: Any) -> VideoFiles:
        if isinstance(videos, HoledVideos):
            shape = *self.video_shape[:3], self.video_shape[3] + 1
            return videos.as_clips(shape, self.preprocessing, self.sampling)
        if not isinstance(videos, tuple):
            return super().check_videos(videos)
        if len(videos) != 2:
            raise ValueError(f"examples: expected videos, or (videos, masks), got {len(videos)} columns")
        checked, masks = super().check_videos(videos[0]), videos[1]
        check_column(masks, "masks", _not_masks)
        refuse_unequal(videos=checked, masks=masks)
        shape = *self.video_shape[:3], self.video_shape[3] + 1
        pairs = list(zip(checked.sources, masks, strict=True))
        return HoledVideos(pairs, shape, self.preprocessing, self.sampling)

    def change(self, videos: tf.Tensor, key: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        videos, masks = tf.split(videos, [self.video_shape[-1], -1], -1)
        if masks.shape[-1]:
            holes = tf.cast(masks > 0, tf.float32)
        else:
            batch_size, *sizes = tf.unstack(tf.shape(videos))[:1] + list(videos.shape[1:4])
            holes = drawn_holes((batch_size, *sizes), key, self.config.motion)
        return self.inputs_of(videos, holes), tf.concat([videos, holes], -1)

    def inputs_of(
        self, videos: tf.Tensor, holes: tf.Tensor, elsewhere: Seen | None = None
    ) -> dict[str, tf.Tensor]:
        """The model's inputs of videos (B, F, H, W, C), from 0 to 1, and holes (B, F, H, W, 1): `videos` as
        the rule fills them, by these frames or those `elsewhere`, and `hints`, which begin with the holes.
        """
        return known_of(videos, holes, elsewhere)._asdict()

    @property
    def further_inputs(self) -> dict[str, tuple]:
        return {"hints": (*self.video_shape[:3], num_hints(self.video_shape[-1]))}

    def by_rule(self, inputs: Mapping[str, Any]) -> Any:
        return inputs["videos"]

    def added(self, inputs: Mapping[str, Any]) -> Any:
        videos, hints = inputs["videos"], inputs["hints"]
        holes, begins_with_rule = hints[..., :1], self.adds_to_rule(self.model)
        colours = 2 * videos - 1 if begins_with_rule else (2 * videos - 1) * (1 - holes)
        known = {"videos": colours, "hints": hints, "holes": holes[..., 0] > 0}
        made = self.model({name: known[name] for name in self.model.input})["videos"]
        return made if begins_with_rule else (made + 1) / 2 - videos

    def predict(  # type: ignore[override]  # of one video after another
        self,
        videos: Any,
        /,
        *,
        holes: Any = None,
        draw: Pictures | None = None,
        filled: Pictures | None = None,
    ) -> list[dict[str, Any]]:
        """Each video with its holes filled, at its own size: {"video": 8-bit (T, H, W, C), "file",
        "frames"}. Outside of holes frames stay as they are.

        Args:
            videos: files, folders of frames, or arrays, as `VideoTask` has them.
            holes: the masks: of all videos one image, or one folder or file of frames; or a folder with
                masks that are named as the videos; or masks for each video, as for `fit`. By default what
                lies in masks/ beside the folder videos/.
            draw: a folder, or a file for each video, for GIFs: what was there, with grey holes, and what is
                answered, side by side; else "file" is None.
            filled: a folder, or one for each video, for a folder of PNG frames for each; else "frames" is
                None.

        Raises:
            ValueError: for the first video that is broken, and for one whose masks are missing or of another
                size or length.
        """
        if isinstance(videos, HoledVideos):
            pairs: Any = videos.videos
            holes, videos = [each.masks for each in pairs], [each.video for each in pairs]
        videos = listed(self.as_list(videos))
        refuse_rows(self.refusals(videos))
        masks = self._masks_for(videos, holes)
        gifs = [None] * len(videos) if draw is None else new_pictures(videos, draw, ".gif")
        folders: list[Any] = [None] * len(videos)
        if filled is not None:
            folders = new_pictures(videos, filled, "")
            for folder in folders:
                refuse_existing(folder, remedy="remove it")
        answers: list[dict[str, Any]] = []
        for row, (video, mask, gif, folder) in enumerate(zip(videos, masks, gifs, folders, strict=True)):
            try:
                made = self._filled(_opened(video, mask))
            except Refused as refused:
                raise ValueError(f"row {row}: {refused}") from None
            if gif is not None:
                before = np.where(made.holes, np.uint8(GREY), made.frames)
                write_gif(np.concatenate([before, made.frames], axis=2), gif)
            if folder is not None:
                write_frames(made.frames, folder)
            answers.append({"video": made.frames, "file": gif, "frames": folder})
        return answers

    def _masks_for(self, videos: Sequence[Any], holes: Any) -> list[Any]:
        """The masks of each video, None where there are none."""
        if holes is None:
            return masks_beside(videos)
        if isinstance(holes, str | os.PathLike):
            folder = pathlib.Path(holes)
            if not folder.exists():
                raise FieldError("{}: expected masks, got no file or folder: {}", Field("holes"), str(holes))
            inside = by_stem(folder)
            found = [
                named_as(pathlib.Path(video), inside) if isinstance(video, str | os.PathLike) else None
                for video in videos
            ]
            return found if any(found) else [str(folder)] * len(videos)
        if len(holes) != len(videos):
            raise ValueError(f"`holes` must be of {len(videos)} videos; they are {len(holes)}")
        return list(holes)

    def _filled(self, video: HoledVideo) -> Filled:
        """A whole video: the windows of frames that the model reads overlap by half, and the mean of their
        answers counts. What a window does not show of a place, the rest of the video may.
        """
        length, channels = len(video), self.video_shape[-1]
        shape = *self.frame_shape[:2], channels + 1

        def take(frame: tuple) -> np.ndarray:
            return with_hole(frame, shape, self.preprocessing)

        clip = clip_of(video, range(length), take)  # (T, h, w, C + 1)
        whole = tf.cast(clip[..., :-1], tf.float32) / 255
        masks = tf.cast(clip[..., -1:] > 0, tf.float32)
        sums, counts = np.zeros(whole.shape, "float32"), np.zeros((length, 1, 1, 1), "float32")
        run, elsewhere = self._function("answer"), seen_in(whole[None], masks[None])
        for places in windows(length, self.num_frames, self.config.frame_step):
            frames, holes = (tf.gather(x, places)[None] for x in (whole, masks))
            inputs = self.inputs_of(frames, holes, elsewhere)
            np.add.at(sums, places, run(inputs)[0].numpy())
            np.add.at(counts, places, 1)
        shown = [(pixels_of(frame, channels), hole_in(mask)) for frame, mask in video.frames(range(length))]
        pixels, is_hole = (np.stack(part) for part in zip(*shown, strict=True))
        made, size = sums / counts, pixels.shape[1:3]
        made = made if made.shape[1:3] == size else tf.image.resize(made, size, "bicubic")
        return Filled(np.where(is_hole, as_bytes(tf.constant(made)).numpy(), pixels), is_hole)

    def as_line(self, answer: dict[str, Any]) -> str:
        return super().as_line(answer if answer["frames"] is None else {**answer, "file": answer["frames"]})

    def export_endpoints(self) -> Endpoints:
        """The bytes of PNG files of filled frames, of the model's size, by the bytes of the frames' image
        files and of their masks'.
        """

        size = self.frame_shape[:2]

        def hole(data: tf.Tensor) -> tf.Tensor:
            """1 where a hole of a mask's file, or a part of one, is at the model's size; see `with_hole`."""
            is_hole = tf.reduce_max(decode_pixels(data, 3), -1, keepdims=True) >= LEAST
            pixels = tf.cast(is_hole, tf.uint8)[None] * 255
            return tf.cast(self.preprocessing.fitted(pixels, *size)[0] > 0, tf.float32)

        def answer(frame_bytes: tf.Tensor, mask_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            videos = tf.cast(self.decoded_frames(frame_bytes), tf.float32) / 255
            masks = tf.map_fn(
                hole, tf.reshape(mask_bytes, [-1]), fn_output_signature=tf.TensorSpec((*size, 1), tf.float32)
            )
            holes = tf.reshape(masks, (-1, self.num_frames, *size, 1))
            made = self.answered(self.inputs_of(videos, holes))
            return self.as_pngs(tf.where(holes > 0, made, videos), self.num_frames)

        names = "frame_bytes", "mask_bytes"
        files = [tf.TensorSpec([None, self.num_frames], tf.string, name) for name in names]
        return {"serving_default": (answer, files)}


def windows(length: int, size: int, step: int) -> Iterator[np.ndarray]:
    """The places (size,) of the frames in each window of a video of this length: every `step`-th frame from
    each start. Windows overlap by half; the last frame is repeated where there are too few.
    """
    for first in range(min(step, length)):
        places = np.arange(first, length, step)
        last = max(0, len(places) - size)
        for start in sorted({*range(0, last, max(1, size // 2)), last}):
            yield places[np.minimum(start + np.arange(size), len(places) - 1)]


def write_frames(frames: np.ndarray, folder: Path) -> None:
    """Write frames, 8-bit (T, H, W, C), to PNG files in a new folder: 0000.png, 0001.png and so on, all or
    none; FileExistsError if there is something.
    """
    with new_folder(folder) as work:
        for number, frame in enumerate(frames):
            (work / f"{number:04}.png").write_bytes(tf.io.encode_png(frame).numpy())


def _opened(source: Any, masks: Any) -> HoledVideo:
    """A video with its masks; `Refused` where there are none."""
    if masks is None:
        raise Refused("expected the masks of its holes: `holes`, or masks/ beside videos/, got none")
    video = source if isinstance(source, Video) else opened(source)
    return HoledVideo(video, opened_masks(masks, len(video)))


def _not_masks(example: Any) -> str | None:
    """Masks are a file, by its path or its bytes, a folder of frames, or an array (T, H, W) or (H, W)."""
    if isinstance(example, str | bytes | os.PathLike):
        return None
    shape = np.shape(example) if isinstance(example, np.ndarray) else ()
    return None if len(shape) in (2, 3) else "expected masks, a path or an array (T, H, W) or (H, W)"
