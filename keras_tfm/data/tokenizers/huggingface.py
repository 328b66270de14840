"""Tokenizers of any kind from folders of `transformers`, and the special tokens around their texts."""

import pathlib
from typing import Any

from keras_tfm.configs import brief
from keras_tfm.data.sources.lines import DataError, Path
from keras_tfm.data.tokenizers.bert import BERTTokenizer
from keras_tfm.data.tokenizers.byte_pairs import ByteLevelTokenizer
from keras_tfm.data.tokenizers.clip import START, SUFFIX, CLIPTokenizer
from keras_tfm.data.tokenizers.published import Published
from keras_tfm.data.tokenizers.residues import ROLES, ResidueTokenizer
from keras_tfm.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer
from keras_tfm.training.safetensors import CheckpointError, read_json

KINDS: dict[str, Any] = {
    "WordPiece": BERTTokenizer,
    "BPE": ByteLevelTokenizer,
    "Unigram": SentencePieceTokenizer,
}
FILES: dict[str, Any] = {
    "spiece.model": SentencePieceTokenizer,
    "spm.model": SentencePieceTokenizer,
    "sentencepiece.bpe.model": SentencePieceTokenizer,
    "vocab.txt": BERTTokenizer,
    "vocab.json": ByteLevelTokenizer,
}


def read_huggingface_tokenizer(folder: Path, encloses: bool = False) -> Tokenizer:
    """Read the tokenizer in a folder of `transformers`; its kind follows from tokenizer.json or the files.

    Added tokens and the options that change ids are read too; `encloses` expects a tokenizer that puts its
    start and its end token around a text. Raises DataError if there is no tokenizer, or one of another class
    or kind or with an option that is not supported, and CheckpointError if a file is damaged.

    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat"]
    >>> keras_tfm.data.BERTTokenizer(pieces).save_huggingface(".")
    >>> type(keras_tfm.data.read_huggingface_tokenizer(".")).__name__
    'BERTTokenizer'
    """
    tokenizer, published = _kind(folder).from_huggingface(folder), Published(folder)
    if (side := published.options.get("truncation_side", "right")) != "right":
        wanted = '"right", as texts are cut at their end'
        raise CheckpointError(published.folder / "tokenizer_config.json", "truncation_side", wanted, side)
    if encloses and published.is_general and published.content:
        special = read_huggingface_special_tokens(folder, tokenizer)
        expected = SpecialTokens([tokenizer.start_id], [tokenizer.end_id])
        if special != expected:
            around = f"{expected.prefix} before a text and {expected.suffix} after it"
            got = f"{special.prefix} and {special.suffix}"
            raise CheckpointError(published.folder / "tokenizer.json", "post_processor", around, got)
    return tokenizer


def _kind(folder: Path) -> Any:
    """The class of the tokenizer in a folder."""
    path = pathlib.Path(folder, "tokenizer.json")
    if path.is_file():
        model = read_json(path).get("model")
        name = model.get("type", "WordPiece") if isinstance(model, dict) else model
        if not isinstance(name, str) or name not in KINDS:
            raise DataError(path, None, f"model type: expected one of {', '.join(KINDS)}, got {brief(name)}")
        is_clip = isinstance(model, dict) and model.get("end_of_word_suffix") == SUFFIX
        return CLIPTokenizer if is_clip else KINDS[name]
    for name, kind in FILES.items():
        path = pathlib.Path(folder, name)
        if path.is_file():
            if kind is ByteLevelTokenizer and START in read_json(path):
                return CLIPTokenizer
            if kind is BERTTokenizer and ROLES["mask"] in path.read_text("utf-8").split("\n"):
                return ResidueTokenizer
            return kind
    raise DataError(folder, None, f"expected tokenizer.json or one of {', '.join(FILES)}, got none")


def read_huggingface_special_tokens(folder, tokenizer) -> SpecialTokens:
    """The ids that `transformers` adds before and after a text.

    They are in the folder's tokenizer.json. Without that file, and for the classes of T5 and mBART, they
    follow from the kind: <s> and </s> for byte-level tokenizers other than GPT-2's, </s> for SentencePiece,
    and a language token too for mBART. Raises CheckpointError for rules that are not supported.
    """
    published = Published(folder)
    options, has_file = published.options, bool(published.content)
    if options.get("add_bos_token") is True and not has_file:
        return SpecialTokens([tokenizer.start_id], [])
    if has_file and not published.ends_texts():
        return published.post_processor.around
    if isinstance(tokenizer, ByteLevelTokenizer) and tokenizer.mask_id is None:
        return SpecialTokens([], [])
    if not isinstance(tokenizer, SentencePieceTokenizer):
        return SpecialTokens([tokenizer.start_id], [tokenizer.end_id])
    languages = tokenizer.language_ids
    language = [languages[name] for name in [options.get("src_lang") or "en_XX"] if name in languages]
    if published.begins_with_language():
        return SpecialTokens(language, [tokenizer.end_id])
    return SpecialTokens([], [tokenizer.end_id, *language])


def refuse_other_pairs(folder: Path, tokenizer: Tokenizer, has_segments: bool) -> None:
    """Raise CheckpointError if the folder's tokenizer.json joins two texts by other tokens than `tokenizer`
    does or, for a model that `has_segments`, does not put the second one into segment 1.
    """
    published = Published(folder)
    expected = [tokenizer.start_id, "A", *tokenizer.between_ids, "B", tokenizer.end_id], 1
    pair: tuple[list, int]
    if published.joins_as_xlm_roberta():
        pair = [tokenizer.start_id, "A", tokenizer.end_id, tokenizer.end_id, "B", tokenizer.end_id], 0
    elif published.is_general and published.content:
        pair = published.post_processor[1:]
    else:
        return
    if pair[0] != expected[0] or (has_segments and pair != expected):
        layout, got = ("{} with segment {} for B".format(*x) for x in (expected, pair))
        path, wanted = published.folder / "tokenizer.json", f"pairs of texts as {layout}, or single texts"
        raise CheckpointError(path, "post_processor", wanted, got)
