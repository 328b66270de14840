"""A task of a user's own: one class, and the command line trains, resumes, measures, asks and exports it."""

import dataclasses
import json
from typing import Annotated

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (the SavedModel's tokenizer)

from keras_tfm.asking import TASKS
from keras_tfm.configs import Config, Length, Option
from keras_tfm.data import BERTTokenizer, LabelledTexts, read_labelled_texts
from keras_tfm.data.batches.encoding import EncodedBatches, model_inputs, pack_texts
from keras_tfm.heads import Classifier
from keras_tfm.models import BERT
from keras_tfm.tasks import TrainableTask
from keras_tfm.tasks.text.encoder_task import EncoderOptions
from keras_tfm.training.options import TextTraining
from tests.tasks.tiny import TINY
from tests.test_cli import run


@dataclasses.dataclass(frozen=True)
class RaterConfig(Config):
    """How long a sentence may be."""

    max_length: Annotated[Length, Option("tokens of a sentence at most")] = 32


@pytest.fixture(scope="module", autouse=True)
def rater():
    """The class, which is a task as long as this file is tested."""

    class Rater(TrainableTask):
        """Rates sentences by their length."""

        name, unit, examples_class = "rate", "sentences", LabelledTexts
        help, files, columns = "learn how long a sentence is", ".tsv: a sentence, and its rating", (2,)
        model_options, config_class, training = EncoderOptions, RaterConfig, TextTraining(epochs=3)

        def __init__(self, backbone, tokenizer, config):
            self.model, self.tokenizer, self.config = Classifier(backbone, 1), tokenizer, config

        def batches(self, examples, training, is_validation=False):
            labels = np.array(examples.labels, "float32")[:, None]
            return EncodedBatches(self.pack(examples.texts), labels, **training.batching(is_validation))

        def objective(self, training):
            return {"loss": keras.losses.MeanSquaredError("mean_with_sample_weight", name="loss")}

        def pack(self, texts):
            return pack_texts(self.tokenizer, self.config.max_length, tf.convert_to_tensor(texts))

        def rate(self, texts):
            return self.model(model_inputs(self.pack(texts), self.tokenizer.pad_id), training=False)[:, 0]

        def predict(self, texts):
            return self.rate(list(texts)).numpy().tolist()

        def measure(self, examples):
            return {"error": np.mean(np.abs(np.array(self.predict(examples[0])) - examples[1]))}

        @classmethod
        def read_files(cls, paths, columns=None, **fields):
            return read_labelled_texts(paths, columns, "regression")

        @classmethod
        def make(cls, examples, options, changes, **fields):
            tokenizer = BERTTokenizer.train(examples[0], options.vocabulary_size, options.lowercase)
            backbone = BERT.from_size(options.size, **changes, vocabulary_size=tokenizer.vocabulary_size)
            return cls(backbone, tokenizer, RaterConfig(**fields))

        def export_endpoints(self):
            text = tf.TensorSpec([None], tf.string, "text")
            return {"serving_default": (lambda text: {"rating": self.rate(text)}, [text])}

    yield Rater
    del TASKS["rate"]


@pytest.mark.slow
def test_a_task_of_one_class(tmp_path, capsys):
    rows = [f"{'word ' * count}end\t{count}" for count in range(1, 11)] * 4
    (tmp_path / "train.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    (tmp_path / "changes.json").write_text(json.dumps(TINY))
    assert run("train", "rate", "--help") == 0
    assert "learn how long a sentence is" in " ".join(capsys.readouterr().out.lower().split())
    size = "--size", "tiny", "--config", tmp_path / "changes.json", "--vocabulary", 300
    out = "--out", tmp_path / "run"
    train = "train", "rate", "--data", tmp_path / "train.tsv", *out, *size, "--schedule", "constant"
    assert run(*train, "--epochs", 1) == 0
    assert run("train", "rate", *out, "--resume", "--epochs", 2) == 0
    said = capsys.readouterr().err
    assert "40 sentences read" in said and "Resuming at step" in said and "epoch 2/2" in said
    assert run("evaluate", tmp_path / "run", "--data", tmp_path / "train.tsv") == 0
    measures = json.loads(capsys.readouterr().out)
    (tmp_path / "asked").write_text("\n".join(row.partition("\t")[0] for row in rows) + "\n")
    assert run("predict", tmp_path / "run", "--data", tmp_path / "asked", "--json") == 0
    ratings = [json.loads(line)["answer"] for line in capsys.readouterr().out.splitlines()]
    error = np.abs(np.array(ratings) - [float(row.partition("\t")[2]) for row in rows]).mean()
    assert measures == {"sentences": 40, "error": pytest.approx(error, abs=1e-4)}
    (tmp_path / "asked").write_text("word end\n\nword word end\n")
    assert run("predict", tmp_path / "run", "--data", tmp_path / "asked", "--json") == 0
    one, nothing, other = (json.loads(line)["answer"] for line in capsys.readouterr().out.splitlines())
    assert nothing is None
    for options, message in (
        (("--batch-size", 2), "--batch-size: the task 'rate' has no such option"),
        (("--probabilities",), "--probabilities: the task 'rate' has no such option"),
        (("--beam", 2), "--beam: the task 'rate' does not generate text"),
    ):
        assert run("predict", tmp_path / "run", "--data", tmp_path / "asked", *options) == 2
        assert message in capsys.readouterr().err
    assert run("export", tmp_path / "run", "--out", tmp_path / "served") == 0
    serve = tf.saved_model.load(tmp_path / "served").signatures["serving_default"]
    ratings = serve(text=tf.constant(["word end", "word word end"]))["rating"].numpy()
    np.testing.assert_allclose(ratings, [one, other], rtol=1e-5)
