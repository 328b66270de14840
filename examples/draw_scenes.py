"""Draw what a sentence says, two coloured shapes, in two ways that learn from a made world.

    python examples/draw_scenes.py              # as DALL-E does: codes of pictures, then a decoder of codes
    python examples/draw_scenes.py imagen       # as Imagen does: diffusion, with a text encoder taught before

As DALL-E does: of 200 pictures of unseen sentences, drawn by the SavedModel,

                                     right   two things   the colours   the shapes
    any picture of the training set    0 %        100 %         5.5 %         13 %
    the nearest sentence's picture     0 %        100 %          50 %         70 %
    temperature 0.7, guidance 2     86.5 %       92.5 %          92 %       86.5 %
    temperature 0.3, guidance 1.5   97.5 %         99 %          99 %       97.5 %

Temperature and guidance were chosen on sentences of the training set, where all of 100 pictures are right.
These were 936 seconds of processor time in 36 minutes on a core shared with other work, `--minutes 36`: 3,015
steps of the codes, after which all of 300 unseen scenes show their sentence, at 40.8 dB, and 5,897 of the
decoder, which then needs 0.28 bits for a code, where the codes' frequencies alone need 3.58.

As Imagen does, with guidance 2:

                                     right   two things   the colours   the shapes
    8, 16 pixels, then enlarged     93.5 %       97.5 %        97.5 %       93.5 %
    8, 16, 32 pixels, one model     74.5 %       95.5 %        95.5 %       74.5 %
    8, 32 pixels                    32.5 %       94.5 %        94.5 %       34.5 %
    32 pixels alone                 15.5 %       96.5 %        81.5 %       62.5 %

Which words a sentence has is learnt long before their order: of 69 pictures of the last row with the right
things only 31 had them in the right places. So the text encoder is taught how small pictures of a sentence
look, and all learn from pictures of 8 x 8 pixels, which gives the order, then of 16 x 16, which show shapes
at half the price. To enlarge them is soon learnt: after 3,027 steps 99 % of true small pictures became right
ones. The first row is 50 minutes of one core of an EPYC with AVX-512 for small pictures, 1,511 and 9,369
steps, and 18 minutes of another for those, both at once and beside other work; the others are 64 minutes of
one core of a Xeon with AVX-512, 4,146, 6,371 and 4,986 steps of half as many pictures, 30 of two cores of an
EPYC, and 60 of one core of a Xeon with AMX. Steps count: 1,006, 4,001 and 1,562, in 20 minutes of two cores
of the first EPYC with a third less time for 8 x 8 pixels, gave 53 %; 59 % as the first row enlarges them. So
an hour is the default here: on two cores of an EPYC with AVX2, with light work beside, the second command
gave 93.0 % (96.5, 96.5, 93.0) in 64 minutes, after 3,054, 6,718 and 2,453 steps. There a step of 32 x 32
pixels took 439 ms, 398 with TF_ENABLE_ONEDNN_OPTS=1, and 325 with TF_NUM_INTRAOP_THREADS=1 too, which has
the two gradients of a convolution computed side by side; the command ran with both.

Sentences are like "a red disc above a blue square". A tenth of the scenes is kept for testing; what a picture
shows is read from its pixels by `data.worlds.shows`, without a model. The folder has the RUNs, a
SavedModel that answers sentences with PNG files, which draws what is measured, and drawings, as scenes.png.
"""

import argparse
import pathlib
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

import keras_tfm
from keras_tfm import data, serving, tasks
from keras_tfm.data.worlds import parsed, scene_pictures, scene_sentences, shows, things_in
from keras_tfm.data.worlds.scenes import SIDE

