"""What a training is told: each option named, bounded and documented once, for Python and the command line.

`Learning` says how long a task learns, `Training` how a Keras model does, `Kept` and `Run` where it is kept.
A task's class holds its own defaults, for example `training = FineTuning(epochs=3)`, and `fit` takes any of
the fields by name. This file imports no TensorFlow.
"""

import dataclasses
import os
from typing import Annotated, Any, Literal

from keras_tfm.configs import Between, Config, Count, Minutes, Natural, Option

Positive = Annotated[float, Between(0, is_above=True)]

Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]
Schedule = Literal["constant", "inverse-root", "linear", "cosine"]


@dataclasses.dataclass(frozen=True)
class Learning(Config):
    """Learning goes over the data again and again, and is judged after each time."""

    epochs: Annotated[Count, Option("epochs at most, each judged at its end")] = 20
    minutes: Annotated[
        Minutes | None,
        Option("stop after so long in all, resumed runs included, with the best epoch", default="no limit"),
    ] = None
    patience: Annotated[
        Count | None, Option("stop after so many epochs without a better one", default="never")
    ] = 5
    seed: Annotated[Natural, Option("of all that is drawn")] = 0

    def lasting(self) -> dict[str, Any]:
        """The fields that must stay when a training is resumed."""
        free = {"epochs", "minutes", "patience"}
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in free}


@dataclasses.dataclass(frozen=True)
class Training(Learning):
    """The warm-up takes a tenth of the steps unless something else is said."""

    epoch_batches: Annotated[
        Count | None,
        Option(
            "an epoch ends after N batches where a pass over the data has more; the next goes on from there",
            default="a whole pass",
        ),
    ] = None
    minutes: Annotated[
        Minutes | None,
        Option(
            "stop after so long in all, resumed runs included, with the best epoch; the learning rate rises "
            "and falls within this time",
            default="no limit",
        ),
    ] = None
    learning_rate: Annotated[Positive, Option("at the end of the warm-up")] = 1e-3
    schedule: Annotated[
        Schedule,
        Option("after the warm-up the rate stays, or falls: with the root of the steps, in a line, in a half "
               "cosine"),
    ] = "linear"  # fmt: skip
    warmup_steps: Annotated[
        Count | None, Option("steps in which the rate rises from 0", flag="--warm-up", default="see above")
    ] = None
    weight_decay: Annotated[
        Annotated[float, Between(0)], Option("AdamW's, of all but biases, norms and positions")
    ] = 0.01
    clip_norm: Annotated[
        Annotated[float, Between(0, 10**6, is_above=True)] | None,
        Option("scale the gradients of all weights together down to this norm", default="the task's own"),
    ] = None
    precision: Annotated[
        Precision | None, Option("of the training's computations", default="the model's, float32")
    ] = None
    jit: Annotated[
        bool | None,
        Option(
            "compile the steps by XLA",
            default="as KERAS_TFM_JIT says, 1 or 0; else yes, but for depthwise convolutions on a CPU",
        ),
    ] = None

    def warmup(self, num_batches: int) -> int:
        """How many steps the warm-up takes, of epochs of `num_batches`."""
        return self.warmup_steps or max(1, self.epochs * num_batches // 10)

    def lasting(self) -> dict[str, Any]:
        """The fields that must stay when a training is resumed; `epochs` where the schedule ends by them."""
        free = {"minutes", "patience", "precision", "jit"}  # another precision is refused by itself
        if self.schedule in ("constant", "inverse-root"):
            free.add("epochs")
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in free}


@dataclasses.dataclass(frozen=True)
class TextTraining(Training):
    """The warm-up takes a tenth of the steps unless something else is said."""

    batch_tokens: Annotated[Count, Option("tokens of a batch at most, fewer for small files")] = 4_096

    def batching(self, is_validation: bool) -> dict[str, Any]:
        """Arguments of `Batches`: in an order that the seed fixes or, for validation, in theirs."""
        order = {"min_batches": 1} if is_validation else {"seed": self.seed}
        return {"batch_tokens": self.batch_tokens, **order}

    def batching_by_length(self, is_validation: bool) -> dict[str, Any]:
        """Arguments of `LengthBatches`: validation repays the compiling of fewer shapes."""
        shapes = {"num_shapes": 4} if is_validation else {"num_epochs": self.epochs}
        return {**self.batching(is_validation), **shapes}


