"""Datasets that are a new epoch at each iteration."""

from collections.abc import Callable


class EpochCount:
    """The number of the epoch to come: counted from `epoch`, or asked of it where it is a function."""

    def __init__(self, epoch: int | Callable[[], int]):
        self.epoch = epoch

    def __call__(self) -> int:
        return self.epoch() if callable(self.epoch) else self.epoch

    def finish(self, epoch: int):
        """Epoch number `epoch` has been drawn to its end."""
        if not callable(self.epoch):
            self.epoch = epoch + 1


def ahead_of(num_batches: int) -> int:
    """How many batches to prefetch: so few that a look at the first one does not finish the epoch."""
    return min(4, (num_batches - 1) // 2)