TEXTS = {"vocabulary_size": 400, "max_length": 12}  # sentences have at most 12 tokens
LEARNING = {"warmup_steps": 100, "epoch_batches": 500, "epochs": 1_000, "overwrite": True}
# A code is made of 4 x 4 pixels and of no others: the background has one code, whatever stands beside it.
CODES = tasks.ImageCoder.model_options(num_codes=1024, local_codes=True)
CODEC = {"code_dim": 32, "attends": [False, False, False]}
# All codes see all others: rows and columns save nothing on a grid of 8 x 8.
WRITER = {"kinds": ["full"], "last_kind": None, "dropout": 0.0, "attention_dropout": 0.0}
# The cells of three maps are patches of 2, 4 and 8 pixels; those of the first neither attend nor read.
UNET = {
    "dims": [24, 64, 128],
    "num_layers": [1, 1, 1],
    "attends": [False, True, True],
    "attends_to_context": [False, True, True],
    "num_heads": 4,
    "key_dim": 32,
    "condition_dim": 64,
    "num_latents": 0,
    "kernels": [3],
    "patch_size": 2,
}
# Whoever sees the small picture needs little more than its neighbourhood, and the sentence.
ENLARGING = {
    **UNET,
    "dims": [32, 64],
    "num_layers": [1, 1],
    "attends": [False, False],
    "attends_to_context": [False, True],
}
# What a picture shows is decided while nearly all is noise, at few steps of the schedule without the factor.
# Without the weight discs and squares become alike: little of the loss is in what little noise leaves.
DIFFUSION = {"prediction": "clean", "max_weight": 4.0, "steps": 25}
CODEC_SHARE = 0.22  # of the minutes


class Stage(NamedTuple):
    """A part of a training, by pictures of `side` pixels: its share of the minutes, and its fields."""

    side: int
    share: float
    batch_size: int
    learning_rate: float
    noise_factor: float


# The same weights read pictures of any size: of 8 x 8 pixels, which give the order of the words, and then of
# 16 x 16, which show the shapes. Steps of such pictures are cheap, the more so by the picture in large
# batches. The rest of the minutes is for teaching, which is not cut.
STAGES = (Stage(8, 0.15, 64, 3e-3, 5.0), Stage(16, 0.55, 64, 2.5e-3, 3.0))
LAST = Stage(SIDE, 0.25, 32, 2e-3, 1.5)  # of the model that enlarges them


def writer(folder, examples, validation, minutes, **options):
    """A decoder of codes that has learnt from pictures and sentences, after the autoencoder of the codes."""
    learning = LEARNING | {"batch_size": 16, "learning_rate": 4e-3} | options
    coder = tasks.ImageCoder.make(examples.images, CODES, CODEC)
    part = CODEC_SHARE * minutes
    coder.fit(examples.images, validation.images, run=folder / "codes", minutes=part, **learning)
    again = coder.pictures_of(coder.codes_of(validation.images))
    right = np.mean([shows(*pair) for pair in zip(again, validation.texts, strict=True)])
    print(f"{100 * right:.1f} % of {len(again)} pictures that are made of their codes are right")
    learning = LEARNING | {"batch_size": 32, "learning_rate": 2e-3} | options
    kind = tasks.ImageGenerator.model_options("dall-e", codes=str(folder / "codes"), **TEXTS)
    task = tasks.ImageGenerator.make(examples, kind, WRITER, guidance=1.5, temperature=0.3)
    task.fit(examples, validation, run=folder / "run", minutes=minutes - part, **learning)
    return task


def denoiser(folder, examples, validation, minutes, **options):
    """A diffusion model of small pictures and sentences, taught stage by stage, in one that enlarges them."""

    def learn(task, stage):
        parts = [shrink(x, stage.side) for x in (examples, validation)]
        of_stage = {"batch_size": stage.batch_size, "learning_rate": stage.learning_rate}
        # One step of large gradients makes it forget the sentences, and there is no time to learn them again.
        learning = LEARNING | of_stage | {"clip_norm": 0.5} | options
        run = folder / f"run_{stage.side}"
        task.fit(*parts, run=run, minutes=stage.share * minutes, **learning)
        return run

    first = shrink(examples, STAGES[0].side)
    task = tasks.ImageGenerator.make(
        first, tasks.ImageGenerator.model_options("imagen", **TEXTS), {"unet_config": UNET}
    )
    teach(task, first, epochs=min(5, options.get("epochs", 5)))
    for stage in STAGES:
        fields = {"image_size": stage.side, "noise_factor": stage.noise_factor, **DIFFUSION}
        task = tasks.ImageGenerator.adopt(task, examples, **fields)
        small = learn(task, stage)
    kind = tasks.ImageGenerator.model_options("imagen", small=str(small))
    fields = {"noise_factor": LAST.noise_factor, **DIFFUSION}
    task = tasks.ImageGenerator.make(examples, kind, {"unet_config": ENLARGING}, **fields)
    learn(task, LAST)
    return task


