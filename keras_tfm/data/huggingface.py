"""The tokenizer of a folder of `transformers`, of whichever kind its files are."""

import pathlib
from typing import Any

from keras_tfm.data.bert_tokenizer import BERTTokenizer
from keras_tfm.data.byte_pairs import ByteLevelTokenizer
from keras_tfm.data.sources import DataError
from keras_tfm.data.tokenizers import SentencePieceTokenizer, Tokenizer
from keras_tfm.training.safetensors import read_json

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


def read_huggingface_tokenizer(folder) -> Tokenizer:
    """Tells the kind by the model in tokenizer.json, or else by which files there are.

    DataError where there is none or another kind; CheckpointError where a file is damaged.
    """
    path = pathlib.Path(folder, "tokenizer.json")
    if path.is_file():
        model = read_json(path).get("model")
        name = model.get("type", "WordPiece") if isinstance(model, dict) else model
        if name not in KINDS:
            raise DataError(path, None, f"model type: expected one of {', '.join(KINDS)}, got {name!r}")
        return KINDS[name].from_huggingface(folder)
    for name, kind in FILES.items():
        if pathlib.Path(folder, name).is_file():
            return kind.from_huggingface(folder)
    raise DataError(folder, None, f"expected tokenizer.json or one of {', '.join(FILES)}, got none")
