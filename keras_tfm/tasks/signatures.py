"""Types that stand in the signatures of many tasks."""

from collections.abc import Callable, Sequence

import tensorflow as tf

ColumnNames = Sequence[str | int] | None  # of a table, or positions from 0; None for the names it knows
Endpoints = dict[str, tuple[Callable, list[tf.TensorSpec]]]  # {signature: (function, input signature)}
