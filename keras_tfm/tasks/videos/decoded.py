"""The reader of videos where TensorFlow is: frames are resized as in training and in SavedModels."""

from typing import Any

import numpy as np

from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.videos import Sampling, VideoFiles, fitted
from keras_tfm.serving.video_readers import Clips
from keras_tfm.tasks.images.decoded import is_file


class DecodedVideos(Clips):
    """Files, folders of frames and arrays as 8-bit clips of a `shape` (frames, height, width, channels)."""

    def __init__(self, shape: tuple[int, int, int, int], preprocessing: Preprocessing, sampling: Sampling):
        super().__init__(shape, sampling.frame_step, sampling.seconds_per_frame, sampling.num_views)
        self.shape, self.preprocessing = shape[1:], preprocessing

    def take(self, frame: Any) -> np.ndarray:
        return fitted(frame, self.shape, self.preprocessing)


def listed_videos(videos: Any) -> Any:
    """A single file as a list, and `VideoFiles` as opened videos; all else as it is."""
    if is_file(videos):
        return [videos]
    return list(videos.videos) if isinstance(videos, VideoFiles) else videos
