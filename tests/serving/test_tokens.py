"""Texts as ids on the host: reading each distinct word once changes nothing."""

import hypothesis
import hypothesis.strategies as st
import pytest

import keras_tfm
from keras_tfm.data.tokenizers.added import AddedToken
from keras_tfm.serving.tokens import by_tokenizers, reads_words_alone, tokenizer_of

PIECES = [
    *[
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "a",
        "b",
        "##a",
        "##b",
        "ab",
        "##ba",
        "é",
        "e",
        "##e",
        "東",
        "##京",
        ".",
        "-",
        "##.",
    ]
]
# Accents that stand alone, spaces of several kinds, characters that are deleted, one that lower-cases to two.
CHARACTERS = "ab ABeé\u0301\u0300 \t\n\u00a0\u2003\u200b\x07\ufffd東京.-İΣ[MASK]"
TEXTS = st.lists(st.text(CHARACTERS, max_size=20) | st.just("a [MASK]b [MASK] <x>ab"), max_size=6)


def tokenizer_with(content, folder, **flags):
    added = [AddedToken(name, i, special=True) for i, name in enumerate(PIECES[:5])]
    added.append(AddedToken(content, len(PIECES), **flags))
    keras_tfm.data.BERTTokenizer(PIECES, added=added).save_huggingface(folder)
    return tokenizer_of(folder)


@pytest.fixture(scope="module", params=[True, False])
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer_with("<x>", folder, normalized=request.param)
    return folder


@hypothesis.given(TEXTS)
def test_words_alone_are_the_whole_text(folder, texts):
    whole = tokenizer_of(folder)
    expected = [whole.encode(text, add_special_tokens=False).ids for text in texts]
    assert reads_words_alone(whole) and by_tokenizers(folder)(texts) == expected


@pytest.mark.parametrize(
    "content, flags", [("a b", {}), ("<x>", {"lstrip": True}), ("<x>", {"rstrip": True})]
)
def test_tokens_with_white_space_need_the_whole_text(content, flags, tmp_path):
    whole = tokenizer_with(content, tmp_path, **flags)
    texts = ["a b", " <x> ab", "ab  a b <x>  b"]
    expected = [whole.encode(text, add_special_tokens=False).ids for text in texts]
    assert by_tokenizers(tmp_path)(texts) == expected
    assert not reads_words_alone(whole)


@pytest.mark.parametrize("texts", [["\ud800"], ["a", "\ud800"]])
def test_half_of_a_surrogate_pair_is_named(tmp_path, texts):
    tokenizer_with("<x>", tmp_path, lstrip=True)
    with pytest.raises(ValueError, match="surrogates not allowed"):
        by_tokenizers(tmp_path)(texts)
