"""What a fine-tuned task gives away: the same answers from transformers, strings in, names of labels out."""

import itertools
import json

import keras
import numpy as np
import pytest
import torch
import transformers

from keras_tfm.data import Answer, BERTTokenizer, ByteLevelTokenizer, SentencePieceTokenizer
from keras_tfm.models import BERT, DeBERTa, RoBERTa
from keras_tfm.tasks import (
    MaskedLanguageModel,
    MaskedLanguageModelConfig,
    QuestionAnswerer,
    TextClassifier,
    TokenClassifier,
)
from tests.data.tokenizers.test_sentencepiece_files import trained

pytestmark = pytest.mark.parity
WORDS = "the cat sat on a mat and dogs ran ##s ##ing".split()  # noqa: SIM905
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
TEXTS = ["The cat sat!", "cats and dogs", "a mat", "sitting on the mats, the cat"]
CHANGES = {"num_layers": 2, "dim": 32, "num_heads": 2, "intermediate_dim": 64, "max_length": 48}


def byte_level():
    """RoBERTa's kind of tokenizer, with the merges of a few words."""
    content = json.loads(ByteLevelTokenizer.train(TEXTS, 300)._content)
    tokens = [token for token in content["tokens"] if token != "<|endoftext|>"]
    return ByteLevelTokenizer(["<s>", "<pad>", "</s>", "<unk>", *tokens, "<mask>"], content["merges"])


FAMILIES = {"bert": (BERT, lambda: BERTTokenizer(PIECES)), "roberta": (RoBERTa, byte_level)}


def make(family, task, examples, **options):
    keras.utils.set_random_seed(0)
    backbone, tokenizer = FAMILIES[family][0], FAMILIES[family][1]()
    encoder = backbone.from_size("base", **CHANGES, vocabulary_size=tokenizer.vocabulary_size)
    for weight in encoder.weights:
        if keras.backend.is_float_dtype(weight.dtype):
            weight.assign(weight + 0.2 * np.random.default_rng(1).normal(size=weight.shape))
    head = {"hidden_dim": 32, "dropout": 0.1} if family == "roberta" and task is TextClassifier else None
    options |= {"head": head} if head else {}
    return task.from_backbone(encoder, tokenizer, examples, max_length=40, **options)


