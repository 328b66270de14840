"""Training: `keras_tfm.Model`, distribution strategies, learning-rate schedules, optimizers, callbacks,
checkpoints.
"""

from typing import TYPE_CHECKING

from keras_tfm import on_demand

if TYPE_CHECKING:
    from keras_tfm.training.adversarial import Adversarial
    from keras_tfm.training.adversarial_codec import AdversarialCodec
    from keras_tfm.training.callbacks import BestWeights, FiniteLoss, Progress
    from keras_tfm.training.checkpoint import Checkpoint
    from keras_tfm.training.depth import layer_rates
    from keras_tfm.training.freezing import freeze, trainable_kept
    from keras_tfm.training.gradients import input_jacobians, norms, products_to_end, state_jacobians
    from keras_tfm.training.logs import GradientNorm, MetricsFile, TensorBoard, Throughput
    from keras_tfm.training.low_rank import adapted
    from keras_tfm.training.model import Model
    from keras_tfm.training.moving_average import MovingAverage
    from keras_tfm.training.optimizers import SGD, Adam, AdamW
    from keras_tfm.training.safetensors import CheckpointError
    from keras_tfm.training.schedules import (
        TimedSchedule,
        WarmupConstantSchedule,
        WarmupCosineSchedule,
        WarmupLinearSchedule,
        WarmupSchedule,
    )
    from keras_tfm.training.strategy import strategy
    from keras_tfm.training.time_limit import TimeLimit
    from keras_tfm.training.weights import load_weights, save_weights
else:
    on_demand.begin(globals())
