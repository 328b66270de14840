"""Conversion of tokenizers from and to KerasHub; this package's tokenizers also work in SavedModels and
return offsets.

Both sides use the same vocabulary and merges, or SentencePiece model, and return the same ids in a graph, for
example in `tf.data`, with rare exceptions: KerasHub's byte pairs split unusual white space differently from
GPT-2's, its WordPiece folds case where BERT's lower-cases, and there a word is unknown from 101 bytes on, not
101 characters. Outside a graph, KerasHub 0.32 splits text for byte pairs as Llama 3 does, whatever the model:
long numbers, and punctuation before words, get other ids.
"""

from typing import Any

import tensorflow as tf

from keras_tfm.data.tokenizers.bert import BERTTokenizer
from keras_tfm.data.tokenizers.byte_pairs import END, ByteLevelTokenizer
from keras_tfm.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer

# The only supported values of these attributes of KerasHub's tokenizers.
RULES = {
    "sequence_length": None, "split": True, "split_on_cjk": True, "suffix_indicator": "##",
    "oov_token": "[UNK]", "add_prefix_space": False, "add_bos": False, "add_eos": False,
}  # fmt: skip
# Texts of which both sides must return the same ids.
PROBES = ("The quick brown fox didn't jump over 13 lazy dogs.", " (so  it seems) ", "naïve\ncafé, 東京", "")


def from_keras_hub(tokenizer: Any) -> Tokenizer:
    """The tokenizer of this package with the ids of a KerasHub tokenizer.

    Args:
        tokenizer: a `WordPieceTokenizer` with BERT's special tokens, a `BytePairTokenizer` of GPT-2, RoBERTa
            or DeBERTa, or a `SentencePieceTokenizer`.

    Raises:
        TypeError: for another kind.
        ValueError: if the ids would differ: for other special tokens, other rules than `RULES`, or other ids
            of a text in `PROBES`.

    >>> import keras_hub
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat"]
    >>> tokenizer = keras_tfm.data.from_keras_hub(keras_hub.tokenizers.BertTokenizer(pieces, lowercase=True))
    >>> tokenizer.tokenize(["a cat"]).to_list()
    [[5, 6]]
    """
    from keras_hub import tokenizers

    for rule, expected in RULES.items():
        if (got := getattr(tokenizer, rule, expected)) != expected:
            raise ValueError(f"tokenizer: expected `{rule}` {expected!r}, got {got!r}")
    ours: Tokenizer
    if isinstance(tokenizer, tokenizers.WordPieceTokenizer):
        ours = BERTTokenizer(tokenizer.get_vocabulary(), tokenizer.lowercase, tokenizer.strip_accents)
    elif isinstance(tokenizer, tokenizers.BytePairTokenizer):
        ids = dict(tokenizer.vocabulary)
        if sorted(ids.values()) != list(range(len(ids))):
            raise ValueError("tokenizer: expected a vocabulary with the ids 0, 1, ... each once")
        merges = [merge for merge in tokenizer.merges if not merge.startswith("#version")]
        ours = ByteLevelTokenizer(sorted(ids, key=ids.__getitem__), merges)
    elif isinstance(tokenizer, tokenizers.SentencePieceTokenizer):
        ours = SentencePieceTokenizer(tokenizer.proto)
    else:
        known = "WordPieceTokenizer, BytePairTokenizer or SentencePieceTokenizer"
        raise TypeError(f"tokenizer: expected a {known} of keras_hub, got a {type(tokenizer).__name__}")
    _require_same_ids(ours, tokenizer)
    return ours


def to_keras_hub(tokenizer: Tokenizer) -> Any:
    """The KerasHub tokenizer with the ids of a tokenizer of this package.

    It is a `BertTokenizer`, `GPT2Tokenizer`, `RobertaTokenizer`, `BytePairTokenizer` or
    `SentencePieceTokenizer`. Raises TypeError for a kind that KerasHub does not have, such as the lossless
    models of `SentencePieceTokenizer.train`.

    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat"]
    >>> tokenizer = keras_tfm.data.to_keras_hub(keras_tfm.data.BERTTokenizer(pieces))
    >>> tokenizer("a cat").tolist()
    [5, 6]
    """
    from keras_hub import tokenizers

    if isinstance(tokenizer, ByteLevelTokenizer) and "rules" in tokenizer.content:
        raise TypeError(f"KerasHub splits by GPT-2's rules, got {tokenizer.content['rules']}.")
    added = tokenizer.added if isinstance(tokenizer, BERTTokenizer | ByteLevelTokenizer) else ()
    if more := [token.content for token in added if token.content not in tokenizer.ordinary]:
        raise TypeError(f"KerasHub finds no added tokens, got {more[0]!r}.")
    if isinstance(tokenizer, BERTTokenizer):
        strips = tokenizer.lowercase if tokenizer.strip_accents is None else tokenizer.strip_accents
        theirs = tokenizers.BertTokenizer(
            tokenizer.vocabulary, tokenizer.lowercase, strip_accents=strips, special_tokens_in_strings=True
        )
    elif isinstance(tokenizer, ByteLevelTokenizer):
        ids = {token: number for number, token in enumerate(tokenizer.content["tokens"])}
        merges, special = tokenizer.content["merges"], tokenizer.special_tokens
        if END in special:
            theirs = tokenizers.GPT2Tokenizer(ids, merges)
        elif "<s>" in special:
            theirs = tokenizers.RobertaTokenizer(ids, merges)
        else:
            theirs = tokenizers.BytePairTokenizer(ids, merges, unsplittable_tokens=special)
    elif isinstance(tokenizer, SentencePieceTokenizer) and not tokenizer.is_lossless:
        theirs = tokenizers.SentencePieceTokenizer(tokenizer.model)
    else:
        raise TypeError(f"KerasHub knows no {type(tokenizer).__name__} of this kind.")
    _require_same_ids(tokenizer, theirs)
    return theirs


def _require_same_ids(ours, theirs):
    """Raise ValueError, naming the text, if the two return different ids in a graph for one of `PROBES`."""
    others = tf.data.Dataset.from_tensor_slices(list(PROBES)).map(theirs.tokenize)
    for text, mine, other in zip(PROBES, ours.tokenize(list(PROBES)).to_list(), others, strict=True):
        if mine != (other := other.numpy().tolist()):
            raise ValueError(f"The tokenizers spell {text!r} differently: ours {mine}, KerasHub's {other}.")
