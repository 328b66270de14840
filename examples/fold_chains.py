"""A small AlphaFold learns to fold chains whose turns are written in their letters.

    python examples/fold_chains.py

The chains are made by `data.worlds.chains`, with another seed for testing than for training. It
prints, for 200 chains that it has not seen, `fape`, the frame aligned error of the last layer (1 is 10
angstroms), and `contact_precision`: of the pairs that most probably touch, as many as there are, the part
that does.

November 2026, 3,000 steps, 371 s of one core's time of an AMD EPYC with AVX-512: `fape` from 0.749 to 0.234,
`contact_precision` from 0.306 to 0.973.
"""

import argparse
import pathlib
import time

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_tfm.data.worlds import LETTERS, chains, touching
from keras_tfm.heads import StructureHead, backbone_error, confidence_loss, distogram_loss
from keras_tfm.models import AlphaFold
from keras_tfm.training import AdamW

LENGTH, SEQUENCES, BATCH = 16, 4, 16
SIZES = {
    "target_features": LETTERS,
    "msa_features": LETTERS,
    "extra_msa_features": LETTERS,
    "num_layers": 4,
    "pair_dim": 32,
    "triangle_dim": 32,
    "msa_dropout": 0.0,
    "pair_dropout": 0.0,
    "structure_dropout": 0.0,
    "num_structure_layers": 4,
}


def inputs_of(made):
    """What the model takes for `made` chains, but for the last pass's: the extra sequences are the same."""
    letters = np.eye(LETTERS, dtype="float32")[made.alignment]  # (C, S, N, 20)
    count, sequences, length = made.alignment.shape
    return {
        "target": letters[:, 0],
        "numbers": np.zeros_like(made.numbers),  # letters are no amino acids here: all are alanine
        "residue_index": np.tile(np.arange(length, dtype="int32"), (count, 1)),
        "padding_mask": np.ones((count, length), "bool"),
        "msa": letters,
        "msa_mask": np.ones((count, sequences, length), "bool"),
        "extra_msa": letters,
        "extra_msa_mask": np.ones((count, sequences, length), "bool"),
    }


def losses(outputs, frames):
    """{name: (B,)} for the outputs of one pass and frames (B, N, 4, 4)."""
    places = frames[..., :3, 3]
    mask = ops.ones_like(places[..., 0])
    return {
        "fape": backbone_error(outputs["frames"], frames, mask),
        "last_fape": backbone_error(outputs["frames"][:, -1:], frames, mask),
        "distogram": distogram_loss(outputs["distogram_logits"], places, mask),
        "confidence": confidence_loss(
            outputs["confidence_logits"], outputs["frames"][:, -1, :, 4:], places, mask
        ),
    }


def new_step(model, optimizer):
    """A compiled step of training: the mean losses of a batch."""
    unused = ("structure/angles/", "error_head/", "msa_head/", "resolved_head/")  # chains have no side chains
    weights = [weight for weight in model.trainable_variables if not weight.path.startswith(unused)]

    @tf.function
    def step(inputs, frames):
        with tf.GradientTape() as tape:
            found = losses(model(inputs, training=True), frames)
            means = {name: ops.mean(loss) for name, loss in found.items()}
            total = means["fape"] + 0.3 * means["distogram"] + 0.01 * means["confidence"]
        gradients, _ = tf.clip_by_global_norm(tape.gradient(total, weights), 1.0)
        optimizer.apply(gradients, weights)
        return means

    return step


def contact_precision(outputs, frames):
    """Which part of the pairs with the highest probability of touching, as many as there are, touches."""
    probabilities = np.asarray(ops.softmax(outputs["distogram_logits"]))
    edges = np.linspace(2.3125, 21.6875, probabilities.shape[-1] - 1)
    near = probabilities[..., : int((edges < 8.0).sum())].sum(-1)
    right = total = 0
    index = np.arange(near.shape[-1])
    for score, truth in zip(near, touching(frames[..., :3, 3]), strict=True):
        candidates = index[:, None] - index >= 4
        count = int(truth[candidates].sum())
        best = np.argsort(-score[candidates], kind="stable")[:count]
        right, total = right + int(truth[candidates][best].sum()), total + count
    return right / total


def evaluate(model, made, batch_size=50):
    """{measure: its mean over `made` chains}."""
    inputs, rows = inputs_of(made), []
    start = {name: np.asarray(x) for name, x in model.backbone.start(made.numbers[:batch_size]).items()}
    for first in range(0, len(made.numbers), batch_size):
        part = slice(first, first + batch_size)
        outputs = model({name: x[part] for name, x in inputs.items()} | start)
        found = losses(outputs, made.frames[part])
        rows.append([float(ops.mean(found["last_fape"])), contact_precision(outputs, made.frames[part])])
    fape, precision = np.mean(rows, axis=0)
    return {"fape": round(float(fape), 3), "contact_precision": round(float(precision), 3)}


def main(steps=3000, count=20_000, tested=200, length=LENGTH):
    """Train, and print the measures before and after it."""
    keras.utils.set_random_seed(0)
    model = StructureHead(AlphaFold.from_size("tiny", **SIZES), confidence_dim=16)
    known, unseen = (chains(n, length, SEQUENCES, seed=seed) for n, seed in ((count, 1), (tested, 2)))
    print("before", evaluate(model, unseen), flush=True)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=2e-3, warmup_steps=steps // 20
    )
    step = new_step(model, AdamW(schedule))
    inputs, rng, began = inputs_of(known), np.random.default_rng(0), time.process_time()
    start = {name: np.asarray(x) for name, x in model.backbone.start(known.numbers[:BATCH]).items()}
    for number in range(steps):
        rows = rng.integers(0, count, BATCH)
        means = step({name: x[rows] for name, x in inputs.items()} | start, known.frames[rows])
        if number % max(1, steps // 10) == 0:
            print(number, {name: round(float(mean), 3) for name, mean in means.items()}, flush=True)
    print(f"after {time.process_time() - began:.0f} s of CPU time", evaluate(model, unseen))
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/fold_chains.keras"))
    arguments = parser.parse_args()
    folded = main(arguments.steps)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    folded.save(arguments.out)