@dataclasses.dataclass(frozen=True)
class LanguageModelTraining(TextTraining):
    """The warm-up takes an epoch, at most 2,000 steps, unless something else is said."""

    def warmup(self, num_batches: int) -> int:
        return self.warmup_steps or min(2_000, num_batches)


@dataclasses.dataclass(frozen=True)
class Seq2SeqTraining(TextTraining):
    """The warm-up takes three epochs, at most 4,000 steps, unless something else is said."""

    label_smoothing: Annotated[
        Annotated[float, Between(0, 1, is_open=True)],
        Option("the share of each label that is spread over all tokens"),
    ] = 0.1
    scheduled_sampling: Annotated[
        Annotated[float, Between(0, 1)],
        Option(
            "the share of a target's tokens that the decoder reads as it wrote them itself: it rises in a "
            "line from 0 to this"
        ),
    ] = 0.0

    def warmup(self, num_batches: int) -> int:
        return self.warmup_steps or min(4_000, 3 * num_batches)


@dataclasses.dataclass(frozen=True)
class MaskedTraining(TextTraining):
    """The warm-up takes two epochs, at most 10,000 steps, unless something else is said."""

    num_drawings: Annotated[
        Count | None,
        Option(
            "draw masks and pairs so often: 1 is static masking", flag="--drawings", default="every epoch"
        ),
    ] = None

    def warmup(self, num_batches: int) -> int:
        return self.warmup_steps or min(10_000, 2 * num_batches)


