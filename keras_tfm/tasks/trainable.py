"""The base class of tasks with a Keras model: how `fit` trains it."""

import abc
import contextlib
import dataclasses
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import keras

from keras_tfm.data.batches.epochs import Batches
from keras_tfm.tasks.learning import PLANNED, LearningTask
from keras_tfm.training.changed_steps import Change
from keras_tfm.training.depth import layer_rates
from keras_tfm.training.diagnosis import Reached, StepsDone
from keras_tfm.training.fit import fit_best, in_precision, pays, refuse_eight_bits, seed_draws
from keras_tfm.training.freezing import freeze, trainable_kept
from keras_tfm.training.low_rank import adapted, refuse_rank
from keras_tfm.training.optimizers import AdamW
from keras_tfm.training.options import Kept, PartlyTrained, Run, Training
from keras_tfm.training.strategy import worker_index

LOG = logging.getLogger(__name__)


class TrainableTask(LearningTask):
    """A task whose Keras model learns from examples, under any `tf.distribute` strategy.

    In addition to what `LearningTask` asks for, a subclass defines how examples become batches (`batches`)
    and which losses and metrics the model is compiled with (`objective`).

    >>> names, sizes = ["dark", "light"], {"image_size": 8, "patch_size": 4}
    >>> task = keras_tfm.tasks.ImageClassifier.from_size("tiny", names, **sizes)
    >>> isinstance(task, keras_tfm.tasks.TrainableTask)
    True
    >>> images = np.repeat(np.array([0, 255] * 8, "uint8"), 8 * 8 * 3).reshape(16, 8, 8, 3)
    >>> history = task.fit((images, names * 8), 0.25, epochs=2, run="run")  # a quarter is for validation
    >>> len(history["val_loss"])
    2
    """

    training: ClassVar[Training] = Training()
    kept: ClassVar[type[Kept]] = Run
    start = "a RUN of this task or a related one, or a folder or hub id of Hugging Face"
    has_devices = True
    optimizer_options: Mapping[str, Any] = {"global_clipnorm": 1.0}  # arguments of AdamW

    @classmethod
    def usual_clip_norm(cls) -> str | None:
        """What `optimizer_options` clip to, in words: the default of --clip-norm, if the class says."""
        options = cls.optimizer_options
        if not isinstance(options, Mapping):  # a property, of an object alone
            return None
        if "clipnorm" in options:
            return f"{options['clipnorm']} for each weight's gradient"
        return str(options.get("global_clipnorm", "none"))

    @abc.abstractmethod
    def batches(self, examples: Any, training: Any, /, is_validation: bool = False) -> Batches:
        """The batches to train on, shuffled by `training.seed`, or the batches for validation."""

    @abc.abstractmethod
    def objective(self, training: Any, /) -> dict[str, Any]:
        """Arguments of `compile`: losses and metrics."""

    def optimizer(
        self, training: Any, schedule: keras.optimizers.schedules.LearningRateSchedule, **averages: Any
    ) -> keras.optimizers.Optimizer:
        """The optimizer for a training; `averages` are further arguments of `AdamW`."""
        options = dict(self.optimizer_options)
        if training.clip_norm is not None:
            options.pop("clipnorm", None)  # which clips each weight by itself
            options["global_clipnorm"] = training.clip_norm
        return AdamW(schedule, training.weight_decay, **options, **averages)

    def learner(self, training: Any) -> keras.Model:
        """The model to fit: `self.model`, or one that shares its layers and has other outputs."""
        return self.model

    def change_of(self, training: Any) -> Change | None:
        """How each batch is changed by the model itself before it learns from it, or None; ValueError if it
        cannot be.
        """
        return None

    @contextlib.contextmanager
    def partly_trained(self, training: Any) -> Iterator[None]:
        """A scope in which only parts of the model are trained."""
        yield

    # What the base class does with it --------------------------------------------------------------------

    def refuse_learning(self) -> None:
        """Raise ValueError if the weights are in 8 bits."""
        refuse_eight_bits(self.model)

    @property
    def is_chief(self) -> bool:
        """Whether this process, one of several workers, writes the results."""
        return worker_index(self.model.distribute_strategy) == 0

    def learn(
        self, examples: Any, validation: Any, training: Any, callbacks: Iterable[Any], **keeping: Any
    ) -> dict[str, list[float]]:
        """Fit the model and give it the weights of its best epoch; see `fit_best`."""
        num_epochs, training = training.epochs, self.planned(training)
        seed_draws(self.model, training.seed)
        precision = in_precision(self.model, training.precision)
        with self._graphs_apart(), trainable_kept(self.model), precision:
            batches = self.batches(examples, training)
            validation_batches = self.batches(validation, training, is_validation=True)
            if batches.num_dropped:
                LOG.warning(
                    "%s of the %s are left out, because they are too long or too short.",
                    batches.num_dropped,
                    self.unit,
                )
            training = self._compiled_if_it_pays(training, batches.num_shapes)
            epochs, done = batches.in_epochs_of(training.epoch_batches), StepsDone()
            with self.model.distribute_strategy.scope():  # or a new model would train on one device
                learner = self.learner(training)
            with self.partly_trained(training):
                history = fit_best(
                    learner,
                    epochs,
                    validation_batches.dataset(),
                    training,
                    num_epochs=num_epochs,
                    objective=self.objective(training),
                    optimizer=lambda schedule, **averages: self.optimizer(training, schedule, **averages),
                    monitor=self.judged_by,
                    callbacks=[*callbacks, done],
                    **keeping,
                    change=self.change_of(training),
                )
            # Within a time limit a tenth of the time is the warm-up, if it has not ended by its steps.
            warmup_steps = training.warmup(epochs.num_batches) if training.minutes is None else 0
            self.reached = Reached(done.steps, epochs.num_batches, warmup_steps) if done.steps else None
            return history

    @contextlib.contextmanager
    def _graphs_apart(self) -> Iterator[None]:
        """A scope of which no graph is left, nor was one before: it has its precision and low-rank updates.

        Callbacks may ask the task.
        """
        self.forget_graphs()
        try:
            yield
        finally:
            self.forget_graphs()

    def planned(self, training: Any) -> Any:
        """The `training` with the epochs with which it began. The warm-up and whatever else follows from
        their number stay as they were where a resumed training has more.
        """
        return dataclasses.replace(training, epochs=self.record.get(PLANNED, training.epochs))

    def _compiled_if_it_pays(self, training: Any, num_shapes: int) -> Any:
        """The `training` without XLA if that would take too much of its minutes; a resumed one goes on as it
        began.
        """
        if training.jit is not None or "KERAS_TFM_JIT" in os.environ:
            return training
        jit = self.record.get("jit")
        if jit is None and not pays(training.minutes, num_shapes):
            jit = False
            LOG.info(
                "XLA is left out: compiling the batches, of %d shape%s, would take more than a third of the "
                "minutes (--jit compiles them).",
                num_shapes,
                "s" * (num_shapes > 1),
            )
        if jit is not None:
            self.record = {**self.record, "jit": jit}
        return dataclasses.replace(training, jit=jit)


class FineTunedTask(TrainableTask):
    """A task whose options, a `PartlyTrained`, choose which parts of the model learn, and at which rates."""

    training: ClassVar[PartlyTrained] = PartlyTrained()

    def optimizer(
        self,
        training: PartlyTrained,
        schedule: keras.optimizers.schedules.LearningRateSchedule,
        **averages: Any,
    ) -> keras.optimizers.Optimizer:
        if training.layer_decay != 1:
            averages["rates"] = layer_rates(self.model, training.layer_decay)
        return super().optimizer(training, schedule, **averages)

    @contextlib.contextmanager
    def partly_trained(self, training: PartlyTrained) -> Iterator[None]:
        """A scope that trains only the blocks above the lowest `num_frozen`, or only updates of rank
        `lora_rank`.
        """
        with contextlib.ExitStack() as parts:
            with self.model.distribute_strategy.scope():
                if training.lora_rank is not None:
                    refuse_rank(self.model, training.lora_rank, "lora_rank")
                    parts.enter_context(adapted(self.model, training.lora_rank, training.seed))
                if training.num_frozen is not None:
                    freeze(self.model, training.num_frozen, "num_frozen")
            yield
