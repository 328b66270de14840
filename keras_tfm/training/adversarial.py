"""Adversarial training: a generator and a discriminator that learn from each other, each by its own
optimizer (Goodfellow et al. 2014, "Generative Adversarial Nets").

    latents -> generator -> generated -> discriminator -> scores, which should be low
                                 real -> discriminator -> scores, which should be high
"""

import operator
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import keras
import tensorflow as tf

from keras_tfm.registry import register
from keras_tfm.training.exact import expect_summed_gradients
from keras_tfm.training.model import Model
from keras_tfm.training.replicas import is_one_of_several, over_all_replicas, sum_over_replicas


class AdversarialLosses(NamedTuple):
    """Functions of scores: the discriminator's losses for `real` and `generated` examples, and the
    `generator`'s loss.
    """

    real: Callable[[tf.Tensor], tf.Tensor]
    generated: Callable[[tf.Tensor], tf.Tensor]
    generator: Callable[[tf.Tensor], tf.Tensor]


LOSSES = {
    # Goodfellow et al. 2014, section 3: the generator maximises log D(G(z)).
    "non_saturating": AdversarialLosses(
        lambda scores: tf.math.softplus(-scores), tf.math.softplus, lambda scores: tf.math.softplus(-scores)
    ),
    # Lim and Ye 2017, "Geometric GAN", section 3.
    "hinge": AdversarialLosses(
        lambda scores: tf.nn.relu(1 - scores), lambda scores: tf.nn.relu(1 + scores), operator.neg
    ),
}