@dataclasses.dataclass(frozen=True)
class PartlyTrained(Training):
    """Which parts of a model are trained, and how fast."""

    layer_decay: Annotated[
        Annotated[float, Between(0, 1, is_above=True)],
        Option("a block learns so many times as fast as the one above it"),
    ] = 1.0
    num_frozen: Annotated[
        Natural | None,
        Option("leave the embeddings and the lowest N blocks as they are", flag="--freeze", default="none"),
    ] = None
    lora_rank: Annotated[
        Count | None,
        Option(
            "train updates of this rank to the blocks' kernels, and leave the rest of the encoder as it is",
            flag="--lora",
            default="train all",
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lora_rank is not None and self.num_frozen is not None:
            raise ValueError("`lora_rank` freezes all blocks: leave out `num_frozen`.")


@dataclasses.dataclass(frozen=True)
class FineTuning(PartlyTrained, TextTraining):
    """The warm-up takes a tenth of the steps unless something else is said."""


@dataclasses.dataclass(frozen=True)
class ImageTraining(PartlyTrained):
    """The warm-up takes a tenth of the steps unless something else is said."""

    learning_rate: Annotated[
        Positive, Option("at the end of the warm-up, after --from by default a tenth of it")
    ] = 1e-3
    batch_size: Annotated[Count, Option("images of a batch at most")] = 64
    max_shift: Annotated[
        Natural, Option("shift images at random by up to so many pixels each way, zeros moving in")
    ] = 0
    augment: Annotated[
        Literal["none", "light", "strong"],
        Option("change images at random: light cuts out and mirrors, strong adds RandAugment and erasing"),
    ] = "none"
    flip: Annotated[bool, Option("let --augment mirror images, which letters and digits do not bear")] = True
    least_area: Annotated[
        Annotated[float, Between(0.01, 1)], Option("the part of an image that --augment cuts out at least")
    ] = 0.25
    mixup: Annotated[
        Annotated[float, Between(0, 10)],
        Option("mix the images of a batch, and their labels, by shares of Beta(R, R); 0 for none"),
    ] = 0.0
    cutmix: Annotated[
        Annotated[float, Between(0, 1)],
        Option("put a part of one image of a batch into another, likewise; each batch takes one of the two"),
    ] = 0.0
    label_smoothing: Annotated[
        Annotated[float, Between(0, 1, is_open=True)],
        Option("the share of each label that is spread over all classes"),
    ] = 0.0
    teacher: Annotated[
        str | None, Option("a RUN whose answers are learnt from too, on the same images", default="none")
    ] = None
    distillation: Annotated[
        Literal["hard", "soft"], Option("learn the teacher's likeliest class, or all its probabilities")
    ] = "hard"
    temperature: Annotated[
        Annotated[float, Between(0, 1000, is_above=True)],
        Option("what logits are divided by in soft distillation", flag="--teacher-temperature"),
    ] = 3.0
    teacher_weight: Annotated[
        Annotated[float, Between(0, 1)] | None,
        Option("the teacher's part of the loss", default="0.5, or 0.1 of soft distillation"),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher is not None:
            if not os.path.exists(os.path.join(self.teacher, "config.json")):
                raise ValueError(f"`teacher` must be the folder of a task; there is none at {self.teacher}.")
            object.__setattr__(self, "teacher", os.path.abspath(self.teacher))


@dataclasses.dataclass(frozen=True)
class DetectionTraining(PartlyTrained):
    """The warm-up takes a tenth of the steps unless something else is said."""

    batch_size: Annotated[Count, Option("images of a batch at most")] = 16
    flip: Annotated[
        bool, Option("mirror images and their boxes at random, which letters and digits do not bear")
    ] = True
    least_area: Annotated[
        Annotated[float, Between(0.01, 1)],
        Option("the part of an image that is cut out at random at least; 1 for none"),
    ] = 1.0


@dataclasses.dataclass(frozen=True)
class SegmentationTraining(PartlyTrained):
    """The warm-up takes a tenth of the steps unless something else is said."""

    batch_size: Annotated[Count, Option("images of a batch at most")] = 16
    flip: Annotated[
        bool, Option("mirror images and their masks at random, which letters and digits do not bear")
    ] = True
    least_area: Annotated[
        Annotated[float, Between(0.01, 1)],
        Option("the part of an image that is cut out at random, and stretched, at least; 1 for none"),
    ] = 0.5
    most_area: Annotated[
        Annotated[float, Between(1, 16)],
        Option("that part at most: above 1 the image is smaller, and what is around it counts nowhere"),
    ] = 1.0


@dataclasses.dataclass(frozen=True)
class PretrainImagesTraining(Training):
    """The warm-up takes a tenth of the steps unless something else is said."""

    batch_size: Annotated[Count, Option("images of a batch at most")] = 64
    flip: Annotated[bool, Option("mirror images at random, which letters and digits do not bear")] = True
    least_area: Annotated[
        Annotated[float, Between(0.01, 1)] | None,
        Option("the part of an image that a crop has at least", default="0.2, of dino 0.05"),
    ] = None
    parting_area: Annotated[
        Annotated[float, Between(0.01, 1)],
        Option("dino: the part of an image that a local crop has at most, and a global one at least"),
    ] = 0.4
    teacher_momentum: Annotated[
        Annotated[float, Between(0, 1)],
        Option("dino: the share of itself that the teacher keeps at each step, first; it rises to 1"),
    ] = 0.996
    teacher_temperature: Annotated[
        Annotated[float, Between(0, 10, is_above=True)], Option("dino: of the teacher's softmax")
    ] = 0.04
    student_temperature: Annotated[
        Annotated[float, Between(0, 10, is_above=True)], Option("dino: of the student's softmax")
    ] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least_area is not None and self.least_area > self.parting_area:
            raise ValueError(
                f"`least_area` must be at most `parting_area`, {self.parting_area}; it is {self.least_area}."
            )


@dataclasses.dataclass(frozen=True)
class MatchTraining(PartlyTrained):
    """The warm-up takes a tenth of the steps unless something else is said."""

    learning_rate: Annotated[
        Positive, Option("at the end of the warm-up, after --from by default a hundredth of it")
    ] = 1e-3
    batch_size: Annotated[
        Count, Option("pairs of a batch at most, each of which is told apart from all the others in it")
    ] = 64
    max_shift: Annotated[
        Natural, Option("shift images at random by up to so many pixels each way, zeros moving in")
    ] = 0


@dataclasses.dataclass(frozen=True)
class Kept(Config):
    """Where what is learnt is kept: in `folder`, which always holds the best task so far, whole."""

    folder: str
    resume: Annotated[bool, Option("go on from the newest checkpoint of RUN, with its options")] = False
    overwrite: Annotated[bool, Option("replace RUN if it exists")] = False
    record: Annotated[dict, "more entries of training.json"] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resume and self.overwrite:
            raise ValueError("`resume` goes on with what `overwrite` would replace: choose one.")


@dataclasses.dataclass(frozen=True)
class Run(Kept):
    """How the training of a Keras model is kept, beside where."""

    save_minutes: Annotated[
        Annotated[float, Between(0, 10**6, is_above=True)],
        Option("keep a checkpoint so often, and after every epoch"),
    ] = 10.0
    tensorboard: Annotated[bool, Option("keep in RUN/logs, for TensorBoard, what metrics.csv holds")] = False
