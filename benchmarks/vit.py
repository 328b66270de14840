"""ViT-S/16 and Swin-T at 224 x 224: this package, KerasHub, timm and transformers on torch.

    python -m benchmarks.vit                                all of it, for both models: 15 minutes on 2 cores
    python -m benchmarks.vit --models swin --parts inference
    python -m benchmarks.vit --models vit --parts input     the training step beside reading its images alone

1000 classes, 8 images a batch, no dropout, float32, every core. A training step is forward, backward and
AdamW (fused in torch). KerasHub runs with jit_compile on and off; its models have no classifier of this form:
a Dense layer stands on the class token or on the mean. "input" reads JPEG files of 500 x 375, whole, or
changed as `--augment light` and `strong` do. Needs the [parity] extra.
"""

import argparse
import os
import sys

import numpy as np

from benchmarks.rounds import (
    compare,
    import_torchvision,
    parse,
    prepare_keras,
    prepare_torch,
    serve,
)

BATCH, SIDE, CLASSES = 8, 224, 1000
MODULE = "benchmarks.vit"
PEERS = ("keras_tfm", "keras_hub jit", "keras_hub no jit", "timm", "transformers")
MODELS = ("vit", "swin")
PARTS = ("training", "inference", "input")
INPUTS = ("none", "light", "strong")  # how images are changed while they are read
NUM_FILES = 64
BATCHES_READ = 32  # at once: more than were read ahead, while another worker had its turn
# Multiplications and additions of one inference: twice the 4.6 and 4.5 billion of each that Liu et al.
# 2021, "Swin Transformer", table 1, give; a training step has three times as many.
FLOPS = {"vit": 9.2e9, "swin": 9.0e9}


def batch():
    rng = np.random.default_rng(0)
    return rng.normal(size=(BATCH, SIDE, SIDE, 3)).astype("float32"), rng.integers(0, CLASSES, BATCH)


def keras_step(model, optimizer, part, jit_compile):
    """A function that trains `model` on the batch, or asks it, and returns how many images there were."""
    import keras

    images, labels = batch()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=jit_compile)

    def step():
        if part == "training":
            model.train_on_batch(images, labels)
        else:
            model.predict_on_batch(images)
        return BATCH

    return step


def run_keras_tfm(name, part):
    import keras_tfm
    from keras_tfm.heads import Classifier
    from keras_tfm.models import Swin, ViT
    from keras_tfm.training import AdamW

    small = {"patch_size": 16, "dim": 384, "num_heads": 6, "intermediate_dim": 1536}
    backbone = ViT.from_size("B/16", **small) if name == "vit" else Swin.from_size("T", stochastic_depth=0.0)
    classifier = Classifier(backbone, CLASSES)
    model = keras_tfm.Model(classifier.input["images"], classifier.output)
    return keras_step(model, AdamW(1e-4, 0.05), part, jit_compile=True)


def run_keras_hub(name, part, jit_compile):
    import keras
    import keras_hub

    shape = (SIDE, SIDE, 3)
    if name == "vit":
        backbone = keras_hub.models.ViTBackbone(shape, (16, 16), 12, 6, 384, 1536)
        pooled = backbone.output[:, 0]
    else:
        backbone = keras_hub.models.SwinTransformerBackbone(
            shape, 96, (2, 2, 6, 2), (3, 6, 12, 24), 7, drop_path=0.0
        )
        axes = tuple(range(1, len(backbone.output.shape) - 1))
        pooled = keras.ops.mean(keras.layers.LayerNormalization()(backbone.output), axis=axes)
    model = keras.Model(backbone.input, keras.layers.Dense(CLASSES)(pooled))
    return keras_step(model, keras.optimizers.AdamW(1e-4, 0.05), part, jit_compile)


def run_torch(peer, name, part):
    import torch

    import_torchvision()
    device = prepare_torch()
    torch.manual_seed(0)
    model = (timm_model if peer == "timm" else transformers_model)(name).to(device)
    images, labels = (torch.from_numpy(x).to(device) for x in batch())
    images = images.permute(0, 3, 1, 2).contiguous()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.05, fused=True)

    def answer():
        output = model(images)
        return getattr(output, "logits", output)

    def train():
        torch.nn.functional.cross_entropy(answer(), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        return BATCH

    def infer():
        with torch.inference_mode():
            answer()
        return BATCH

    model.train(part == "training")
    return train if part == "training" else infer


def timm_model(name):
    import timm

    names = {"vit": "vit_small_patch16_224", "swin": "swin_tiny_patch4_window7_224"}
    return timm.create_model(names[name], drop_path_rate=0.0)


def transformers_model(name):
    import transformers

    if name == "vit":
        config = transformers.ViTConfig(
            hidden_size=384, num_attention_heads=6, intermediate_size=1536, num_labels=CLASSES
        )
        return transformers.ViTForImageClassification._from_config(config, attn_implementation="sdpa")
    config = transformers.SwinConfig(num_labels=CLASSES, drop_path_rate=0.0)
    return transformers.SwinForImageClassification._from_config(config)


def run_input(kind):
    """A function that reads files, changed as `kind` says, and returns how many images there were."""
    import tensorflow as tf

    from keras_tfm.data import Augmentation, ImageBatches, ImageFiles

    rng = np.random.default_rng(0)

    def file():
        """An image of smooth pixels, as photographs are: noise takes longer to decode."""
        pixels = tf.image.resize(rng.uniform(0, 255, (12, 16, 3)), (375, 500), "bicubic")
        return tf.io.encode_jpeg(tf.saturate_cast(pixels, tf.uint8)).numpy()

    files = ImageFiles([file() for _ in range(NUM_FILES)], (SIDE, SIDE, 3))
    augmentation = Augmentation(kind)
    labels = rng.integers(0, CLASSES, NUM_FILES)
    reading = ImageBatches(files, labels, lambda x: tf.cast(x, tf.float32) / 255, BATCH, 0, 0, augmentation)
    batches = iter(reading.epochs())

    def step():
        for _ in range(BATCHES_READ):
            next(batches)
        return BATCH * BATCHES_READ

    return step


def run_worker(peer, name, part):
    if not peer.startswith(("timm", "transformers")):
        prepare_keras()
    if peer in INPUTS:
        return serve(run_input(peer))
    if peer == "keras_tfm":
        return serve(run_keras_tfm(name, "training" if part == "input" else part))
    if peer.startswith("keras_hub"):
        return serve(run_keras_hub(name, part, peer.endswith(" jit") and not peer.endswith("no jit")))
    return serve(run_torch(peer, name, part))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2, help="of a worker's turn")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parse(parser)
    if options.worker:
        return run_worker(options.worker, *options.models, *options.parts)
    for name in options.models:
        for part in options.parts:
            flops = FLOPS[name] * (3 if part == "training" else 1)
            arguments = ["--models", name, "--parts", part]
            compare(
                f"{name}, {part}",
                MODULE,
                ("keras_tfm", *INPUTS) if part == "input" else options.peers,
                options.rounds,
                options.steps,
                warmup=2,
                arguments=arguments,
                flops_per_token=None if part == "input" else flops,
                unit="images",
            )


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
