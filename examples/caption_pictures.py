"""Captions of a made world: a small image encoder before a small GPT-2 says what is on a picture.

    python examples/caption_pictures.py                   # 20 minutes
    python examples/caption_pictures.py --minutes 5       # a taste

The pictures come from `made_world.py`: two coloured things beside or above one another, 200 different
sentences, one for a picture. The encoder is a ViT behind a few convolutions (Dosovitskiy et al. 2021, the
hybrid), the decoder attends to its 49 patches. It is asked about 200 pictures that were never seen, by itself
and as the SavedModel that it is exported to, which takes the bytes of PNG files. In 6 minutes of CPU on one
core (--minutes 15, with other work beside it) all 200 captions were exact, the SavedModel's too.
"""

import argparse
import pathlib
import tempfile

import tensorflow as tf
from made_world import SIDE, pictures, sentences

from keras_tfm.tasks import Captioner

ENCODER = {
    "patch_size": 2, "stem_dim": 32, "stage_dims": (64,), "stage_depths": (2,), "num_groups": 8,
    "num_layers": 3, "dim": 128, "num_heads": 4, "intermediate_dim": 256, "position_stddev": 0.2,
}  # fmt: skip
DECODER = {
    "num_layers": 2, "dim": 128, "num_heads": 4, "dropout": 0.0, "attention_dropout": 0.0,
    "embedding_dropout": 0.0,
}  # fmt: skip


def main():
    """Learn from thousands of pictures, and say what is on pictures that were never seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--out", help="a folder for the SavedModel (default: one that is removed)")
    arguments = parser.parse_args()
    known = sentences(200, seed=0)
    train = pictures(known, seed=1, copies=100)
    options = Captioner.model_options(encoder="hybridvit", vocabulary_size=700, max_length=16)
    changes = {"image_size": SIDE, "encoder_config": ENCODER, "decoder_config": DECODER}
    task = Captioner.make(train, options, changes)
    task.fit(
        train, pictures(known, seed=2), epochs=40, minutes=arguments.minutes, batch_size=64,
        learning_rate=1e-3, max_shift=2,
    )  # fmt: skip
    test = pictures(known, seed=3)
    print(task.evaluate(test))
    answers = task.generate(test.images)
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(arguments.out or folder, "captioner")
        task.export(out)
        serve = tf.saved_model.load(out).signatures["serving_default"]
        files = tf.constant([tf.io.encode_png(image).numpy() for image in test.images])
        served = [text.decode() for text in serve(image_bytes=files)["text"].numpy()]
    print(f"served as answered: {sum(a == b for a, b in zip(served, answers, strict=True))} of {len(served)}")
    for number in range(5):
        print(f"{test.texts[number]}  ->  {answers[number]}")


if __name__ == "__main__":
    main()
