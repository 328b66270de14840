"""Enlarge pictures four times with the textures of another picture, by a small TTSR.

    python examples/copy_textures.py

The pictures are patchworks of squares, `data.worlds.patchworks`; the reference of each has the
same squares in another order. In the small picture it cannot be seen what a square is like, only which it is.
PSNR in decibels and SSIM of 16 pictures of other squares, after four minutes of one core of an AMD EPYC that
others used as well (285 steps; 274 s of CPU time with all compiling, November 2026):

    with its own reference        18.0  0.776
    with the next one's           13.7  0.327
    bicubic enlargement           14.0  0.317

The folder `textures` has the RUN, the enlarged pictures, and what they were made of.
"""

import argparse
import pathlib
import time

import keras
import numpy as np
import PIL.Image

from keras_tfm import tasks
from keras_tfm.data.worlds import patchworks


def main(minutes=4.0, folder="textures", size="small", squares=4, count=256, **options):
    """Train, print what is measured, and write the RUN and pictures to the folder."""
    keras.utils.set_random_seed(0)
    task = tasks.ImageRestorer.make(None, tasks.ImageRestorer.model_options("ttsr", size), {})
    learning = {"crops": 1, "batch_size": 8, "learning_rate": 3e-3, "warmup_steps": 50, "epochs": 1_000}
    began = time.process_time()
    known, validation, asked = (patchworks(n, seed, squares) for n, seed in ((count, 1), (16, 2), (16, 3)))
    task.fit(known, validation, minutes=minutes, **learning | options)
    measures = task.evaluate(asked)
    print(f"{time.process_time() - began:.0f} s of CPU time", measures)
    folder = pathlib.Path(folder)
    task.save(folder / "run", overwrite=True)
    for name, pictures in zip(("good", "reference"), asked, strict=True):
        (folder / name).mkdir(exist_ok=True)
        for number, picture in enumerate(pictures[:4]):
            PIL.Image.fromarray(picture).save(folder / name / f"{number}.png")
    sides, how = [4 * squares] * 2, PIL.Image.Resampling.BICUBIC
    pairs = [
        {"image": np.asarray(PIL.Image.fromarray(picture).resize(sides, how)), "reference": reference}
        for picture, reference in zip(*asked, strict=True)
    ]
    task.predict(pairs[:4], draw=folder / "enlarged")
    return measures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--folder", default="textures")
    main(**vars(parser.parse_args()))
