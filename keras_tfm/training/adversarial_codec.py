"""A codec that learns against a discriminator (Esser et al. 2021, "Taming Transformers for High-Resolution
Image Synthesis", section 3.1).

    images -> codec -> images' -> loss of pixels and codes
                          '----> discriminator -> scores, which the codec raises
"""

from typing import Any

import keras
import tensorflow as tf

from keras_tfm.private.keras import unscale_loss_for_distribution as unscale
from keras_tfm.training.adversarial import LOSSES, mean_over_batch, per_example, update_player
from keras_tfm.training.model import Model
from keras_tfm.training.replicas import is_one_of_several, sum_over_replicas

GREATEST = 1e4  # of the factor by which the two losses of the codec are balanced
HINGE = LOSSES["hinge"]


class AdversarialCodec(Model):
    """A `codec` that learns by the loss that it is compiled with and, after `after` steps, against a
    `discriminator`.

    The adversarial loss is hinge, times `weight` and times the quotient of the gradients' norms at
    `last_kernel`, of the compiled loss by the adversarial one (eq. 7 there). `weights` are the codec's alone,
    which a RUN keeps; a checkpoint also holds the discriminator. Metrics: `loss`, which judges nothing but
    pixels and codes, `adversarial_loss`, `discriminator_loss`, and `steps` of the training so far.

    >>> from keras_tfm.models.pictures.patch_discriminator import patch_discriminator
    >>> codec = keras_tfm.models.VQGAN.from_size("tiny")
    >>> kernel = codec.last_kernel
    >>> model = keras_tfm.training.AdversarialCodec(codec, patch_discriminator((32, 32, 3)), kernel, after=1)
    >>> model.compile("adam", keras.optimizers.Adam(1e-4), loss={"images": "mae"})
    >>> images = np.zeros((2, 32, 32, 3), "float32")
    >>> sorted(model.fit({"images": images}, {"images": images}, epochs=2, verbose=0).history)
    ['adversarial_loss', 'discriminator_loss', 'loss', 'steps']
    """

    def __init__(
        self,
        codec: keras.Model,
        discriminator: keras.Model,
        last_kernel: keras.Variable,
        after: int,
        weight: float = 0.8,
        name: str = "adversarial_codec",
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        if after < 0:
            raise ValueError(f"`after` must be at least 0; it is {after}.")
        self.codec = codec
        self.discriminator = discriminator
        self.last_kernel = last_kernel
        self.after = after
        self.weight = weight
        self.trackers = {
            key: keras.metrics.Mean(name=key) for key in ("adversarial_loss", "discriminator_loss")
        }
        self.built = True

    def compile(
        self,
        optimizer: keras.optimizers.Optimizer,
        discriminator_optimizer: keras.optimizers.Optimizer,
        loss: Any = None,
        jit_compile: Any = "auto",
        **kwargs: Any,
    ) -> None:
        """`keras.Model.compile` with an optimizer for each player; `optimizer` is the codec's."""
        self.discriminator_optimizer = discriminator_optimizer
        super().compile(optimizer, loss, jit_compile=jit_compile, **kwargs)
        self.optimizer.build(self.codec.trainable_variables)
        discriminator_optimizer.build(self.discriminator.trainable_variables)

    @property
    def optimizers(self) -> list[keras.optimizers.Optimizer]:
        """The codec's and the discriminator's."""
        return [self.optimizer, self.discriminator_optimizer]

    @property
    def weights(self) -> list[keras.Variable]:
        """The codec's."""
        return self.codec.weights

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        """The codec's."""
        return self.codec.trainable_variables

    def call(self, x: Any, training: bool | None = None) -> dict[str, tf.Tensor]:
        """What the codec makes of images."""
        return self.codec(x, training=training)

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """A step of the codec and one of the discriminator on a (local) batch; the metrics so far."""
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        is_begun = tf.cast(self.optimizer.iterations >= self.after, tf.float32)
        with tf.GradientTape(persistent=True) as tape:
            outputs = self._forward(x) if self._is_replicated else self(x, training=True)
            loss = self.compute_loss(x, y, outputs)
            scores = self._scores(outputs["images"])
            adversarial = mean_over_batch(per_example(HINGE.generator(scores)))
        factor = is_begun * self.weight * self._balance(tape, loss, adversarial)
        scale = self.optimizer.scale_loss(tf.ones(()))
        variables = self.codec.trainable_variables
        gradients = tape.gradient([loss, adversarial], variables, output_gradients=[scale, scale * factor])
        del tape
        update_player(self.optimizer, self.codec, gradients)
        discriminator_loss = self._discriminator_step(
            x["images"], tf.stop_gradient(outputs["images"]), is_begun
        )
        # On several replicas each loss is the one over all of them divided by their number.
        self._loss_tracker.update_state(unscale(loss))
        self.trackers["adversarial_loss"].update_state(unscale(is_begun * adversarial))
        self.trackers["discriminator_loss"].update_state(unscale(discriminator_loss))
        return self.get_metrics_result()

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """The compiled loss so far, and the steps of the training."""
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        loss = unscale(self.compute_loss(x, y, self(x, training=False), training=False))
        self._loss_tracker.update_state(loss, sample_weight=tf.shape(x["images"])[0])
        return {name: value for name, value in self.get_metrics_result().items() if name in ("loss", "steps")}

    def get_metrics_result(self) -> dict[str, Any]:
        """The metrics so far, and the steps of the training."""
        return super().get_metrics_result() | {"steps": tf.cast(self.optimizer.iterations, tf.float32)}

    def _balance(self, tape: tf.GradientTape, *losses: tf.Tensor) -> tf.Tensor:
        """The quotient of the norms of two losses' gradients at the last kernel, at most `GREATEST`."""
        gradients = [tape.gradient(loss, self.last_kernel.value) for loss in losses]
        if is_one_of_several():
            gradients = sum_over_replicas(gradients)
        first, second = (tf.norm(tf.cast(gradient, tf.float32)) for gradient in gradients)
        return tf.minimum(first / (second + 1 / GREATEST), GREATEST)

    def _discriminator_step(self, real: tf.Tensor, made: tf.Tensor, is_begun: tf.Tensor) -> tf.Tensor:
        optimizer = self.discriminator_optimizer
        with tf.GradientTape() as tape:
            losses = HINGE.real(self._scores(real)), HINGE.generated(self._scores(made))
            loss = is_begun * mean_over_batch(sum(map(per_example, losses))) / 2
            scaled_loss = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled_loss, self.discriminator.trainable_variables)
        update_player(optimizer, self.discriminator, gradients)
        return loss

    def _scores(self, images: tf.Tensor) -> tf.Tensor:
        return tf.cast(self.discriminator({"images": images}, training=True)["scores"], tf.float32)
