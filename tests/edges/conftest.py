"""Tiny tasks, untrained, in folders: one of each kind that the tests change and ask."""

import numpy as np
import pytest

from tests.tasks.tiny import TINY


def translator():
    from keras_tfm.tasks import Translator

    pairs = ["1 May 2000", "2 June 2001", "3 July"], ["2000-05-01", "2001-06-02", "July 3"]
    changes = {"num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 32}
    return Translator.from_pairs(pairs, "transformer", "tiny", 300, max_length=16, **changes)


def generator():
    from keras_tfm.tasks import TextGenerator

    changes = {"num_layers": 1, "dim": 16, "num_heads": 2, "max_length": 16}
    return TextGenerator.from_texts(["To be, or not to be."], "tiny", 300, "characters", **changes)


def classifier():
    from keras_tfm.tasks import TextClassifier

    examples = ["a good film", "a bad film"], ["good", "bad"]
    return TextClassifier.from_examples(examples, "tiny", 300, changes=TINY, max_length=16, pooling="first")


def sentence_encoder():
    from keras_tfm.tasks import SentenceEncoder, SentenceEncoderConfig

    task = classifier()
    return SentenceEncoder(task.model.backbone, task.tokenizer, SentenceEncoderConfig(16))


def image_classifier():
    from keras_tfm.tasks import ImageClassifier

    sizes = {"image_size": 8, "patch_size": 4, "num_channels": 1, "num_layers": 1, "dim": 16, "num_heads": 2}
    return ImageClassifier.from_size("tiny", np.array(["a", "b"]), intermediate_dim=16, **sizes)


def recommender():
    from keras_tfm.tasks import Recommender

    ratings = ["a", "b", "a"], ["x", "x", "y"], [1.0, 5.0, 3.0]
    return Recommender.from_ratings(ratings, dim=2, lowest=1, highest=5)


def matcher():
    from tests.tasks.image_text.test_matcher import fresh

    return fresh()


def captioner():
    from tests.tasks.image_text.test_captioner import fresh

    return fresh()


def video_classifier():
    from tests.tasks.test_every_task import videos

    return videos()


def point_classifier():
    from tests.tasks.test_every_task import clouds

    return clouds()


def pose_estimator():
    from tests.tasks.test_every_task import poses

    return poses()


MAKERS = {
    "translate": translator,
    "generate": generator,
    "classify": classifier,
    "sentence-vectors": sentence_encoder,
    "classify-images": image_classifier,
    "classify-videos": video_classifier,
    "classify-points": point_classifier,
    "keypoints": pose_estimator,
    "recommend": recommender,
    "match-images": matcher,
    "caption": captioner,
}


@pytest.fixture(scope="session")
def run_of(tmp_path_factory):
    """A function from a kind of task to its RUN, or "bert" to a folder of Hugging Face's: made once."""

    folder = tmp_path_factory.mktemp("runs")

    def find(kind):
        path = folder / kind
        if not path.exists():
            if kind == "bert":
                classifier().save_huggingface(path)
            else:
                MAKERS[kind]().save(path)
        return path

    return find
