"""Holes in videos of moving shapes filled, by a small STTN.

    python examples/fill_holes.py               # 10 minutes of one core
    python examples/fill_holes.py --minutes 2   # as far as it comes

Each video has eight frames of 32 x 32 pixels, every second one of a scene, and a hole that moves through it,
a quarter to half as wide and high as a frame. The background stays as it is, so the mean of what is seen in
a hole's place in other frames is a rule that is hard to beat; it fails where a shape passes. Printed are the
PSNR in decibels of what is filled, on videos of another seed, and the same of the rule; `background` is of
all pixels of holes that show no shape, taken together.
"""

import argparse
import time

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.moving_shapes import moving_shapes
from keras_tfm.tasks import VideoInpainter
from keras_tfm.tasks.videos.video_inpainter import VideoInpainterOptions

OPTIONS = {"batch_size": 16, "learning_rate": 2e-3, "flip": True}


def clips(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(Videos (count, 8, 32, 32, 3), where a shape is (count, 8, 32, 32)): every second frame, each pixel the
    mean of four.
    """
    scenes = list(moving_shapes(count, seed))
    frames = np.stack([scene.frames[::2] for scene in scenes])
    shapes = np.stack([scene.masks[::2].any(1) for scene in scenes])
    parts = frames.reshape(count, -1, 32, 2, 32, 2, 3)
    is_shape = shapes.reshape(count, -1, 32, 2, 32, 2).any((3, 5))
    return parts.mean((3, 5)).round().astype("uint8"), is_shape


def on_background(task: VideoInpainter, videos: np.ndarray, is_shape: np.ndarray) -> dict[str, float]:
    """The PSNR of all filled pixels without a shape together, of the task and of its rule."""
    sums, count, first = np.zeros(2), 0.0, 0
    batches = task.batches(task.check_examples(videos), task.training, is_validation=True)
    for inputs, targets in batches.dataset():
        wanted = targets[..., -1].numpy() * ~is_shape[first : first + len(targets)]  # (B, T, H, W)
        first += len(targets)
        for place, answer in enumerate((task.answered(inputs), task.by_rule(inputs))):
            errors = tf.reduce_mean((answer - targets[..., :-1]) ** 2, -1).numpy()
            sums[place] += (errors * wanted).sum()
        count += wanted.sum()
    psnr, by_rule = (-10 * np.log10(sums / count)).round(2).tolist()
    return {"background": psnr, "rule_background": by_rule}


def main(minutes: float | None, count: int = 3_000, tested: int = 300, epochs: int = 12) -> dict[str, float]:
    """Train, and print the measures on videos of another seed."""
    keras.utils.set_random_seed(0)
    sizes = {"image_size": 32, "patch_sizes": [[4, 4], [2, 2]]}
    task = VideoInpainter.make(None, VideoInpainterOptions(), sizes, motion="moving")
    began = time.process_time()
    task.fit(clips(count, 1)[0], 0.05, epochs=epochs, minutes=minutes, **OPTIONS)
    videos, is_shape = clips(tested, 2)
    measures = task.evaluate(videos) | on_background(task, videos, is_shape)
    print(f"{time.process_time() - began:.0f} s of CPU time", measures)
    return measures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    main(parser.parse_args().minutes)
