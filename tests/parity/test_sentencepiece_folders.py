"""Folders with a SentencePiece tokenizer in transformers: the same ids around, in and between texts."""

import dataclasses
import re

import keras
import numpy as np
import pytest

from keras_tfm.data import SentencePieceTokenizer, read_huggingface_tokenizer
from keras_tfm.data.batches.encoding import pack_texts
from keras_tfm.heads import LanguageModel
from keras_tfm.models import ALBERT, T5, DeBERTa
from keras_tfm.tasks import TextClassifier, Translator, TranslatorConfig
from tests.data.tokenizers.test_sentencepiece_files import FILES, LINES, MASKS, trained
from tests.models import test_albert, test_deberta, test_t5

EXAMPLES = (["a good film", "a bad one"], ["good", "bad"])

pytestmark = pytest.mark.parity


def task_of(family, tokenizer):
    sizes = {"vocabulary_size": tokenizer.vocabulary_size, "max_length": 128}
    if family == "t5":
        backbone = T5(dataclasses.replace(test_t5.TINY, vocabulary_size=tokenizer.vocabulary_size))
        return Translator(LanguageModel(backbone), tokenizer, config=TranslatorConfig(64))
    if family == "albert":
        backbone, head = ALBERT(dataclasses.replace(test_albert.TINY, **sizes)), {}
    else:
        backbone, head = DeBERTa(dataclasses.replace(test_deberta.V3, **sizes)), test_deberta.TWO_LAYERS
    return TextClassifier.from_backbone(backbone, tokenizer, EXAMPLES, head=head)


@pytest.mark.slow  # a minute of CPU time each
@pytest.mark.parametrize("family", ["albert", "deberta", "t5"])
def test_transformers_reads_the_same_tokens(family, tmp_path):
    import transformers

    keras.utils.set_random_seed(0)
    (tmp_path / FILES[family]).write_bytes(trained(family))
    tokenizer = SentencePieceTokenizer.from_huggingface(tmp_path)
    task_of(family, tokenizer).save_huggingface(tmp_path / "theirs")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    before = [tokenizer.start_id] if family in ("albert", "deberta") else []
    texts = [*LINES[:2_000], f"fill {MASKS[family]} in", "  a  b ", "\u00c9t\u00e9 \ufb01n \u6f22"]
    for text, row in zip(texts, theirs(texts)["input_ids"], strict=True):
        expected = [*before, *tokenizer.tokenize([text]).to_list()[0], tokenizer.end_id]
        assert row == expected or sorted(row) == sorted(expected), text  # ties of scores
    assert (theirs.pad_token_id, theirs.eos_token_id) == (tokenizer.pad_id, tokenizer.end_id)
    assert theirs.mask_token_id == tokenizer.mask_id


def test_pairs_of_xlm_roberta(tmp_path):
    """The same ids of drawn pairs, cut ones too, from its own folder and from the one written here."""
    import transformers

    (tmp_path / "sentencepiece.bpe.model").write_bytes(trained("mbart"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
    (tmp_path / "written").mkdir()
    read_huggingface_tokenizer(tmp_path).save_huggingface(tmp_path / "written")
    random = np.random.default_rng(0)
    lines = [line for line in LINES if not re.search(r"(.)\1\1", line)]  # runs have pieces whose scores tie
    pairs = [[lines[i] for i in random.integers(len(lines), size=2)] for _ in range(500)]
    pairs += [["", ""], ["a house", ""], ["", "a <mask>  b"]]
    rows = []
    for folder in (tmp_path, tmp_path / "written"):
        theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), read_huggingface_tokenizer(folder)
        assert type(theirs).__name__.startswith("XLM") == (folder == tmp_path)
        for max_length in (512, 16):
            options = {"truncation": True, "max_length": max_length}
            expected = theirs([a for a, _ in pairs], [b for _, b in pairs], **options)["input_ids"]
            rows.append(pack_texts(ours, max_length, *zip(*pairs, strict=True))["token_ids"].to_list())
            assert rows[-1] == expected
    assert rows[:2] == rows[2:]
