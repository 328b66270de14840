"""The families of models that read a video, and the options for one with fresh weights."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import keras

from keras_tfm.configs import Count, Option
from keras_tfm.models.families import OnDemand, names_in
from keras_tfm.tasks.images.image_families import ImageOptions

# These read more, or give no states of a whole video.
NOT_ALONE = "ActionTransformer", "ConvTransformer", "MART", "MEGA", "STTN", "STTNDiscriminator"
# {name on the command line: class} of the families whose only input is a video
FAMILIES = OnDemand({name.lower(): name for name in names_in("video") if name not in NOT_ALONE})


@dataclasses.dataclass(frozen=True)
class VideoOptions(ImageOptions):
    """A model of videos with fresh weights."""

    families: ClassVar[Mapping[str, Any]] = FAMILIES
    set_here: ClassVar[Mapping[str, str]] = {"num_frames": "--num-frames"}
    family: Annotated[str, Option(f"kind of model: {', '.join(FAMILIES)}")] = "vivit"
    size: Annotated[
        str, Option("a published size of the family, or tiny, for videos of about 64 x 64 pixels")
    ] = "tiny"
    num_frames: Annotated[Count | None, Option("frames that the model reads", default="set by --size")] = None

    def base(self) -> Any:
        config = super().base()
        return config if self.num_frames is None else dataclasses.replace(config, num_frames=self.num_frames)

    def model(self, changes: Mapping[str, Any]) -> keras.Model:
        model = super().model(changes)
        if set(model.input) != {"videos"}:
            names = ", ".join(model.input)
            raise ValueError(
                f"The family {self.family!r} does not fit: expected a model of videos alone, got {names}."
            )
        return model
