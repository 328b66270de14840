"""SigLIP's tokenizer, which reads small letters without punctuation, against SentencePiece itself."""

import re
import string

import pytest
import sentencepiece

from keras_tfm.data import DataError, SentencePieceTokenizer, load_tokenizer
from keras_tfm.data.tokenizers.huggingface import read_huggingface_special_tokens, read_huggingface_tokenizer
from tests.data.tokenizers.test_sentencepiece_files import LINES, is_same, trained


def canonical(text):
    """What SigLIP's tokenizer makes of a text before SentencePiece reads it."""
    text = text.lower().translate(dict.fromkeys(map(ord, string.punctuation)))
    return re.sub(r"\s+", " ", text).strip()


GREEK = ["Α Σ ΑΣ ΑΣΑ ΑΣ.Α 'Σ' ΑΣΣ ΣΣ ΌΣΟΣ.", "ΟΔΥΣΣΕΥΣ", "ας Ασ Σ", "ΑΣ"]


@pytest.fixture(scope="module")
def siglip(tmp_path_factory):
    """(A folder, our tokenizer of it, SentencePiece itself); the vocabulary knows both small sigmas."""
    folder, model = tmp_path_factory.mktemp("siglip"), trained("t5", [canonical(" ".join(GREEK))] * 300)
    (folder / "spiece.model").write_bytes(model)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "SiglipTokenizer"}')
    ours = SentencePieceTokenizer.from_huggingface(folder)
    return folder, ours, sentencepiece.SentencePieceProcessor(model_proto=model)


def test_siglip_reads_small_letters_without_punctuation(siglip, tmp_path):
    _, ours, processor = siglip
    assert ours.pad_id == ours.end_id == 1 and ours.unknown_id == 2 and not ours.sentinel_ids
    marks = [
        "A photo of a {cat}!",
        "don't--stop",
        " a\x1cb\x85c \u3000",
        "… ㎏ ℀",
        "É ﬁ ½ ẞ İ",
        "",
        "!?",
        "_",
    ]
    texts = [*LINES[:2_000], *GREEK, *marks]
    for text, row in zip(texts, ours.tokenize(texts).to_list(), strict=True):
        assert is_same(row, processor.encode(canonical(text))), text
    assert processor.id_to_piece(ours.tokenize(["ΑΣ"]).to_list()[0][-1]).endswith("ς")
    ours.save(tmp_path)
    assert load_tokenizer(tmp_path).tokenize(GREEK).to_list() == ours.tokenize(GREEK).to_list()
    ids, starts, ends = ours.tokenize_with_offsets(["A big, big Cat!"])
    assert ids.to_list() == ours.tokenize(["A big, big Cat!"]).to_list()
    assert starts[0, 0].numpy() == 0 and ends[0, -1].numpy() in (14, 15)


def test_siglips_folder_comes_and_goes(siglip, tmp_path):
    folder, ours, _ = siglip
    ours.save_huggingface(tmp_path)
    again = read_huggingface_tokenizer(tmp_path)
    assert again.model == ours.model and again.pad_id == ours.pad_id
    assert read_huggingface_special_tokens(tmp_path, again) == ([], [1])
    (folder / "config.json").write_text('{"do_lower_case": false}')
    with pytest.raises(DataError, match="do_lower_case is false"):
        SentencePieceTokenizer.from_huggingface(folder)


def test_siglips_kind_is_trained():
    ours = SentencePieceTokenizer.train_canonical(LINES[:3_000], 700)
    assert ours.vocabulary_size <= 700 and ours.pad_id == ours.end_id == 1 and not ours.is_lossless
    one, other, unknown = ours.tokenize(
        ["The value, of a name!", "the value of a name", "the 漢字"]
    ).to_list()
    assert one == other and ours.unknown_id not in one and ours.unknown_id in unknown
    again = SentencePieceTokenizer.train_canonical(LINES[:3_000], 700)
    assert again.model == ours.model
    with pytest.raises(ValueError, match="must be at least 100; it is 99"):
        SentencePieceTokenizer.train_canonical(["a"], 99)
    assert SentencePieceTokenizer.train_canonical(["a b"], 100).vocabulary_size < 10
