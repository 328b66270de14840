"""What a training that does not learn looks like, and what to try.

The guide "It does not learn" (`docs/guides/not_learning.md`) explains each remark under its key.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras

from keras_tfm.training.logs import inner_optimizer
from keras_tfm.training.monitor import Logs

GUIDE = "It does not learn"
FEW = 20  # validation examples: fewer say nothing about classes
SOME = 200  # examples are asked, to see whether all answers are the same
FLAT = 0.01  # the share of the training loss that has to go before it counts as falling
NO_BETTER = "no better than the baseline"
JUMP = 2  # times the highest training loss before is no chance
EPOCHS = 3  # fewer epochs say nothing about a loss


class Reached(NamedTuple):
    """How far a training went: its `steps`, the steps of an epoch, and the steps of the warm-up."""

    steps: int
    epoch_steps: int
    warmup_steps: int


class StepsDone(keras.callbacks.Callback):
    """Notes the `steps` of a training at its end, including all steps before it was resumed."""

    steps: int | None = None

    def on_train_end(self, logs: Logs = None) -> None:
        self.steps = int(keras.ops.convert_to_numpy(inner_optimizer(self.model).iterations))


class Remark(NamedTuple):
    """What was seen, and what to try; `key` is the section of the guide."""

    key: str
    text: str

    def __str__(self) -> str:
        return f'{self.text} (guide "{GUIDE}", {self.key!r})'


def stopped_early(reached: Reached | None) -> Remark | None:
    """A training that ended within its first epoch, or before its learning rate had risen."""
    if reached is None:
        return None
    steps, epoch_steps, warmup_steps = reached
    if steps < epoch_steps:
        return Remark(
            "stopped early",
            f"The training stopped at step {steps:,} of the {epoch_steps:,} of its first epoch: give it more "
            "minutes, a smaller model or shorter epochs (--epoch-batches).",
        )
    if steps < warmup_steps:
        return Remark(
            "stopped early",
            f"The training stopped at step {steps:,}, within the {warmup_steps:,} of its warm-up: train "
            f"longer, or shorten it (--warm-up {max(1, steps // 10)}).",
        )
    return None


def one_class(answers: Sequence[Any] | None) -> Remark | None:
    """A model that gives one answer, whatever it is asked."""
    if answers is None or len(answers) < FEW or len(set(map(str, answers))) > 1:
        return None
    return Remark(
        "one class",
        f"The model answers {str(answers[0])!r} to all of {len(answers)} validation examples: try another "
        "learning rate, ten times higher or lower, more epochs, or trained weights (--from).",
    )


def no_better(metric: str, score: float, rule: str, baseline: float) -> Remark:
    """A model that is no better than a simple `rule`."""
    return Remark(
        NO_BETTER,
        f"The best {metric}, {score:.4f}, is no better than {rule}, {baseline:.4f}: check that the labels "
        "belong to the examples, try another learning rate, more epochs or trained weights (--from).",
    )


def rule_wins(metric: str, score: float, rule: str, baseline: float, code: str) -> Remark:
    """A model that has learnt, but less than a simple `rule`, which `code` shows how to write."""
    return Remark(
        "a simple rule is better",
        f"{rule} has {metric} {baseline:.4f}, the model {score:.4f}: for these data it is the better "
        f"choice{code}, or start from trained weights (--from).",
    )


def jump(history: Mapping[str, Sequence[float]]) -> Remark | None:
    """A training loss that was far higher in an epoch than in all before it."""
    losses = [float(loss) for loss in history.get("loss", ())]
    for epoch in range(1, len(losses)):
        before, loss = losses[:epoch], losses[epoch]
        if min(before) > 0 and JUMP * max(before) < loss < math.inf:
            return Remark(
                "the loss jumped",
                f"The training loss rose from {before[-1]:.4g} to {loss:.4g} in epoch {epoch + 1}, which "
                "undoes what was learnt: lower the learning rate, or clip the gradients more (--clip-norm "
                "0.1).",
            )
    return None


def flat_loss(history: Mapping[str, Sequence[float]]) -> Remark | None:
    """A training loss that hardly falls."""
    losses = [float(loss) for loss in history.get("loss", ())]
    if len(losses) < EPOCHS or not all(map(math.isfinite, losses)) or losses[0] <= 0:
        return None
    fall = 1 - min(losses) / losses[0]
    if fall >= FLAT:
        return None
    return Remark(
        "the loss is flat",
        f"The training loss fell by {max(0.0, fall):.1%} in {len(losses)} epochs: try a learning rate ten "
        "times higher, then one ten times lower.",
    )
