"""Pre-training a small VideoMAE: this package, and transformers on torch.

    python -m benchmarks.video          a minute on 2 cores

A batch is 4 videos of 16 frames of 64 x 64 pixels, in tubelets of 2 x 8 x 8, of which nine tenths are hidden;
the encoder has 4 blocks of 192 features, the decoder 4 of 96. A step makes the mask and the targets, then
forward, backward and AdamW (fused in torch), in float32 on every core. Needs the [parity] extra.
"""

import argparse
import os
import sys

import numpy as np

from benchmarks.rounds import compare, import_torchvision, parse, prepare_keras, prepare_torch, serve

BATCH, FRAMES, SIDE, PATCH, LENGTH = 4, 16, 64, 8, 2
PLACES, HIDDEN = (SIDE // PATCH) ** 2, 0.9
MODULE = "benchmarks.video"
PEERS = ("keras_tfm", "transformers")


def batch():
    return np.random.default_rng(0).normal(size=(BATCH, FRAMES, SIDE, SIDE, 3)).astype("float32")


def run_keras_tfm():
    """A function that trains on the batch and returns how many videos there were."""
    import tensorflow as tf

    from keras_tfm.heads import MaskedVideoAutoencoder, patch_loss
    from keras_tfm.models import VideoMAE
    from keras_tfm.training import AdamW

    sizes = {"num_layers": 4, "dim": 192, "num_heads": 3, "intermediate_dim": 768}
    backbone = VideoMAE.from_size(
        "B/16", num_frames=FRAMES, image_size=SIDE, patch_size=PATCH, pooling="first", **sizes
    )
    model = MaskedVideoAutoencoder(backbone, HIDDEN, 4, dim=96, num_heads=3, intermediate_dim=384)
    model.compile(AdamW(1e-4, 0.05), patch_loss(), jit_compile=True)
    videos, examples = tf.constant(batch()), tf.function(model.examples, jit_compile=True)

    def step():
        model.train_on_batch(*examples(videos))
        return BATCH

    return step


def run_transformers():
    """A function that trains on the batch and returns how many videos there were."""
    import torch

    import_torchvision()
    device = prepare_torch()
    import transformers

    torch.manual_seed(0)
    config = transformers.VideoMAEConfig(
        image_size=SIDE,
        patch_size=PATCH,
        num_frames=FRAMES,
        tubelet_size=LENGTH,
        hidden_size=192,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=768,
        use_mean_pooling=False,
        decoder_hidden_size=96,
        decoder_num_hidden_layers=4,
        decoder_num_attention_heads=3,
        decoder_intermediate_size=384,
    )
    model = transformers.VideoMAEForPreTraining._from_config(config, attn_implementation="sdpa")
    model = model.to(device).train()
    pixels = torch.from_numpy(batch()).permute(0, 1, 4, 2, 3).contiguous().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.05, fused=True)

    def step():
        ranks = torch.rand(BATCH, PLACES).argsort(1).argsort(1)
        hidden = (ranks >= PLACES - int(HIDDEN * PLACES)).repeat(1, FRAMES // LENGTH).to(device)
        model(pixel_values=pixels, bool_masked_pos=hidden).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return BATCH

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=5, help="of a worker's turn")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parse(parser)
    if options.worker == "transformers":
        return serve(run_transformers())
    if options.worker:
        prepare_keras()
        return serve(run_keras_tfm())
    title = "videomae, a training step"
    compare(title, MODULE, PEERS, options.rounds, options.steps, warmup=3, unit="videos")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
