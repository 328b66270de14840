"""Small pictures that a diffusion model enlarges, as an `Imagen` whose U-Net reads them (Saharia et al. 2022,
"Photorealistic Text-to-Image Diffusion Models with Deep Language Understanding", section 2.4).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from keras_tfm.configs import Config, Refusal
from keras_tfm.generation.diffusion import normal_noise
from keras_tfm.heads.denoiser import LogSNR, Noising, Schedule
from keras_tfm.models.pictures.text_imagen import OF_ENCODER, ImagenConfig
from keras_tfm.tasks.images.generator_options import GeneratorOptions, ImageGeneratorConfig
from keras_tfm.tasks.images.text_encoders import TextReader, refuse_settled
from keras_tfm.tasks.task import load_any

SMALL = "low_resolution", "low_resolution_log_snr"  # the inputs of a model that enlarges
NOT_ENLARGING = "left out, as the model does not enlarge"


class Enlarging:
    """Makes of pictures of a `small_shape` the inputs `low_resolution` and `low_resolution_log_snr` for those
    of this `shape` (H, W, C): the small ones in the large ones' size, with noise, and how much there is.

    Noise, drawn anew for each picture in training, hides how the pictures of a model differ from small ones
    of the data ("noise conditioning augmentation").
    """

    def __init__(
        self,
        small_shape: tuple[int, int, int],
        shape: tuple[int, int, int],
        schedule: Schedule,
        num_steps: int,
    ) -> None:
        self.small_shape, self.shape, self.num_steps = small_shape, shape, num_steps
        self.noising = Noising(schedule, num_steps, "noise", dtype="float32")
        self.log_snr = LogSNR(schedule, num_steps, dtype="float32")

    def of_large(self, images: tf.Tensor, key: tf.Tensor) -> dict[str, tf.Tensor]:
        """Of large pictures (B, H, W, C), from -1 to 1, and a seed (2,), in training."""
        small = tf.image.resize(images, self.small_shape[:2], "area")
        keys = [tf.random.experimental.stateless_fold_in(key, i) for i in range(2)]
        count = tf.shape(images)[:1]
        steps = tf.random.stateless_uniform(count, keys[0], 0, self.num_steps, tf.int32)
        return self._inputs(small, steps, tf.random.stateless_normal(tf.shape(images), keys[1]))

    def of_small(self, images: tf.Tensor, share: float, seeds: tf.Tensor) -> dict[str, tf.Tensor]:
        """Of small pictures (B, h, w, C), from -1 to 1, with the noise of this `share` of the schedule."""
        count = tf.shape(images)[0]
        steps = tf.fill([count], min(round(share * self.num_steps), self.num_steps - 1))
        # The number is none of the steps': their noise is another.
        noise = normal_noise((count, *self.shape), seeds, self.num_steps + 1)
        return self._inputs(images, steps, noise)

    def _inputs(self, small: tf.Tensor, steps: tf.Tensor, noise: tf.Tensor) -> dict[str, tf.Tensor]:
        noisy, _, _ = self.noising(tf.image.resize(small, self.shape[:2]), noise, steps)
        return dict(zip(SMALL, (noisy, self.log_snr(steps)), strict=True))


@dataclasses.dataclass(frozen=True)
class SmallParts(Config):
    """The task whose pictures are enlarged, as JSON values: its configuration and its model."""

    config: dict
    model: dict


def enlarging_of(
    small: Any, backbone: keras.Model, config: ImageGeneratorConfig, num_steps: int
) -> Enlarging | None:
    """How the `backbone` enlarges the pictures of the task `small`; None if it does not. ValueError for one
    that reads small pictures where there are none, the other way round, and for sizes that do not fit.
    """
    if (small is not None) != (set(SMALL) <= set(backbone.input)):
        wanted = "given, as the model enlarges" if small is None else NOT_ENLARGING
        raise Refusal("small", wanted, small and type(small).__name__)
    if small is None:
        if config.small_noise != ImageGeneratorConfig.small_noise:
            raise Refusal("small_noise", NOT_ENLARGING, config.small_noise)
        return None
    shapes = small.image_shape, tuple(backbone.input["images"].shape[1:])
    (*lesser, channels), (*greater, wanted_channels) = shapes
    sizes = ["{} x {} pixels in {} channels".format(*shape) for shape in shapes]
    if channels != wanted_channels or any(x >= y for x, y in zip(lesser, greater, strict=True)):
        raise Refusal("small", f"of smaller pictures than {sizes[1]}", f"of {sizes[0]}")
    return Enlarging(*shapes, config.noise_schedule, num_steps)


def small_of(options: GeneratorOptions, changes: Mapping[str, Any]) -> Any:
    """The task of --small, or None. ValueError for another task's RUN, and for options of a tokenizer or
    `changes` of an encoder, which are those of that RUN.
    """
    if options.small is None:
        return None
    small = load_any(options.small)
    config = getattr(getattr(small.model, "backbone", None), "config", None)
    if not isinstance(config, ImagenConfig):
        raise Refusal("small", "a RUN of generate-images by the family imagen", f"one of {small.name}")
    settled = {name: getattr(config, name) for name in OF_ENCODER}
    refuse_settled(options, changes, "--small", text_encoder=None, **settled)
    return small


def reader_of(small: Any, changes: Mapping[str, Any]) -> TextReader:
    """How a model reads texts that enlarges the pictures of the task `small`: as that does, at first. Its
    encoder learns if that one's did, unless `changes` say something else.
    """
    config = small.model.backbone.config
    fields = {name: getattr(config, name) for name in ("encoder", "encoder_config", *OF_ENCODER)}
    trains = changes.get("trains_encoder", config.trains_encoder)
    fields |= {"trains_encoder": trains, "is_super_resolution": True}
    return TextReader(small.model.backbone.encoder, small.tokenizer, fields)
