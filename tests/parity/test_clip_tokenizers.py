"""Live: the tokenizers of CLIP and SigLIP against transformers' own, out of folders in both directions."""

import json
import pydoc_data.topics

import pytest
import transformers

from keras_tfm.convert.folder import max_length_writer
from keras_tfm.data import CLIPTokenizer, SentencePieceTokenizer
from keras_tfm.data.tokenizers.huggingface import read_huggingface_tokenizer
from tests.data.tokenizers.test_clip import ODD, SPECIAL
from tests.data.tokenizers.test_sentencepiece_files import trained

pytestmark = pytest.mark.parity
TOPICS = pydoc_data.topics.topics.values()
LINES = [line for topic in TOPICS for line in topic.splitlines() if line.strip()][:4_000]


@pytest.fixture(scope="module")
def clip():
    return CLIPTokenizer.train(LINES, 1_200)


def check(ours, theirs, texts, prefix, length):
    """The same ids around and in texts, cut and padded alike."""
    rows = theirs(texts, padding="max_length", truncation=True, max_length=length)["input_ids"]
    assert len({len(row) for row in rows}) == 1
    for text, row, expected in zip(texts, ours.tokenize(texts).to_list(), rows, strict=True):
        cut = [*prefix, *row[: length - len(prefix) - 1], ours.end_id]
        assert [*cut, *[ours.pad_id] * (length - len(cut))] == expected, text


@pytest.mark.parametrize("kind", [transformers.CLIPTokenizer, transformers.AutoTokenizer])
def test_clips_folders_are_transformers(clip, kind, tmp_path):
    clip.save_huggingface(tmp_path)
    max_length_writer(77)(tmp_path)
    theirs = kind.from_pretrained(tmp_path)
    assert theirs.model_max_length == 77
    check(clip, theirs, [*LINES, *ODD, *SPECIAL], [clip.start_id], 77)
    assert theirs.decode(clip.tokenize(["It's a Cat!"])[0].numpy()) == "it 's a cat !"


def test_clips_folder_of_transformers_is_ours(clip, tmp_path):
    ids = {token: i for i, token in enumerate(clip.tokens)}
    merges = [tuple(merge.split(" ")) for merge in clip.content["merges"]]
    theirs = transformers.CLIPTokenizer(vocab=ids, merges=merges, pad_token="!</w>")
    theirs.save_pretrained(tmp_path)
    ours = read_huggingface_tokenizer(tmp_path)
    assert type(ours) is CLIPTokenizer and ours.tokens == clip.tokens
    assert (ours.pad_id, ours.start_id, ours.end_id) == (
        theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id
    )  # fmt: skip
    check(ours, theirs, [*LINES[:500], *ODD], [ours.start_id], 20)


GREEK = ["Α Σ ΑΣ ΑΣΑ ΑΣ.Α 'Σ' ΑΣΣ ΣΣ ΌΣΟΣ.", "ΟΔΥΣΣΕΥΣ", "ας Ασ Σ"]
MARKS = ["A photo of a {cat}!", "don't--stop", " a\x1cb\x85c \u3000", "\u2026 \u338f \u2100", "É ﬁ ½ ẞ İ"]


@pytest.fixture(scope="module")
def siglip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("siglip")
    (folder / "spiece.model").write_bytes(trained("t5", [" ".join(GREEK).lower()] * 300))
    (folder / "config.json").write_text(json.dumps({"model_type": "siglip"}))
    return folder, SentencePieceTokenizer.from_huggingface(folder)


def test_siglips_tokens_are_transformers(siglip, tmp_path):
    folder, ours = siglip
    texts = [line for line in [*LINES, *GREEK, *MARKS, "", "word " * 80] if "\0" not in line]
    theirs = transformers.SiglipTokenizer.from_pretrained(folder)
    assert (ours.pad_id, ours.end_id) == (theirs.pad_token_id, theirs.eos_token_id)
    check(ours, theirs, texts, [], 64)
    ours.save_huggingface(tmp_path)
    max_length_writer(64)(tmp_path)
    back = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(back) is transformers.SiglipTokenizer and back.model_max_length == 64
    check(ours, back, texts, [], 64)
    again = SentencePieceTokenizer.from_huggingface(tmp_path)
    assert again.model == ours.model
