"""What a fine-tuned task gives away: the same answers from transformers, strings in, names of labels out."""

import keras
import numpy as np
import pytest
import torch
import transformers

from keras_tfm.data import BERTTokenizer
from keras_tfm.models import BERT
from keras_tfm.tasks import TextClassifier, TokenClassifier

pytestmark = pytest.mark.parity
WORDS = "the cat sat on a mat and dogs ran ##s ##ing".split()  # noqa: SIM905
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
TEXTS = ["The cat sat!", "cats and dogs", "a mat", "sitting on the mats, the cat"]
CHANGES = {"num_layers": 2, "dim": 32, "num_heads": 2, "hidden_dim": 64, "max_length": 32}


def make(task, examples, **options):
    keras.utils.set_random_seed(0)
    bert = BERT.from_size("tiny", **CHANGES, vocabulary_size=len(PIECES))
    for weight in bert.weights:
        if keras.backend.is_float_dtype(weight.dtype):
            weight.assign(weight + 0.2 * np.random.default_rng(1).normal(size=weight.shape))
    return task.from_backbone(bert, BERTTokenizer(PIECES), examples, max_length=24, **options)


def logits_of(model_class, folder, *texts):
    """Their logits, padding and all, and their names of labels."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model, info = model_class.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    with torch.no_grad():
        outputs = model.eval()(**tokenizer(*texts, return_tensors="pt", padding=True))
    return outputs.logits.numpy(), model.config


@pytest.mark.parametrize(
    ("problem", "labels"),
    [
        ("classes", ["x", "y", "z", "x"]),
        ("multi-label", [["x"], ["y", "z"], [], ["z"]]),
        ("regression", [1.0, 2.0, 3.0, 4.0]),
    ],
)
@pytest.mark.parametrize("pairs", [False, True], ids=["texts", "pairs"])
def test_classifiers(problem, labels, pairs, tmp_path):
    texts = list(zip(TEXTS, TEXTS[::-1], strict=True)) if pairs else TEXTS
    task = make(TextClassifier, (texts, labels), problem=problem)
    task.save_huggingface(tmp_path / "folder")
    sides = (TEXTS, TEXTS[::-1]) if pairs else (TEXTS,)
    theirs, config = logits_of(transformers.AutoModelForSequenceClassification, tmp_path / "folder", *sides)
    np.testing.assert_allclose(task.probabilities(texts), task._activate(theirs), atol=1e-5)
    if problem != "regression":
        assert [config.id2label[i] for i in range(3)] == ["x", "y", "z"]


def test_taggers(tmp_path):
    words = [["the", "cats", "sat"], ["dogs"]]
    task = make(TokenClassifier, (words, [["O", "B-X", "O"], ["B-X"]]))
    task.save_huggingface(tmp_path / "folder")
    texts = [" ".join(row) for row in words]
    theirs, config = logits_of(transformers.AutoModelForTokenClassification, tmp_path / "folder", texts)
    named = [[config.id2label[place] for place in row.argmax(-1)] for row in theirs]
    assert task.predict(words) == [[named[0][1], named[0][2], named[0][4]], [named[1][1]]]  # cat ##s is two