@register
class Adversarial(Model):
    """A `generator` and a `discriminator`, trained in turn by `fit` on batches of real examples.

    Each step draws latents and generates a batch. The discriminator learns to score real examples higher
    than generated ones, then the generator learns to raise the new discriminator's scores of the same batch.
    Calling the model generates by `average`, a moving average of the generator.

    Both players are functional models with inputs by name. What the generator outputs, {"images": ...} for
    example, has the names of the discriminator's inputs, whose output is a tensor of scores (B, ...) or
    {"scores": ...}. A batch holds the real examples by the same names, and all else that the players read,
    such as labels. A generator's `latents` that are not in the batch are drawn from a normal distribution.

    Metrics: `loss`, the sum of `discriminator_loss` and `generator_loss`; `accuracy`, the share of real
    examples with scores above 0 and of generated ones with scores below 0. All are means over the batches of
    all replicas. Losses that layers add, such as regularizers, are not used.

    Args:
        loss: "non_saturating" or "hinge".
        penalty: the factor gamma of R1, which adds gamma / 2 times the squared norm of the scores' gradient
            by the real examples to the discriminator's loss (Mescheder, Geiger and Nowozin 2018, "Which
            Training Methods for GANs do actually Converge?", section 4.1).
        momentum: the share of itself that `average` keeps at each step.

    >>> from keras_tfm.models import ViTGAN, ViTGANDiscriminator
    >>> generator, discriminator = ViTGAN.from_size("tiny"), ViTGANDiscriminator.from_size("tiny")
    >>> model = keras_tfm.training.Adversarial(generator, discriminator, penalty=1.0)
    >>> model.compile(keras.optimizers.Adam(1e-4, 0.0), keras.optimizers.Adam(1e-4, 0.0))
    >>> images = np.zeros((4, 8, 8, 1), "float32")
    >>> sorted(model.fit({"images": images}, verbose=0).history)
    ['accuracy', 'discriminator_loss', 'generator_loss', 'loss']
    >>> model({"latents": np.zeros((2, 32))})["images"].shape
    TensorShape([2, 8, 8, 1])
    """

    def __init__(
        self,
        generator: keras.Model,
        discriminator: keras.Model,
        loss: Literal["non_saturating", "hinge"] = "non_saturating",
        penalty: float = 0.0,
        momentum: float = 0.999,
        name: str = "adversarial",
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        if loss not in LOSSES:
            raise ValueError(f"`loss` must be one of {', '.join(LOSSES)}; it is {loss!r}.")
        if penalty < 0:
            raise ValueError(f"`penalty` must not be negative; it is {penalty}.")
        if not 0 <= momentum < 1:
            raise ValueError(f"`momentum` must lie in [0, 1); it is {momentum}.")
        for role, model in (("generator", generator), ("discriminator", discriminator)):
            if not isinstance(getattr(model, "input", None), dict):
                raise ValueError(f"`{role}` must be a functional model with inputs by name; it is {model!r}.")
        outputs = generator.output
        if not isinstance(outputs, dict) or not outputs.keys() & discriminator.input.keys():
            raise ValueError(
                f"`generator` must output {', '.join(discriminator.input)} by name, which `discriminator` "
                f"reads; it outputs {', '.join(outputs) if isinstance(outputs, dict) else outputs!r}."
            )
        self.generator = generator
        self.discriminator = discriminator
        self.loss_name = loss
        self.penalty = penalty
        self.momentum = momentum
        with keras.name_scope("average"):
            self.average = type(generator).from_config(generator.get_config())
        self.average.trainable = False
        self.average.set_weights(generator.get_weights())
        self.seed_generator = keras.random.SeedGenerator()
        self.trackers = {
            key: keras.metrics.Mean(name=key) for key in ("discriminator_loss", "generator_loss", "accuracy")
        }
        self.built = True

    def compile(
        self,
        optimizer: keras.optimizers.Optimizer,
        discriminator_optimizer: keras.optimizers.Optimizer,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: Any = "auto",
    ) -> None:
        """`keras.Model.compile` with an optimizer for each player; `optimizer` is the generator's.

        Raises:
            ValueError: for one optimizer for both, and for `use_ema`, since the model itself has an average.
        """
        if optimizer is discriminator_optimizer and not isinstance(optimizer, str):
            raise ValueError(f"Each player needs an optimizer of its own; both have {optimizer!r}.")
        self.discriminator_optimizer = keras.optimizers.get(discriminator_optimizer)
        super().compile(
            optimizer,
            run_eagerly=run_eagerly,
            steps_per_execution=steps_per_execution,
            jit_compile=jit_compile,
        )
        wrapper = keras.optimizers.LossScaleOptimizer
        if isinstance(self.optimizer, wrapper) and not isinstance(self.discriminator_optimizer, wrapper):
            self.discriminator_optimizer = wrapper(self.discriminator_optimizer)  # as Keras does in float16
        for one, player in zip(self.optimizers, (self.generator, self.discriminator), strict=True):
            if getattr(one, "inner_optimizer", one).use_ema:
                raise ValueError("`use_ema` must be False: `average` is the generator's moving average.")
            one.build(player.trainable_variables)

    @property
    def optimizers(self) -> list[keras.optimizers.Optimizer]:
        """The generator's and the discriminator's."""
        return [self.optimizer, self.discriminator_optimizer]

    def get_compile_config(self) -> dict[str, Any]:
        """What `compile_from_config` takes: the two optimizers, and how steps run."""
        config = super().get_compile_config()
        if not config:
            return config
        optimizer = keras.saving.serialize_keras_object(self.discriminator_optimizer)
        settings = ("optimizer", "run_eagerly", "steps_per_execution", "jit_compile")
        return {name: config[name] for name in settings} | {"discriminator_optimizer": optimizer}

    def call(self, x: Any, training: bool | None = None) -> dict[str, tf.Tensor]:
        """What `average` generates from `latents`, and from all else that it reads."""
        return self.average(_inputs_of(self.average, x), training=training)

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """A step of the discriminator and one of the generator on a (local) batch; the metrics so far."""
        x = self._with_latents(data)
        with tf.GradientTape() as tape:
            generated = self.generator(_inputs_of(self.generator, x), training=True)
            with tape.stop_recording():
                discriminator_loss, accuracy = self._discriminator_step(x, generated)
            loss = self._objective.generator(self._scores(x | generated, training=True))
            scaled_loss = self.optimizer.scale_loss(mean_over_batch(per_example(loss)))
        update_player(
            self.optimizer, self.generator, tape.gradient(scaled_loss, self.generator.trainable_variables)
        )
        self._move_average()
        return self._measured(discriminator_loss, per_example(loss), accuracy)

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """The metrics so far; the discriminator's loss is without the penalty."""
        x = self._with_latents(data)
        generated = self.generator(_inputs_of(self.generator, x), training=False)
        scores = self._scores(x, training=False), self._scores(x | generated, training=False)
        loss = per_example(self._objective.generator(scores[1]))
        return self._measured(self._discriminator_loss(*scores), loss, _accuracy(*scores))

    def _discriminator_step(self, x: Any, generated: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """(the loss, the accuracy) of each example, (B,) each, before the step."""
        with tf.GradientTape() as tape:
            with tf.GradientTape(watch_accessed_variables=False) as by_examples:
                real = {name: tf.cast(x[name], tf.float32) for name in self._names}
                by_examples.watch(real)
                real_scores = self._scores(x | real, training=True)
            scores = self._scores(x | generated, training=True)
            loss = self._discriminator_loss(real_scores, scores)
            if self.penalty:
                slopes = by_examples.gradient(real_scores, list(real.values()))
                norms = [tf.reduce_sum(tf.square(slope), range(1, slope.shape.rank)) for slope in slopes]
                loss += self.penalty / 2 * tf.add_n(norms)
            scaled_loss = self.discriminator_optimizer.scale_loss(mean_over_batch(loss))
        update_player(
            self.discriminator_optimizer,
            self.discriminator,
            tape.gradient(scaled_loss, self.discriminator.trainable_variables),
        )
        return loss, _accuracy(real_scores, scores)

    def _move_average(self) -> None:
        for average, variable in zip(self.average.weights, self.generator.weights, strict=True):
            value = tf.convert_to_tensor(variable.value)
            if value.dtype.is_floating:
                value += self.momentum * (tf.convert_to_tensor(average.value) - value)
            average.assign(value)

    @property
    def _objective(self) -> AdversarialLosses:
        return LOSSES[self.loss_name]

    @property
    def _names(self) -> list[str]:
        """What is generated, and what the discriminator reads of it."""
        return [name for name in self.generator.output if name in self.discriminator.input]

    def _with_latents(self, data: Any) -> dict[str, tf.Tensor]:
        """The inputs of a batch, by name; latents are drawn if it has none."""
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        if not isinstance(x, dict) or not x.keys() >= set(self._names):
            names = ", ".join(x) if isinstance(x, dict) else f"a {type(x).__name__}"
            raise ValueError(f"A batch must hold {', '.join(self._names)} by name; it is {names}.")
        latents = self.generator.input.get("latents")
        if latents is None or "latents" in x:
            return x
        shape = (tf.shape(x[self._names[0]])[0], *latents.shape[1:])
        return x | {"latents": keras.random.normal(shape, seed=self.seed_generator)}

    def _scores(self, x: dict[str, tf.Tensor], training: bool) -> tf.Tensor:
        scores = self.discriminator(_inputs_of(self.discriminator, x), training=training)
        return tf.cast(scores["scores"] if isinstance(scores, dict) else scores, tf.float32)

    def _discriminator_loss(self, real_scores: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        return per_example(self._objective.real(real_scores)) + per_example(self._objective.generated(scores))

    def _measured(
        self, discriminator_loss: tf.Tensor, generator_loss: tf.Tensor, accuracy: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        self._loss_tracker.update_state(discriminator_loss + generator_loss)
        for tracker, values in zip(
            self.trackers.values(), (discriminator_loss, generator_loss, accuracy), strict=True
        ):
            tracker.update_state(values)
        return self.get_metrics_result()

    def get_config(self) -> dict[str, Any]:
        players = {"generator": self.generator, "discriminator": self.discriminator}
        return {name: keras.saving.serialize_keras_object(player) for name, player in players.items()} | {
            "loss": self.loss_name,
            "penalty": self.penalty,
            "momentum": self.momentum,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "Adversarial":
        """Rebuild the model from `get_config`'s dictionary."""
        players = {
            name: keras.saving.deserialize_keras_object(config[name], custom_objects)
            for name in ("generator", "discriminator")
        }
        return cls(**config | players)


def _inputs_of(model: keras.Model, x: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {name: x[name] for name in model.input if name in x}


def update_player(
    optimizer: keras.optimizers.Optimizer, player: keras.Model, gradients: list[tf.Tensor]
) -> None:
    """A step of `optimizer` by the gradients of the `player`'s weights, summed over all replicas."""
    if is_one_of_several():
        expect_summed_gradients(getattr(optimizer, "inner_optimizer", optimizer))
        gradients = sum_over_replicas(gradients)
    optimizer.apply_gradients(zip(gradients, player.trainable_variables, strict=True))


def per_example(values: tf.Tensor) -> tf.Tensor:
    """The mean of the values (B, ...) of each example: (B,)."""
    return tf.reduce_mean(values, range(1, values.shape.rank))


def mean_over_batch(values: tf.Tensor) -> tf.Tensor:
    """The mean of (B,) over the batches of all replicas, divided by their number."""
    return over_all_replicas(tf.reduce_sum(values), tf.cast(tf.size(values), values.dtype))


def _accuracy(real_scores: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """The share of right signs among the scores of a real and of a generated example: (B,)."""
    right = tf.cast(real_scores > 0, tf.float32), tf.cast(scores < 0, tf.float32)
    return (per_example(right[0]) + per_example(right[1])) / 2
