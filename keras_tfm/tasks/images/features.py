"""The measures of made pictures beside real ones, by the features of a task that reads images."""

from typing import Any

import numpy as np

from keras_tfm.configs import Refusal
from keras_tfm.tasks.images.image_encoder import ImageEncoder
from keras_tfm.tasks.images.image_task import ImageTask
from keras_tfm.tasks.images.set_distances import frechet_distance, kernel_distance, precision_and_recall
from keras_tfm.tasks.task import Task, load_any

NEIGHBOURS = 3


def features_of(source: Any) -> tuple[ImageEncoder, str]:
    """What makes features of images, and its name in measures, of a task that reads images or of its RUN;
    ValueError for another one.
    """
    task = source if isinstance(source, Task) else load_any(source)
    if not isinstance(task, ImageTask):
        raise Refusal("features", "a task that reads images, or its RUN", f"a {task.name!r} task")
    encoder = task if isinstance(task, ImageEncoder) else ImageEncoder.from_task(task, normalize=False)
    return encoder, task.name.replace("-", "_")


def compared(real: np.ndarray, made: np.ndarray, name: str) -> dict[str, float]:
    """The measures of features (N, D) of real and of made pictures, by the `name` of what made them."""
    measures = {"fid": frechet_distance(real, made), "kid": kernel_distance(real, made)}
    if min(len(real), len(made)) > NEIGHBOURS:
        measures["precision"], measures["recall"] = precision_and_recall(real, made, NEIGHBOURS)
    return {f"{name}_{measure}": value for measure, value in measures.items()}
