"""The options of a training, each declared once with its type, bounds and help, for Python and the command
line.

What several tasks share stands here, what one alone has in its own file. `Learning` says how long a task
learns, `Training` how a Keras model is trained, `Kept` and `Run` where the results are stored. A task's class
holds its own defaults, for example `training = FineTuning(epochs=3)`, and `fit` takes any of the fields by
name. A class's docstring is the text of its group in the help. This file does not import TensorFlow.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from keras_tfm.configs import (
    Between,
    Config,
    Count,
    FieldError,
    Minutes,
    Natural,
    Option,
    Positive,
    Refusal,
    parse_json,
)
from keras_tfm.training.folder import refuse_pattern

ShareOfArea = Annotated[float, Between(0.01, 1)]
# Of a training that finds things in images: enough for some 300 made ones, and no more than minutes.
USUAL_STEPS, LEAST_EPOCHS, MOST_EPOCHS = 2_000, 10, 100
# Help of options that some tasks settle by the data.
EPOCHS, PEAK_RATE = "maximum number of epochs", "peak learning rate, reached at the end of the warm-up"
BATCH_TOKENS = "maximum tokens of a batch; small files take fewer"
# Options of tasks that learn from images.
ImagesInBatch = Annotated[Count, Option("images in a batch")]
LeastArea = Annotated[
    ShareOfArea, Option("smallest share of an image's area in a random crop; 1 is no cropping")
]

Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]
Schedule = Literal["constant", "inverse-root", "linear", "cosine"]


@dataclasses.dataclass(frozen=True)
class Learning(Config):
    """Learning passes over the data again and again; each epoch is judged on the validation data."""

    epochs: Annotated[Count, Option(EPOCHS)] = 20
    minutes: Annotated[
        Minutes | None,
        Option(
            "stop after this time in total, resumed runs included, and keep the best epoch",
            default="no limit",
        ),
    ] = None
    patience: Annotated[
        Count | None, Option("stop after this many epochs without a better one", default="never")
    ] = 5
    seed: Annotated[Natural, Option("seed of all random numbers")] = 0

    def settled(self, num_examples: int) -> Self:
        """These options, with values for those that follow from the number of examples where nobody gave
        them.
        """
        return self

    def lasting(self) -> dict[str, Any]:
        """The fields that may not change when a training is resumed."""
        free = {"epochs", "minutes", "patience"}
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in free}


@dataclasses.dataclass(frozen=True)
class Training(Learning):
    """By default the warm-up takes a tenth of the steps."""

    # With "inverse-root": how many epochs the warm-up takes, and at most how many steps; None for a tenth.
    warmup_by_root: ClassVar[tuple[int, int] | None] = None

    epoch_batches: Annotated[
        Count | None,
        Option(
            "end an epoch after N batches if the data have more; the next epoch continues from there",
            default="one pass over the data",
        ),
    ] = None
    minutes: Annotated[
        Minutes | None,
        Option(
            "stop after this time in total, resumed runs included and compilation not, and keep the best "
            "epoch; the learning rate follows its schedule within this time",
            default="no limit",
        ),
    ] = None
    learning_rate: Annotated[Positive, Option(PEAK_RATE)] = 1e-3
    schedule: Annotated[
        Schedule,
        Option("learning rate after the warm-up: constant, or falling with the inverse root of the steps, "
               "linearly, or along a half cosine"),
    ] = "linear"  # fmt: skip
    warmup_steps: Annotated[
        Count | None,
        Option("steps in which the learning rate rises from 0", flag="--warm-up", default="see above"),
    ] = None
    weight_decay: Annotated[
        Annotated[float, Between(0)],
        Option("weight decay of AdamW, for all weights but biases, norms and positions"),
    ] = 0.01
    clip_norm: Annotated[
        Annotated[float, Between(0, 10**6, is_above=True)] | None,
        Option("clip the global norm of the gradients to this value", default="the task's own"),
    ] = None
    precision: Annotated[
        Precision | None, Option("number format of the computations", default="the model's, float32")
    ] = None
    jit: Annotated[
        bool | None,
        Option(
            "compile the training steps with XLA",
            default="as KERAS_TFM_JIT=1 or 0 says; else yes, on a CPU in parts for convolutions and bfloat16",
        ),
    ] = None

    def warmup(self, num_batches: int) -> int:
        """How many steps the warm-up takes if an epoch has `num_batches`: those asked for, or a tenth of all;
        with "inverse-root", which has no end, the task's own, but at most half of all.
        """
        total = self.epochs * num_batches
        steps = total // 10
        if self.schedule == "inverse-root" and self.warmup_by_root is not None:
            epochs, most = self.warmup_by_root
            steps = min(epochs * num_batches, most, total // 2)
        return self.warmup_steps or max(1, steps)

    def lasting(self) -> dict[str, Any]:
        """The fields that may not change when a training is resumed; `epochs` is one if the schedule depends
        on it.
        """
        free = {"minutes", "patience", "precision", "jit"}  # a change of precision has a check of its own
        if self.schedule in ("constant", "inverse-root"):
            free.add("epochs")
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in free}


@dataclasses.dataclass(frozen=True)
class TextTraining(Training):
    """By default the warm-up takes a tenth of the steps."""

    batch_tokens: Annotated[Count, Option(BATCH_TOKENS)] = 4_096

    def batching(self, is_validation: bool) -> dict[str, Any]:
        """Arguments of `Batches`: shuffled by the seed for training, in their own order for validation."""
        order = {"min_batches": 1} if is_validation else {"seed": self.seed}
        return {"batch_tokens": self.batch_tokens, **order}

    def batching_by_length(self, is_validation: bool) -> dict[str, Any]:
        """Arguments of `LengthBatches`. Validation uses few shapes: it has too few batches to compile
        many.
        """
        shapes = {"num_shapes": 4} if is_validation else {"num_epochs": self.epochs}
        return {**self.batching(is_validation), **shapes}


@dataclasses.dataclass(frozen=True)
class MaskedTraining(TextTraining):
    """By default the warm-up takes a tenth of the steps; with --schedule inverse-root two epochs, at most
    10,000 steps and half of all.
    """

    warmup_by_root = (2, 10_000)

    num_drawings: Annotated[
        Count | None,
        Option(
            "draw masks and pairs anew for the first N epochs; later ones repeat them",
            flag="--drawings",
            default="every epoch",
        ),
    ] = None


@dataclasses.dataclass(frozen=True)
class PartlyTrained(Training):
    """Which parts of a model are trained, and at which rates."""

    layer_decay: Annotated[
        Annotated[float, Between(0, 1, is_above=True)],
        Option("learning rate of each block relative to the block above it"),
    ] = 1.0
    num_frozen: Annotated[
        Natural | None,
        Option("do not train the embeddings and the lowest N blocks", flag="--freeze", default="train all"),
    ] = None
    lora_rank: Annotated[
        Count | None,
        Option(
            "low-rank adaptation: train only updates of this rank to the kernels of the blocks, and the head",
            flag="--lora",
            default="train all",
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lora_rank is not None and self.num_frozen is not None:
            raise FieldError("{lora_rank} freezes all blocks: leave out {num_frozen}.")


@dataclasses.dataclass(frozen=True)
class CanvasTraining(PartlyTrained):
    """By default the warm-up takes a tenth of the steps."""

    epochs: Annotated[
        Count | None,
        Option(EPOCHS, default="enough for 2,000 steps, from 10 to 100; 100 with --minutes"),
    ] = None  # type: ignore[assignment]
    batch_size: ImagesInBatch = 16

    def settled(self, num_examples: int) -> Self:
        if self.epochs is not None:
            return self
        steps = max(1, num_examples // self.batch_size)  # of an epoch
        usual = max(LEAST_EPOCHS, USUAL_STEPS // min(steps, self.epoch_batches or steps))
        return dataclasses.replace(self, epochs=MOST_EPOCHS if self.minutes else min(usual, MOST_EPOCHS))


@dataclasses.dataclass(frozen=True)
class MirroredTraining(CanvasTraining):
    """By default the warm-up takes a tenth of the steps."""

    flip: Annotated[
        bool | None,
        Option(
            "mirror images, and what is marked in them, at random",
            default="yes, unless all classes are letters or numbers, which must not be mirrored",
        ),
    ] = None


# Peak learning rates of fresh encoders of texts. At the higher one a BERT forgets after a thousand steps what
# it has learnt: trained on 30,000 phrases of SST-2, it was right in 85 % after one epoch, in 56 % after six.
RATE_OF_FEW, RATE_OF_MANY, MANY_EXAMPLES = 1e-3, 3e-4, 10_000


@dataclasses.dataclass(frozen=True)
class FineTuning(PartlyTrained, TextTraining):
    """By default the warm-up takes a tenth of the steps."""

    learning_rate: Annotated[
        Positive | None,
        Option(PEAK_RATE, default=f"{RATE_OF_FEW}, {RATE_OF_MANY} for more than {MANY_EXAMPLES:,} examples"),
    ] = None  # type: ignore[assignment]

    def settled(self, num_examples: int) -> Self:
        usual = RATE_OF_MANY if num_examples > MANY_EXAMPLES else RATE_OF_FEW
        return dataclasses.replace(self, learning_rate=self.learning_rate or usual)


@dataclasses.dataclass(frozen=True)
class WeightedClasses(Config):
    """The weights of classes in the loss of a training; validation weighs all examples alike. In Python they
    may be a dictionary, {class: weight}.
    """

    class_weight: Annotated[
        str | None,
        Option(
            "weights of the classes in the loss: balanced, which gives each the same share, or JSON such as "
            '{"spam": 5}, 1 for all others',
            default="1 for all",
        ),
    ] = None

    def __post_init__(self) -> None:
        if isinstance(self.class_weight, Mapping):
            weights = {str(name): weight for name, weight in self.class_weight.items()}
            # Numbers of NumPy become Python's; the text of anything else is refused below.
            text = json.dumps(weights, default=lambda x: getattr(x, "tolist", x.__str__)())
            object.__setattr__(self, "class_weight", text)
        super().__post_init__()
        if self.class_weight not in (None, "balanced"):
            self.class_weights()

    def class_weights(self) -> dict[str, float]:
        """The weights by class; ValueError for anything else."""
        try:
            weights = parse_json(str(self.class_weight))
            numbers = weights.values()
            if all(type(x) in (int, float) and 0 <= x < math.inf for x in numbers) and any(numbers):
                return weights
        except (ValueError, AttributeError):
            pass
        expected = 'balanced, or a JSON object of numbers such as {"spam": 5}'
        raise Refusal("class_weight", expected, self.class_weight)


@dataclasses.dataclass(frozen=True)
class ClassTraining(WeightedClasses, FineTuning):
    """By default the warm-up takes a tenth of the steps."""


@dataclasses.dataclass(frozen=True)
class Kept(Config):
    """Where what is learnt is stored: `folder` always holds the best task so far, complete."""

    folder: str
    resume: Annotated[bool, Option("continue from the newest checkpoint in RUN, with its options")] = False
    overwrite: Annotated[bool, Option("replace RUN if it exists")] = False
    record: Annotated[dict, "further entries of training.json"] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resume and self.overwrite:
            raise FieldError(
                "{resume} continues the run that {overwrite} would replace: choose one of the two."
            )


@dataclasses.dataclass(frozen=True)
class Run(Kept):
    """How often, and in which forms, the training of a Keras model is stored."""

    save_minutes: Annotated[
        Annotated[float, Between(0, 10**6, is_above=True)],
        Option("minutes between checkpoints; there is also one after every epoch"),
    ] = 10.0
    tensorboard: Annotated[
        bool, Option("also write the content of metrics.csv to RUN/logs for TensorBoard")
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_pattern(self.folder)  # its checkpoints are TensorFlow's
