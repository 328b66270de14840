"""Types that the signatures of many tasks use."""

from collections.abc import Callable, Sequence

import tensorflow as tf

ColumnNames = Sequence[str | int] | None  # names or numbers from 0; None takes the columns with known names
Endpoints = dict[str, tuple[Callable, list[tf.TensorSpec]]]  # {signature: (function, input signature)}
