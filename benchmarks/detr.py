"""DETR around a ResNet-50 at 256 x 256: a training step of this package and of transformers on torch.

    python -m benchmarks.detr

4 images of 5 boxes each, 91 classes, 100 queries, no dropout, float32, every core. A step is forward,
matching, the loss of all decoder blocks, backward, gradients clipped by their norm, and AdamW (fused in
torch). Frozen in both is batch normalisation alone. Needs the [parity] extra.
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

BATCH, SIDE, CLASSES, BOXES = 4, 256, 91, 5
PEERS = ("keras_tfm", "transformers")
LIMIT = 0.1  # of the gradients' norm: Carion et al. 2020


def batch():
    """Images (B, H, W, 3), the classes (B, M) and the boxes (B, M, 4) of their objects."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(BATCH, SIDE, SIDE, 3)).astype("float32")
    sides = rng.uniform(0.1, 0.4, (BATCH, BOXES, 2))
    centres = rng.uniform(0.2, 0.8, (BATCH, BOXES, 2))
    boxes = np.concatenate([centres, sides], axis=-1).astype("float32")
    return images, rng.integers(0, CLASSES, (BATCH, BOXES)), boxes


def run_keras_tfm():
    prepare_keras()
    from keras_tfm.heads import ObjectDetector
    from keras_tfm.jit import jit_compile
    from keras_tfm.models import DETR
    from keras_tfm.training import AdamW

    images, classes, boxes = batch()
    detector = ObjectDetector(DETR.from_size("50", image_size=SIDE, dropout=0.0), CLASSES)
    model = detector.learner()
    optimizer = AdamW(1e-4, 1e-4, global_clipnorm=LIMIT)
    model.compile(optimizer, detector.loss_of_training(), jit_compile=jit_compile(model))
    inputs = {"images": images, "pixel_mask": np.ones(images.shape[:3], bool)}
    targets = np.concatenate([classes[..., None], boxes], axis=-1).astype("float32")

    def step():
        model.train_on_batch(inputs, targets)
        return BATCH

    return step


def run_transformers():
    import torch

    import_torchvision()
    import transformers

    device = prepare_torch()
    torch.manual_seed(0)
    images, classes, boxes = batch()
    network = transformers.ResNetConfig(out_features=["stage4"])
    config = transformers.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=network,
        num_labels=CLASSES,
        dropout=0.0,
        auxiliary_loss=True,
    )
    model = transformers.DetrForObjectDetection(config).train().to(device)
    for weight in model.parameters():
        weight.requires_grad_()  # the backbone's first stages too
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=1e-4, fused=True)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous().to(device)
    labels = [
        {"class_labels": torch.from_numpy(kinds).to(device), "boxes": torch.from_numpy(places).to(device)}
        for kinds, places in zip(classes, boxes, strict=True)
    ]

    def step():
        model(pixel_values=pixels, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
        optimizer.step()
        optimizer.zero_grad()
        return BATCH

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2, help="of a worker's turn")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parse(parser)
    if options.worker:
        return serve({"keras_tfm": run_keras_tfm, "transformers": run_transformers}[options.worker]())
    title = "DETR-ResNet50, training"
    compare(title, "benchmarks.detr", options.peers, options.rounds, options.steps, warmup=2, unit="images")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
