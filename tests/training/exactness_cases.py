"""Ways to train that must give the same numbers in every layout."""

import dataclasses
from collections.abc import Callable

from tests.training.exactness_models import (
    T,
    V,
    adding_loss,
    batch_normalized,
    blocks,
    classifier,
    clip,
    convolutional,
    deformable_detr,
    detr,
    drawn,
    first_label,
    masks,
    objects,
    of_sets,
    own_train_step,
    paired,
    pixels,
    quantized,
    segmenter,
    subclassed,
    tagger,
    tracks,
    translation,
    transtrack,
    two_headed,
)

BOUNDS = {"float32": 1e-6, "mixed_bfloat16": 5e-2, "mixed_float16": 1e-2}


def loss_of(name, **options):
    """What makes the loss of that name, of this package, with these options."""

    def make():
        from keras_tfm import heads

        return getattr(heads, name)(**options)

    return make


def sgd(**options):
    import keras

    return keras.optimizers.SGD(0.1, **options)


def adam(**options):
    import keras

    return keras.optimizers.AdamW(0.01, **options)


def by_path(**options):
    from keras_tfm.training import AdamW

    return AdamW(0.01, 0.1, rates={"embedding/embeddings": 0.25, "hidden/kernel": 0.5}, **options)


def scaled(optimizer):
    import keras

    return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1024.0)


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to train; the data is batched by `batch_size`, `weighted` adds weights to each token.

    Without a `loss` it is the labels' cross-entropy. `targets` makes what the loss takes of the token ids and
    the labels.
    """

    model: Callable = tagger
    optimizer: Callable = sgd
    batch_size: int = 8
    weighted: bool = False
    reduction: str = "sum_over_batch_size"
    compile: dict = dataclasses.field(default_factory=dict)
    fit: dict = dataclasses.field(default_factory=dict)
    policy: str = "float32"
    loss: Callable | None = None
    targets: Callable = lambda ids, labels: labels


CASES = {
    "sgd": Case(),
    "adam": Case(optimizer=adam),
    "weight decay": Case(optimizer=lambda: adam(weight_decay=0.1)),
    "average of weights": Case(optimizer=lambda: sgd(use_ema=True, ema_momentum=0.9)),
    "momentum": Case(optimizer=lambda: sgd(momentum=0.9)),
    "sum": Case(reduction="sum", optimizer=lambda: sgd(clipnorm=0.1)),
    "sample weights": Case(weighted=True),
    "mean by sample weights": Case(weighted=True, reduction="mean_with_sample_weight"),
    "keras mask": Case(lambda: tagger(mask_zero=True)),
    "keras mask and weights": Case(
        lambda: tagger(mask_zero=True), weighted=True, reduction="mean_with_sample_weight"
    ),
    "partial last batch": Case(batch_size=12),
    "indivisible batch": Case(batch_size=13, weighted=True),
    "last batch of one": Case(batch_size=13, weighted=True, reduction="mean_with_sample_weight"),
    "clip by global norm": Case(optimizer=lambda: sgd(global_clipnorm=0.1)),
    "clip by norm": Case(optimizer=lambda: sgd(clipnorm=0.05)),
    "accumulation": Case(optimizer=lambda: adam(gradient_accumulation_steps=2)),
    "accumulation and average": Case(
        optimizer=lambda: sgd(gradient_accumulation_steps=3, use_ema=True, global_clipnorm=0.1)
    ),
    "steps per execution": Case(batch_size=12, compile={"steps_per_execution": 3}),
    "jit": Case(weighted=True, compile={"jit_compile": True}),
    "rematerialized": Case(blocks),
    "rematerialized, jit": Case(blocks, compile={"jit_compile": True}),
    "experts, rematerialized, jit": Case(
        lambda: blocks(num_experts=3), batch_size=13, compile={"jit_compile": True}
    ),
    "quantized, jit": Case(quantized, batch_size=13, compile={"jit_compile": True}),
    "drawn, jit": Case(drawn, batch_size=13, compile={"jit_compile": True}),
    "regularizer": Case(lambda: tagger(kernel_regularizer="l2")),
    "add_loss": Case(adding_loss, batch_size=13),
    "two outputs": Case(two_headed, batch_size=13, compile={"loss_weights": {"tokens": 1.0, "size": 0.3}}),
    "set of objects": Case(
        lambda: of_sets(2, 4, 7), batch_size=13, loss=loss_of("SetPredictionLoss"), targets=objects
    ),
    "convolutions": Case(convolutional, lambda: sgd(global_clipnorm=0.1), batch_size=13),
    "batch normalisation, jit": Case(
        batch_normalized, lambda: sgd(global_clipnorm=0.1), batch_size=13, compile={"jit_compile": True}
    ),
    "set of objects, varifocal": Case(
        lambda: of_sets(2, 4, 7), batch_size=13, loss=loss_of("VarifocalSetPredictionLoss"), targets=objects
    ),
    "set of objects, denoising": Case(  # two blocks of five, and two groups in the second block
        lambda: of_sets(2 * 5 + 2 * 2 * T, 7), batch_size=13,
        loss=loss_of("DenoisingSetPredictionLoss", num_blocks=2, num_queries=5), targets=objects
    ),
    "DETR": Case(
        detr, lambda: sgd(global_clipnorm=0.1), 13, loss=loss_of("SetPredictionLoss"), targets=objects
    ),
    "Deformable DETR": Case(
        deformable_detr, lambda: sgd(global_clipnorm=0.1), 13,
        loss=loss_of("FocalSetPredictionLoss", proposes=True), targets=objects
    ),
    "TransTrack": Case(
        transtrack, lambda: sgd(global_clipnorm=0.1), 13, loss=loss_of("TrackLoss"), targets=tracks
    ),
    "segmentation": Case(
        segmenter, batch_size=13, loss=loss_of("SegmentationLoss"), targets=pixels
    ),
    "set of masks": Case(
        lambda: of_sets(2, 4, 9), batch_size=13, loss=loss_of("MaskSetLoss", grid=(2, 3)), targets=masks
    ),
    "set of masks and boxes": Case(
        lambda: of_sets(4, 20), batch_size=13,
        loss=loss_of("PanopticSetLoss", grid=(2, 3), num_classes=2), targets=masks
    ),
    "subclassed": Case(subclassed, batch_size=12),
    "own train_step": Case(own_train_step),
    "class weights": Case(
        classifier, targets=first_label, fit={"class_weight": {i: 1.0 + i / V for i in range(V)}}
    ),
    "translation": Case(translation, weighted=True, batch_size=13, reduction="mean_with_sample_weight"),
    "bfloat16": Case(policy="mixed_bfloat16", batch_size=13),
    "float16, scaled loss": Case(optimizer=lambda: scaled(sgd()), policy="mixed_float16", weighted=True),
    "rates by path": Case(optimizer=lambda: by_path(global_clipnorm=0.1), batch_size=13),
    "rates, accumulation": Case(optimizer=lambda: by_path(gradient_accumulation_steps=2, clipnorm=0.1)),
    "rates, scaled loss": Case(optimizer=lambda: scaled(by_path(use_ema=True)), weighted=True),
    "softmax contrast": Case(
        paired, batch_size=13, loss=loss_of("SoftmaxContrast"), targets=first_label
    ),
    "sigmoid contrast": Case(
        lambda: paired(logit_bias=-1.0), batch_size=12, loss=loss_of("SigmoidContrast"),
        targets=first_label, compile={"jit_compile": True},
    ),
    "hard triplets": Case(
        lambda: of_sets(3, 2 + 5), batch_size=13, loss=loss_of("ReidentificationLoss", num_classes=2),
        targets=lambda ids, labels: labels[:, 0] % 2
    ),
    "CLIP": Case(
        clip, lambda: sgd(global_clipnorm=0.1), 13, loss=loss_of("SoftmaxContrast"), targets=first_label
    ),
    "rates, jit": Case(optimizer=by_path, batch_size=12, compile={"jit_compile": True}),
}  # fmt: skip
# What each of these ends with depends on another part of training.
QUICK = (
    "mean by sample weights",
    "softmax contrast",
    "convolutions",
    "batch normalisation, jit",
    "quantized, jit",
    "drawn, jit",
)
QUICK_OF_PROCESSES = ("mean by sample weights", "convolutions")
# Not as on one device: each replica drops other values. Both of them drop the same.
DRAWING = {
    "dropout in blocks": Case(lambda: blocks(0.3, rematerialize=False)),
    "dropout in rematerialized blocks": Case(lambda: blocks(0.3)),
}
