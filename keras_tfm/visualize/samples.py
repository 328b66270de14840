"""Attention weights of a training's own steps, sampled within the graph that `fit` compiles."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.layers.attention.tap import recording
from keras_tfm.private.keras import layers_in


class AttentionSamples(keras.callbacks.Callback):
    """The weights in every so many steps of a training, `every`, as they averaged the values there.

    `samples` are [(steps so far, {layer path: weights (B, H, T, S), or a list of several calls})], of the
    step's own batch, in training mode; with `keep` what that function makes of each dict. The other steps
    compute what they do without. ValueError where XLA compiles the step, which has no way out of it for
    arrays: `AttentionHistory` then reads a batch of its own between the epochs.

    >>> inputs = keras.Input((5, 8))
    >>> model = keras_tfm.Model(inputs, keras_tfm.layers.MultiHeadAttention(2, name="attention")(inputs))
    >>> model.compile("adam", "mse", jit_compile=False)
    >>> samples = keras_tfm.visualize.AttentionSamples(every=2)
    >>> x = np.ones((4, 5, 8))
    >>> logs = model.fit(x, x, batch_size=1, verbose=0, callbacks=[samples])
    >>> [(step, weights["attention"].shape) for step, weights in samples.samples]
    [(0, (1, 2, 5, 5)), (2, (1, 2, 5, 5))]
    """

    def __init__(self, every: int = 1, keep: Callable[[dict[str, Any]], Any] | None = None):
        super().__init__()
        if every < 1:
            raise ValueError(f"`every` must be at least 1; it is {every}.")
        self.every = every
        self.keep = keep
        self.samples: list[tuple[int, Any]] = []
        self._found: dict[str, list[np.ndarray]] = {}
        self._step = -1

    def on_train_begin(self, logs: Any = None) -> None:
        if self.model.jit_compile:
            raise ValueError("`AttentionSamples` needs a model that is compiled with `jit_compile=False`.")
        self._own = {id(layer) for layer in layers_in(self.model)}
        self.model.make_train_function(force=True)  # traced anew, with the recording
        steps = self.model.train_function

        def recorded(iterator: Any) -> Any:
            with recording(self._record):  # of the steps alone, not of validation
                return steps(iterator)

        self.model.train_function = recorded

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._close_step()

    def on_train_end(self, logs: Any = None) -> None:
        self.on_fit_end()

    def on_fit_end(self) -> None:
        """Let the next training be compiled without the recording; called after an error too."""
        self._close_step()
        if self.model is not None:
            self.model.train_function = None

    def _record(self, layer: Any, weights: Any) -> None:
        """Add to the graph that is being traced: hand the weights on where the step is one to record."""
        if id(layer) not in self._own:
            return

        def hand_on(step: np.ndarray, weights: np.ndarray) -> np.ndarray:
            if step != self._step:  # of several steps in one call of the compiled function
                self._close_step()
            self._step = int(step)
            self._found.setdefault(layer.path, []).append(weights)
            return step

        step = tf.convert_to_tensor(self.model.optimizer.iterations.value)
        tf.cond(
            tf.equal(step % self.every, 0),
            lambda: tf.numpy_function(hand_on, [step, weights], step.dtype),
            lambda: step,
        )

    def _close_step(self) -> None:
        if self._found:
            weights = {path: calls if len(calls) > 1 else calls[0] for path, calls in self._found.items()}
            self.samples.append((self._step, weights if self.keep is None else self.keep(weights)))
            self._found = {}
