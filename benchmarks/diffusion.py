"""A training step and DDIM of the U-Net of DDPM: this package, and diffusers on torch.

    python -m benchmarks.diffusion                     both, 3 minutes on 2 cores
    python -m benchmarks.diffusion --parts sampling

Images are 32 x 32 in colour, 16 a batch; the U-Net has levels of 64 and 128 features with two residual blocks
each, and attention at the second one: 4.0 million weights. A training step draws noise and times, then goes
forward, backward and through AdamW (fused in torch). Sampling is 50 steps of DDIM, from noise to images. All
is in float32 on every core. Needs the [parity] extra and `pip install diffusers`.
"""

import argparse
import os
import sys

import numpy as np

from benchmarks.rounds import compare, import_torchvision, parse, prepare_keras, prepare_torch, serve

BATCH, SIDE, STEPS = 16, 32, 50
DIMS, LAYERS, GROUPS = (64, 128), 2, 32
MODULE = "benchmarks.diffusion"
PEERS = ("keras_tfm", "diffusers")
PARTS = ("training", "sampling")


def batch():
    return np.random.default_rng(0).uniform(-1, 1, (BATCH, SIDE, SIDE, 3)).astype("float32")


def run_keras_tfm(part):
    """A function that trains on the batch or draws one, and returns how many images there were."""
    import tensorflow as tf

    from keras_tfm.generation import DDIM, generate_images
    from keras_tfm.heads import Denoiser
    from keras_tfm.models import DiffusionUNet
    from keras_tfm.training import AdamW

    sizes = {"image_size": SIDE, "dims": DIMS, "num_layers": LAYERS, "num_groups": GROUPS}
    unet = DiffusionUNet.from_size("tiny", attends=(False, True), **sizes)
    denoiser = Denoiser(unet, "linear", prediction="noise")
    denoiser.compile(AdamW(1e-4, 0.01), "mse")
    images = {"images": tf.constant(batch())}

    @tf.function(autograph=False)
    def draw():
        return generate_images(denoiser, BATCH, num_steps=STEPS, sampler=DDIM())

    def step():
        if part == "training":
            denoiser.train_on_batch(images)
        else:
            draw().numpy()
        return BATCH

    return step


def run_diffusers(part):
    """A function that trains on the batch or draws one, and returns how many images there were."""
    import torch

    import_torchvision()
    device = prepare_torch()
    from diffusers import DDIMScheduler, UNet2DModel

    torch.manual_seed(0)
    unet = UNet2DModel(
        SIDE,
        block_out_channels=DIMS,
        layers_per_block=LAYERS,
        norm_num_groups=GROUPS,
        attention_head_dim=None,  # one head
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ).to(device)
    schedule = DDIMScheduler(1000, beta_schedule="linear")
    schedule.set_timesteps(STEPS)
    images = torch.from_numpy(batch()).permute(0, 3, 1, 2).contiguous().to(device)
    optimizer = torch.optim.AdamW(unet.parameters(), 1e-4, weight_decay=0.01, fused=True)

    def train():
        noise = torch.randn_like(images)
        times = torch.randint(0, 1000, (BATCH,), device=device)
        answer = unet(schedule.add_noise(images, noise, times), times).sample
        torch.nn.functional.mse_loss(answer, noise).backward()
        optimizer.step()
        optimizer.zero_grad()
        return BATCH

    def draw():
        with torch.inference_mode():
            x = torch.randn_like(images)
            for time in schedule.timesteps:
                x = schedule.step(unet(x, time).sample, time, x).prev_sample
        return BATCH

    unet.train(part == "training")
    return train if part == "training" else draw


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="of training in a worker's turn")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parse(parser)
    if options.worker:
        if options.worker == "diffusers":
            return serve(run_diffusers(*options.parts))
        prepare_keras()
        return serve(run_keras_tfm(*options.parts))
    for part in options.parts:
        title, steps = f"U-Net of DDPM, {part}", options.steps if part == "training" else 1
        arguments = ["--parts", part]
        compare(title, MODULE, PEERS, options.rounds, steps, 1, arguments=arguments, unit="images")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
