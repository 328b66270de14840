"""Training that gives the same numbers on several replicas as on one: what `keras_tfm.Model` adds to Keras.

On one replica a step differs from Keras's in two ways: gradients are clipped by the norms of whole gradients,
and XLA compiles the step as `compiled.py` says. On several, each loss is one sum over all replicas divided by
one denominator, gradients are summed once and clipped after that, and each replica draws different random
numbers.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_tfm.jit import fuses
from keras_tfm.private import keras as private
from keras_tfm.replaced import added_losses
from keras_tfm.training.compiled import compiled_for, has_one_shape, in_parts
from keras_tfm.training.global_loss import GlobalCompileLoss
from keras_tfm.training.optimizers import as_dense
from keras_tfm.training.replicas import (
    batch_size_of,
    mean_over_replicas,
    over_all_replicas,
    replica_offset,
    sum_over_replicas,
)
from keras_tfm.training.strategy import use_own_collective_keys

Base: Any = object  # a mixin: `keras.Model` follows it


class ExactTrainer(Base):
    """The part of `keras_tfm.Model` that trains, evaluates and predicts under `tf.distribute`."""

    _compile_loss: Any
    jit_compile: Any
    compiles_parts = False  # whether XLA compiles what stands between the products of a step
    _epochs_of_fit: Any = False  # during fit: Keras's iterator over the epochs, which `Checkpoint` uses

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """`keras.Model.compile`, with losses computed over all replicas of the strategy.

        With Keras's default, `jit_compile="auto"`, XLA compiles parts of a step where it would slow down the
        whole: see `keras_tfm.jit.fuses`.
        """
        super().compile(*args, **kwargs)
        is_auto = kwargs.get("jit_compile", "auto") == "auto"
        self.compiles_parts = is_auto and not self.run_eagerly and fuses(self)
        for optimizer in self.optimizers:
            clip_whole_gradients(getattr(optimizer, "inner_optimizer", optimizer))
        if not self._is_replicated:
            return
        use_own_collective_keys(self.distribute_strategy)
        loss = self._compile_loss
        if loss is not None:
            self._compile_loss = private.remade_loss(loss, GlobalCompileLoss)

    @property
    def optimizers(self) -> list[keras.optimizers.Optimizer]:
        """All optimizers of a step, whose state a checkpoint holds: here the one, or none."""
        return [] if self.optimizer is None else [self.optimizer]

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Like Keras's, which skips models with a `compile` method of their own."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built and self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: str | int = "auto",
        callbacks: Any = None,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """`keras.Model.fit`; callbacks with a method `on_fit_end()` are called at the end, also after an
        error.
        """
        self._epochs_of_fit = None
        try:
            return super().fit(x, y, batch_size, epochs, verbose, callbacks, **kwargs)
        finally:
            self._epochs_of_fit = False
            # In reverse, so that what callbacks changed one after another is changed back.
            for callback in reversed(keras.tree.flatten(getattr(callbacks, "callbacks", callbacks))):
                getattr(callback, "on_fit_end", lambda: None)()

    def _get_metrics_result_or_logs(self, logs: Any) -> dict[str, Any]:
        """Keras's `logs`, or the metrics if a resumed epoch had no step left."""
        return super()._get_metrics_result_or_logs(logs) if logs else self.get_metrics_result()

    @property
    def _is_replicated(self) -> bool:
        return self.distribute_strategy.num_replicas_in_sync > 1

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> tf.Tensor:
        """Keras's loss; on several replicas, the loss over all of them divided by their number."""
        # Read the added losses before anything waits for other replicas: Keras keeps only the last call's.
        added = self.losses
        if not self._is_replicated or not added:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        losses = [] if self._compile_loss is None else [self._compile_loss(y, y_pred, sample_weight)]
        batch_size = tf.cast(batch_size_of(x), "float32")
        # Layers add means over the local batch: weigh each by the size of the local batch.
        losses += [over_all_replicas(tf.reduce_sum(loss) * batch_size, batch_size) for loss in added]
        return tf.add_n(losses)

    def mean_of_batch(self, x: tf.Tensor) -> tf.Tensor:
        """The mean of `x` (B, ...) over the global batch, of which each replica has a part."""
        return mean_over_replicas(x)

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """One step on a (local) batch; returns the metrics so far.

        Where batches differ in shape, XLA compiles the gradients for each shape, but the update once.
        """
        if not self._is_replicated:
            if not self.jit_compile or has_one_shape(data):
                return compiled_for(self, self._local_step)(data)
            gradients, metrics = compiled_for(self, self._dense_gradients)(data)
            compiled_for(self, self._update)(gradients)
            return metrics
        gradients, metrics = self._gradients(data)
        # Not in `compile`: with a `train_step` of the user's own, the optimizer sums the gradients.
        expect_summed_gradients(getattr(self.optimizer, "inner_optimizer", self.optimizer))
        self._update(sum_over_replicas(gradients))
        return metrics

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Keras's, but for the weight of a batch in the mean of the loss; returns the metrics so far."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        y_pred = self(x, training=False) if self._call_has_training_arg else self(x)
        self._track(self._compute_loss(x, y, y_pred, sample_weight, training=False), x, sample_weight)
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def _track(self, loss: tf.Tensor, x: Any, sample_weight: Any) -> None:
        """Let the loss of a batch count in the mean over batches as often as what it is itself the mean over:
        its weights, without padding then, or its examples.
        """
        by_weight = getattr(self.loss, "reduction", None) == "mean_with_sample_weight"
        is_weighted = by_weight and tf.is_tensor(sample_weight)
        count = tf.reduce_sum(tf.cast(sample_weight, "float32")) if is_weighted else batch_size_of(x)
        self._loss_tracker.update_state(private.unscale_loss_for_distribution(loss), sample_weight=count)

    def _local_step(self, data: Any) -> dict[str, tf.Tensor]:
        gradients, metrics = self._gradients(data)
        self._update(gradients)
        return metrics

    def _dense_gradients(self, data: Any) -> tuple[list[tf.Tensor | None], dict[str, tf.Tensor]]:
        """Gradients as dense tensors (slices would have the batch's shape), and the metrics."""
        gradients, metrics = self._gradients(data)
        return [as_dense(gradient) for gradient in gradients], metrics

    def _gradients(self, data: Any) -> tuple[list[tf.Tensor | None], dict[str, tf.Tensor]]:
        """The gradients of the loss on a (local) batch by the trainable weights, and the metrics so far."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            y_pred = self._forward(x) if self._is_replicated else self._in_training(x)
            loss = self._compute_loss(x, y, y_pred, sample_weight, training=True)
            scaled_loss = self.optimizer.scale_loss(loss)
        self._track(loss, x, sample_weight)
        gradients = tape.gradient(scaled_loss, self.trainable_weights)
        return gradients, self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def _update(self, gradients: Sequence[tf.Tensor | None]) -> None:
        """The optimizer's step; none if no weight can be trained."""
        if gradients:
            self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))

    def _in_training(self, x: Any) -> Any:
        return self(x, training=True) if self._call_has_training_arg else self(x)

    def _forward(self, x: Any) -> Any:
        """The model in training on one of several replicas. XLA compiles only this part, and only where no
        layer communicates with the other replicas.
        """

        def call(x: Any) -> tuple:
            with added_losses(self) as losses:
                y_pred = self._in_training(x)
            return y_pred, keras.tree.map_structure(private.get_keras_mask, y_pred), losses

        communicates = any(getattr(layer, "communicates", False) for layer in private.layers_in(self))
        y_pred, masks, losses = (call if communicates else compiled_for(self, call))(x)
        private.clear_losses(self)  # of another replica, which waits
        for loss in losses:
            # `self.add_loss` raises for a functional model, which has no `call` of its own.
            keras.layers.Layer.add_loss(self, loss)
        for y, mask in zip(keras.tree.flatten(y_pred), keras.tree.flatten(masks), strict=True):
            if mask is not None:
                private.set_keras_mask(y, mask)
        return y_pred

    def _make_function(self, step: Callable) -> Callable:
        # Then `train_step` says what XLA compiles; a step of the user's own is compiled whole.
        compiles_itself = step == self.train_step and type(self).train_step is ExactTrainer.train_step
        step = in_parts(step) if self.compiles_parts else step
        if not self._is_replicated:
            jit, self.jit_compile = self.jit_compile, self.jit_compile and not compiles_itself
            try:
                return super()._make_function(step)
            finally:
                self.jit_compile = jit
        self._make_draws_distinct()
        strategy = self.distribute_strategy

        @tf.autograph.experimental.do_not_convert
        def one_step(data: Any) -> dict[str, tf.Tensor]:
            outputs = strategy.run(step, args=(data,))
            means = keras.tree.map_structure(
                lambda x: tf.reduce_mean(tf.stack(strategy.experimental_local_results(x)), axis=0), outputs
            )
            # Within a replica, a metric's result is that replica's alone: read it again over all.
            return means | {k: v for k, v in self.get_metrics_result().items() if k in means}

        def steps(iterator: tf.data.Iterator) -> dict[str, tf.Tensor]:
            logs = one_step(next(iterator))
            for _ in tf.range(self.steps_per_execution - 1):
                batch = iterator.get_next_as_optional()
                if not batch.has_value():
                    break
                logs = one_step(batch.get_value())
            return logs

        from_iterator = tf.function(steps, reduce_retracing=True)
        from_batch = one_step if self.run_eagerly else tf.function(one_step, reduce_retracing=True)

        def function(iterator: Any) -> dict[str, tf.Tensor]:
            if isinstance(iterator, tf.distribute.DistributedIterator) and not self.run_eagerly:
                return from_iterator(iterator)
            # Eagerly, by a `WorkerIterator`, or by `train_on_batch`, where each replica gets the whole batch.
            logs = from_batch(next(iterator))
            for batch in itertools.islice(iterator, self.steps_per_execution - 1):
                logs = from_batch(batch)
            return logs

        return function

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Build the optimizer and metrics before the first step; a step that creates variables is traced
        twice.

        On several replicas Keras would average their batches here, which fails for batches of different
        sizes.
        """
        is_training = self._epochs_of_fit is None
        if is_training:
            self._epochs_of_fit = iterator  # the first iterator that `fit` makes reads the training data
        if not self._is_replicated:
            if is_training and type(self).train_step is ExactTrainer.train_step and not self.run_eagerly:
                with self.distribute_strategy.scope():
                    private.build_for(self, iterator)
            return super()._maybe_symbolic_build(iterator, data_batch)  # the rest
        if iterator is not None:
            _, _, batches = next(iter(iterator))
            results = self.distribute_strategy.experimental_local_results
            data_batch = keras.tree.map_structure(lambda x: results(x)[0], next(batches))
        with self.distribute_strategy.scope():
            self._symbolic_build(data_batch=data_batch)

    def _make_draws_distinct(self) -> None:
        """Let dropout, and every other seed generator, draw different numbers on each replica."""
        for layer in private.layers_in(self):
            for generator in private.seed_generators_of(layer):
                if not isinstance(generator.next, functools.partial):
                    generator.next = functools.partial(_next_on_replica, generator.next)


def clip_whole_gradients(optimizer: keras.optimizers.Optimizer) -> None:
    """Make `optimizer` clip by the norms of whole gradients.

    The gradient of a table of vectors comes in slices, one for each lookup of a row. Keras squares them one
    by one, so that its norms depend on how often a row was looked up, and on the number of replicas.
    """
    if optimizer.clipnorm or optimizer.global_clipnorm or optimizer.clipvalue:
        private.replace_clipping(
            optimizer, lambda clip: lambda gradients: clip([as_dense(gradient) for gradient in gradients])
        )


def expect_summed_gradients(optimizer: keras.optimizers.Optimizer) -> None:
    """Make `optimizer` take gradients that are already summed over the replicas.

    If it accumulates gradients, it does so outside the replicas: a condition inside a replica could not
    update variables on all of them.
    """
    private.take_summed_gradients(optimizer)
    if optimizer.gradient_accumulation_steps:
        if optimizer.use_ema and optimizer.ema_overwrite_frequency:
            raise ValueError(
                "On several replicas `gradient_accumulation_steps` excludes `ema_overwrite_frequency`."
            )
        private.replace_update(optimizer, functools.partial(_accumulate, optimizer))


def _accumulate(
    optimizer: keras.optimizers.Optimizer, gradients: list[tf.Tensor], variables: list[keras.Variable]
) -> None:
    """A step of an optimizer that accumulates gradients."""
    steps = optimizer.gradient_accumulation_steps
    sums = private.accumulated_gradients(optimizer, variables)

    def apply_mean(gradients: list[tf.Tensor]) -> None:
        means = [(gradient + total) / steps for gradient, total in zip(gradients, sums, strict=True)]
        private.clip_decay_and_update(optimizer, means, variables)

    def add(gradients: list[tf.Tensor]) -> None:
        private.accumulate(optimizer, gradients, sums)

    def in_turn(strategy: tf.distribute.Strategy, gradients: list[tf.Tensor]) -> None:
        on_each = functools.partial(strategy.extended.call_for_each_replica, args=(gradients,))

        def update() -> None:
            on_each(apply_mean)
            for total in sums:
                total.assign(tf.zeros_like(total))

        tf.cond((private.batches_seen(optimizer) + 1) % steps == 0, update, lambda: on_each(add))

    tf.distribute.get_replica_context().merge_call(in_turn, args=(gradients,))
    if optimizer.use_ema:
        private.update_averages(optimizer)


def _next_on_replica(draw: Callable[..., tf.Tensor], *args: Any, **kwargs: Any) -> tf.Tensor:
    seed = draw(*args, **kwargs)
    offset = replica_offset(seed.dtype)
    return seed + tf.stack([offset, tf.zeros_like(offset)])
