"""Captions of a made world of videos: a small ViViT before a small GPT-2 says what happens.

    python examples/caption_videos.py                   # 13 minutes of one core, 20 at most
    python examples/caption_videos.py --minutes 4       # as far as it comes; with 8 it goes on from there

The videos are drawn by `data.worlds.sentence_clips`: one of 96 things does one of eight things, and
may cross others. The decoder attends to the tubelets of a ViViT (Arnab et al. 2021) behind six convolutions.
It is asked about 400 videos of another seed. November 2026, 11.7 epochs, stopped once and resumed, 770 s of
one core's time of an AMD EPYC with AVX-512: 84 % of the captions were exact, of 800 videos 82 %. The colour
and the action were right in all of the 400, the shape in 98 %, the number of things that it crosses in 91 %.
The sentence of the most similar training video, pixel by pixel, is exact in 5 %. In 2 % of the videos the
four frames do not show a crossing that the sentence names. Shapes come last: the loss per token is 0.50 after
two epochs, 0.28 after five, 0.09 at the end.
"""

import argparse
import pathlib

from keras_tfm.data import VideoTexts
from keras_tfm.data.worlds import sentence_clips
from keras_tfm.tasks import Captioner

ENCODER = {
    "stem": ((16, 2), (32, 2), (32, 1), (32, 1), (64, 2), (64, 1)), "tubelet_size": (4, 8, 8),
    "num_layers": 3, "dim": 96, "num_heads": 4, "intermediate_dim": 288, "position_stddev": 0.2,
}  # fmt: skip
DECODER = {
    "num_layers": 2, "dim": 96, "num_heads": 4, "dropout": 0.0, "attention_dropout": 0.0,
    "embedding_dropout": 0.0,
}  # fmt: skip
OPTIONS = {"epochs": 12, "batch_size": 32, "learning_rate": 2e-3, "warmup_steps": 136, "max_shift": 6}


def main(run: pathlib.Path, minutes: float, count: int = 14_000) -> None:
    """Learn from thousands of videos, and say what happens in videos that were never seen."""
    train = VideoTexts(*sentence_clips(count, seed=1, num_frames=8))
    resume = (run / "config.json").exists()
    if resume:
        task = Captioner.load(run)
    else:
        options = Captioner.model_options(encoder="vivit", num_frames=4, vocabulary_size=600, max_length=32)
        changes = {"image_size": 64, "encoder_config": ENCODER, "decoder_config": DECODER}
        task = Captioner.make(train, options, changes)
    task.fit(train, 0.05, run=run, resume=resume, minutes=minutes, **OPTIONS)
    test = VideoTexts(*sentence_clips(400, seed=2, num_frames=8))
    print(task.evaluate(test))
    for truth, answer in zip(test.texts[:5], task.generate(test.videos[:5]), strict=True):
        print(f"{truth}  ->  {answer}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/caption_videos"))
    parser.add_argument("--minutes", type=float, default=20.0)
    arguments = parser.parse_args()
    main(arguments.out, arguments.minutes)