def logits_of(model_class, folder, *texts, **options):
    """Their logits, padding and all, and their names of labels."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model, info = model_class.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    with torch.no_grad():
        outputs = model.eval()(**tokenizer(*texts, return_tensors="pt", padding=True, **options))
    return outputs.logits.numpy(), model.config


LABELS = {
    "classes": ["x", "y", "z", "x"],
    "multi-label": [["x"], ["y", "z"], [], ["z"]],
    "regression": [1.0, 2.0, 3.0, 4.0],
}
# The quick combinations have every family, texts and pairs, and every problem.
QUICK = (("bert", False, "classes"), ("roberta", True, "multi-label"), ("bert", True, "regression"))
ALL = itertools.product(FAMILIES, (False, True), LABELS)


@pytest.mark.parametrize(
    ("family", "pairs", "problem"),
    [x if x in QUICK else pytest.param(*x, marks=pytest.mark.slow) for x in ALL],
)
def test_classifiers(family, pairs, problem, tmp_path):
    labels = LABELS[problem]
    texts = list(zip(TEXTS, TEXTS[::-1], strict=True)) if pairs else TEXTS
    task = make(family, TextClassifier, (texts, labels), problem=problem)
    task.save_huggingface(tmp_path / "folder")
    sides = (TEXTS, TEXTS[::-1]) if pairs else (TEXTS,)
    theirs, config = logits_of(transformers.AutoModelForSequenceClassification, tmp_path / "folder", *sides)
    np.testing.assert_allclose(task.probabilities(texts), task._activate(theirs), atol=1e-5)
    again = TextClassifier.from_huggingface(tmp_path / "folder", max_length=40)
    np.testing.assert_allclose(again.probabilities(texts), task.probabilities(texts), atol=1e-6)
    if problem != "regression":
        assert [config.id2label[i] for i in range(3)] == ["x", "y", "z"]


def test_taggers(tmp_path):
    words = [["the", "cats", "sat"], ["dogs"]]
    task = make("bert", TokenClassifier, (words, [["O", "B-X", "O"], ["B-X"]]))
    task.save_huggingface(tmp_path / "folder")
    texts = [" ".join(row) for row in words]
    theirs, config = logits_of(transformers.AutoModelForTokenClassification, tmp_path / "folder", texts)
    named = [[config.id2label[place] for place in row.argmax(-1)] for row in theirs]
    assert task.predict(words) == [[named[0][1], named[0][2], named[0][4]], [named[1][1]]]  # cat ##s is two


@pytest.mark.parametrize(
    "family", ["bert", *(pytest.param(x, marks=pytest.mark.slow) for x in ("roberta", "deberta"))]
)
def test_blanks_are_filled(family, tmp_path):
    """Their likeliest tokens at the mask; a folder of theirs becomes a task, learns, and is given back."""
    if family == "deberta":
        (tmp_path / "spm.model").write_bytes(trained("deberta"))
        tokenizer = SentencePieceTokenizer.from_huggingface(tmp_path)
        backbone, size, changes = DeBERTa, "v3-base", {**CHANGES, "num_buckets": 8}
    else:
        backbone, size, changes, tokenizer = FAMILIES[family][0], "base", CHANGES, FAMILIES[family][1]()
    keras.utils.set_random_seed(2)
    encoder = backbone.from_size(size, **changes, vocabulary_size=tokenizer.vocabulary_size)
    config = MaskedLanguageModelConfig(40, pairs="none")
    MaskedLanguageModel(encoder, tokenizer, config).save_huggingface(tmp_path / "folder")
    task = MaskedLanguageModel.from_huggingface(tmp_path / "folder", max_length=40)
    documents = ["The cat sat. A dog ran on the mats. Cats and dogs ran.\nA cat sat on a mat."] * 8
    assert task.fit(documents, documents, epochs=2, batch_tokens=160)["loss"]
    task.save_huggingface(tmp_path / "again")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    texts = [f"the {theirs.mask_token} sat on {theirs.mask_token}", "a mat", f"{theirs.mask_token} ran"]
    logits, _ = logits_of(transformers.AutoModelForMaskedLM, tmp_path / "again", texts)
    ids = theirs(texts, padding=True, return_tensors="np")["input_ids"]
    logits[..., theirs.all_special_ids] = -np.inf
    filled = []
    for text, row, of_text in zip(texts, ids, logits, strict=True):
        for token_id in of_text[row == theirs.mask_token_id].argmax(-1):
            piece = theirs.convert_ids_to_tokens(int(token_id))
            word = piece.removeprefix("##") if family == "bert" else theirs.decode([int(token_id)]).strip()
            text = text.replace(theirs.mask_token, word, 1)
        filled.append(text)
    assert task.predict(texts) == filled and filled[1] == "a mat"
    assert [len(blanks) for blanks in task.candidates(texts, count=2)] == [2, 0, 1]


CONTEXT = (
    "The cats sat on a mat (and dogs!)\n ran. A “dog” sat on the café's mats 😀, and the cat's e\u0301nd."
)


@pytest.mark.parametrize("family", ["bert", pytest.param("roberta", marks=pytest.mark.slow)])
def test_windows_and_spans(family, tmp_path):
    """The ids of all windows, the characters of each piece, and the logits."""
    question = ["Who sat?", "on a mat"]
    answers = [[Answer("dogs", CONTEXT.index("dogs"))], []]
    task = make(family, QuestionAnswerer, (question, [CONTEXT] * 2, answers), stride=7)
    task.save_huggingface(tmp_path / "folder")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    model, info = transformers.AutoModelForQuestionAnswering.from_pretrained(
        tmp_path / "folder", output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    asked = [(text, CONTEXT) for text in question]
    read = task.answerer.read_all(asked)
    logits = task.answerer.run(task.answerer.read(asked))
    row = 0
    for text, (rows, _) in zip(question, read, strict=True):
        special = tokenizer.num_special_tokens_to_add(pair=True)
        overlap = 40 - special - len(tokenizer.tokenize(text)) - 7
        theirs = tokenizer(
            text, CONTEXT, truncation="only_second", max_length=40, stride=overlap, padding=True,
            return_overflowing_tokens=True, return_offsets_mapping=True, return_tensors="pt",
        )  # fmt: skip
        offsets, owner = theirs.pop("offset_mapping").numpy(), theirs.sequence_ids
        theirs.pop("overflow_to_sample_mapping")
        with torch.no_grad():
            expected = model.eval()(**theirs)
        assert len(offsets) == len(rows) > 1
        for window, ours in enumerate(rows):
            length = int(theirs["attention_mask"][window].sum())
            ids = theirs["input_ids"][window, :length].tolist()
            assert ours.ids == ids
            starts, ends = ours.more
            for place in range(length):
                if owner(window)[place] == 1:
                    first, last = offsets[window, place]
                    piece = CONTEXT[starts[place] : ends[place]]
                    assert piece.strip("\u0301 ") == CONTEXT[first:last].strip("\u0301 ")
                else:
                    assert starts[place] == ends[place] == 0
            for side, theirs_of_side in (("start", expected.start_logits), ("end", expected.end_logits)):
                np.testing.assert_allclose(
                    logits[side][row, :length], theirs_of_side[window, :length], atol=1e-4
                )
            row += 1
