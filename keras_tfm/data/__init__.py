"""Raw text to tf.data batches."""

from keras_tfm.data.sources import DataError, Pairs, read_lines, read_pairs
from keras_tfm.data.tokenizers import (
    SentencePieceTokenizer,
    Tokenizer,
    WordPieceTokenizer,
    load_tokenizer,
    train_tokenizer,
)

__all__ = [
    "DataError",
    "Pairs",
    "SentencePieceTokenizer",
    "Tokenizer",
    "WordPieceTokenizer",
    "load_tokenizer",
    "read_lines",
    "read_pairs",
    "train_tokenizer",
]
