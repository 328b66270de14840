"""Draw what a sentence says: two coloured shapes, by a small Imagen that learns from a made world.

    python examples/draw_scenes.py

Takes 25 minutes. On a core shared with other work these were 480 seconds of processor time, 1,800 steps; of
200 pictures of unseen sentences, drawn with a guidance of 2,

    4.5 % were right; 88 % showed two things, 62 % the colours, 14 % the shapes.

That is a beginning, not a result: the validation loss was still falling. Colours and the axis of the relation
are learnt first; which thing stands first was still guessed, and shapes were often between two kinds.

Sentences are like "a red disc above a blue square". A tenth of the scenes is kept for testing; what a picture
shows is read from its pixels by `keras_tfm.data.sources.scenes`, without a model. The folder has the RUN and,
as scenes.png, drawings of the sentences that are printed.
"""

import argparse
import pathlib

import keras
import numpy as np
import tensorflow as tf

from keras_tfm import data, tasks
from keras_tfm.data.sources.scenes import parsed, scene_pictures, scene_sentences, shows, things_in
from keras_tfm.tasks.images.generator_options import GeneratorOptions

OPTIONS = {
    "batch_size": 64,
    "learning_rate": 2e-3,
    "warmup_steps": 100,
    "epoch_batches": 200,
    "epochs": 1_000,
}


def trained(folder, count, **options):
    """A generator that has learnt from made pictures."""
    pictures, sentences = scene_pictures(count, seed=1)
    examples = data.ImageTexts(pictures, sentences)
    validation = data.ImageTexts(*scene_pictures(128, seed=2))
    keras.utils.set_random_seed(0)
    kind = GeneratorOptions("imagen", vocabulary_size=400, max_length=16)  # sentences have 9 or 10
    task = tasks.ImageGenerator.make(examples, kind, {}, prediction="clean")
    task.fit(examples, validation, run=folder, overwrite=True, **OPTIONS | options)
    return task


def shares(pictures, sentences):
    """Percentages of the pictures: right, with two things, in the right colours, of the right shapes."""
    counts = np.zeros(4)
    for picture, sentence in zip(pictures, sentences, strict=True):
        asked = [name.split() for name in parsed(sentence)[::2]]
        shown = [thing.name.split() for thing in things_in(picture)]
        agree = [sorted(x[i] for x in asked) == sorted(x[i] for x in shown) for i in (0, 1)]
        counts += shows(picture, sentence), len(shown) == 2, *agree
    return 100 * counts / len(sentences)


def grid_of(pictures, columns=6, scale=2):
    """One picture of many, with a line between."""
    pictures = np.pad(pictures, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=90)
    count, side, _, channels = pictures.shape
    rows = pictures.reshape(count // columns, columns, side, side, channels).transpose(0, 2, 1, 3, 4)
    return rows.reshape(-1, columns * side, channels).repeat(scale, 0).repeat(scale, 1)


def main(out=pathlib.Path("runs/scenes"), minutes=25.0, count=20_000, asked=200, steps=25, **options):
    """Train, print what the pictures of unseen sentences show, and write some of them."""
    task = trained(out / "run", count, minutes=minutes, **options)
    sentences = scene_sentences(unseen=True)
    sentences = [sentences[i] for i in np.random.default_rng(0).permutation(len(sentences))[:asked]]
    for guidance in (1.0, 2.0, 4.0):
        pictures = task.generate(sentences, seed=1, steps=steps, guidance=guidance, batch_size=50)
        right, two, colours, shapes = shares(pictures, sentences)
        print(f"guidance {guidance}: {right:.1f} % of {len(sentences)} pictures are right;", end=" ")
        print(f"{two:.1f} % show two things, {colours:.1f} % the colours, {shapes:.1f} % the shapes")
    tf.io.write_file(str(out / "scenes.png"), tf.io.encode_png(grid_of(pictures[:36])))
    print("\n".join(sentences[:36]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/scenes"))
    parser.add_argument("--minutes", type=float, default=25)
    main(**vars(parser.parse_args()))