def teach(task, examples, epochs):
    """Let the text encoder learn how small pictures of a sentence look on average, by layers on its mean."""
    encoder = task.model.backbone.encoder
    texts, mask = encoder.output["sequence_output"], encoder.input["padding_mask"]
    mean = keras.layers.GlobalAveragePooling1D()(texts, mask=mask)
    hidden = keras.layers.Dense(256, "gelu")(mean)
    pictures = examples.images.reshape(len(examples.images), -1) / 127.5 - 1
    look = keras.layers.Dense(pictures.shape[1])(hidden)
    model = keras_tfm.Model(encoder.input, look)
    model.compile(keras.optimizers.Adam(2e-3, clipnorm=0.5), "mse")
    model.fit(task.condition.inputs(np.array(examples.texts)), pictures, epochs=epochs, verbose=2)


def shrink(examples, side):
    """Examples whose pictures have `side` pixels a side: each the mean of a patch."""
    means = tf.image.resize(examples.images, (side, side), "area")
    return data.ImageTexts(np.round(means).astype("uint8"), examples.texts)


WAYS = {"dall-e": writer, "imagen": denoiser}
MINUTES = {"dall-e": 30.0, "imagen": 60.0}  # of two cores


def shares(pictures, sentences):
    """Percentages of the pictures: right, with two things, in the right colours, of the right shapes."""
    counts = np.zeros(4)
    for picture, sentence in zip(pictures, sentences, strict=True):
        asked = [name.split() for name in parsed(sentence)[::2]]
        shown = [thing.name.split() for thing in things_in(picture)]
        agree = [sorted(x[i] for x in asked) == sorted(x[i] for x in shown) for i in (0, 1)]
        counts += shows(picture, sentence), len(shown) == 2, *agree
    return 100 * counts / len(sentences)


def report(name, pictures, sentences):
    """Print what pictures show of what they should."""
    right, two, colours, shapes = shares(pictures, sentences)
    print(f"{name}: {right:.1f} % of {len(sentences)} pictures are right;", end=" ")
    print(f"{two:.1f} % show two things, {colours:.1f} % the colours, {shapes:.1f} % the shapes")


def words_of(sentences):
    """The colours and shapes of both things, and the relation between: (N, 5)."""
    return np.array([[*a.split(), relation, *b.split()] for a, relation, b in map(parsed, sentences)])


def grid_of(pictures, columns=6, scale=2):
    """One picture of many, with a line between."""
    pictures = np.pad(pictures, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=90)
    count, side, _, channels = pictures.shape
    rows = pictures.reshape(count // columns, columns, side, side, channels).transpose(0, 2, 1, 3, 4)
    return rows.reshape(-1, columns * side, channels).repeat(scale, 0).repeat(scale, 1)


def drawn(folder, sentences):
    """The pictures that a SavedModel draws of sentences."""
    answer = serving.load(folder)([{"texts": text, "seed": i} for i, text in enumerate(sentences)])
    return np.stack([tf.io.decode_png(png).numpy() for png in answer["png"]])


def main(way="dall-e", out=pathlib.Path("runs/scenes"), minutes=None, count=40_000, asked=200, **options):
    """Train, for `MINUTES` unless told otherwise, print what the pictures of unseen sentences show, and write
    some of them.
    """
    examples = data.ImageTexts(*scene_pictures(count, seed=1))
    validation = data.ImageTexts(*scene_pictures(256, seed=2))
    sentences = scene_sentences(unseen=True)
    sentences = [sentences[i] for i in np.random.default_rng(0).permutation(len(sentences))[:asked]]
    report("any picture", examples.images[:asked], sentences)
    common = (words_of(sentences)[:, None] == words_of(examples.texts)).sum(-1)
    report("of the nearest sentence", examples.images[common.argmax(1)], sentences)
    keras.utils.set_random_seed(0)
    minutes = MINUTES[way] if minutes is None else minutes
    task = WAYS[way](out / way, examples, validation, minutes, **options)
    task.export(out / way / "served", overwrite=True)
    pictures = drawn(out / way / "served", sentences)
    report(way, pictures, sentences)
    tf.io.write_file(str(out / way / "scenes.png"), tf.io.encode_png(grid_of(pictures[:36])))
    print("\n".join(sentences[:36]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("way", nargs="?", choices=WAYS, default="dall-e")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/scenes"))
    parser.add_argument("--minutes", type=float, help="of training; by default 30, or 60 as Imagen does")
    main(**vars(parser.parse_args()))
