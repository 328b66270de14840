"""Draw digits: a ViTGAN that learns from scikit-learn's handwritten ones, 8 x 8 pixels, by a discriminator.

    python examples/draw_digits.py

Takes 8 minutes on a busy machine of 2 cores. What interrupts it may be followed by the same command, which
goes on from the last checkpoint. The discriminator's accuracy rises to 0.82 in the first epochs, then
stays between 0.70 and 0.79; an even game would be at 0.5. It prints

    share of the digits 0 to 9: 0.09, 0.12, 0.09, 0.10, 0.07, 0.11, 0.14, 0.11, 0.06, 0.11
    mean confidence of a classifier: 0.92 for true digits, for drawn ones 0.86

and draws 100 digits, drawn_digits/drawn.png: most are read at once, some are smeared.
"""

import argparse
import pathlib

import keras
import numpy as np
import PIL.Image
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from keras_tfm.models import ViTGAN, ViTGANDiscriminator
from keras_tfm.training import Adversarial, Checkpoint, Progress


def main(out, epochs, count=400):
    digits = load_digits()  # 1,797 images, grey levels 0 to 16
    images = (digits.images[..., None] / 8 - 1).astype("float32")  # from -1 to 1, as ViTGAN draws
    keras.utils.set_random_seed(0)
    generator, discriminator = ViTGAN.from_size("tiny"), ViTGANDiscriminator.from_size("tiny")
    model = Adversarial(generator, discriminator, penalty=0.3, momentum=0.99)
    model.compile(keras.optimizers.Adam(5e-4, 0.0, 0.99), keras.optimizers.Adam(5e-4, 0.0, 0.99))
    batches = tf.data.Dataset.from_tensor_slices({"images": images}).shuffle(len(images), seed=0)
    batches = batches.batch(64, drop_remainder=True)
    checkpoint = Checkpoint(out / "checkpoints", keep=1, resume=True)
    model.fit(batches, epochs=epochs, shuffle=False, verbose=0, callbacks=[Progress(), checkpoint])
    latents = np.random.default_rng(0).normal(size=(count, 32)).astype("float32")
    drawn = model.predict({"latents": latents}, verbose=0)["images"]
    out.mkdir(parents=True, exist_ok=True)
    grid(drawn[:100]).resize((800, 800), 0).save(out / "drawn.png")
    print(judge(digits, drawn))


def judge(digits, drawn):
    """What a logistic regression, which learnt from the true digits, says of the drawn ones."""
    regression = LogisticRegression(max_iter=2_000).fit(digits.data / 16, digits.target)
    true = regression.predict_proba(digits.data / 16).max(axis=1).mean()
    probabilities = regression.predict_proba((drawn.reshape(len(drawn), -1) + 1) / 2)
    shares = np.bincount(probabilities.argmax(axis=1), minlength=10) / len(drawn)
    return (
        f"share of the digits 0 to 9: {', '.join(f'{share:.2f}' for share in shares)}\n"
        f"mean confidence of a classifier: {true:.2f} for true digits, "
        f"for drawn ones {probabilities.max(axis=1).mean():.2f}"
    )


def grid(images):
    """100 images as one picture of 10 x 10, dark on white."""
    images = np.pad(images.reshape(10, 10, 8, 8), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-1)
    rows = images.transpose(0, 2, 1, 3).reshape(100, 100)
    return PIL.Image.fromarray(np.uint8(127.5 * (1 - rows)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("drawn_digits"))
    parser.add_argument("--epochs", type=int, default=90)
    arguments = parser.parse_args()
    main(arguments.out, arguments.epochs)
