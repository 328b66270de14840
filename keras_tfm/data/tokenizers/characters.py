"""Characters as tokens: a small vocabulary for small texts and small models."""

import collections
import json
import pathlib
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.serving.examples import refuse_single


class CharacterTokenizer(Tokenizer):
    """A token for each character, after the four special ones.

    Other characters are unknown, and `detokenize` writes them as U+FFFD; malformed UTF-8 counts as U+FFFD.

    Args:
        characters: the known characters, each once. Ids follow the order of their code points.

    Raises:
        ValueError: if there are no characters, or one occurs twice.

    >>> tokenizer = keras_tfm.data.CharacterTokenizer("abc")
    >>> tokenizer.tokenize(["cab"]).to_list()
    [[6, 4, 5]]
    >>> tokenizer.detokenize([[6, 4, 5, tokenizer.end_id]]).numpy().tolist()
    [b'cab']
    """

    def __init__(self, characters: str):
        super().__init__(name="character_tokenizer")
        if not characters or len(set(characters)) != len(characters):
            raise ValueError(f"characters: expected different ones, at least one, got {characters[:40]!r}")
        self._characters = "".join(sorted(characters))
        self._codes = np.array([ord(character) for character in self._characters], np.int32)
        special = [b"", b"", b"", "\ufffd".encode()]
        self._spelled = np.array([*special, *(character.encode() for character in self._characters)], object)
        self.vocabulary_size = len(self._spelled)

    @classmethod
    def train(cls, lines: Iterable[str], vocabulary_size: int = 8000) -> "CharacterTokenizer":
        """Take the characters of `lines`, at most as many as `vocabulary_size` allows, the most frequent."""
        refuse_single(lines, "lines")
        counts: collections.Counter[str] = collections.Counter()
        for line in lines:
            counts.update(line)
        return cls("".join(character for character, _ in counts.most_common(max(1, vocabulary_size - 4))))

    @property
    def tokens(self) -> list[str]:
        return ["[PAD]", "[START]", "[END]", "[UNK]", *self._characters]

    @property
    def symbols(self) -> list[bytes]:
        """The bytes of each token: the `symbols` of `generation.StopSequences`."""
        return self._spelled.tolist()

    def tokenize(self, strings) -> tf.RaggedTensor:
        codes = tf.strings.unicode_decode(tf.convert_to_tensor(strings, tf.string), "UTF-8")
        known = tf.constant(self._codes)
        place = tf.minimum(tf.searchsorted(known, codes.flat_values), len(self._codes) - 1)
        is_known = tf.gather(known, place) == codes.flat_values
        token_ids = tf.where(is_known, place + 4, self.unknown_id)
        return tf.RaggedTensor.from_row_splits(token_ids, codes.row_splits)

    def _join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        spelled = tf.gather(tf.constant(self._spelled), token_ids.flat_values)
        return tf.strings.reduce_join(token_ids.with_flat_values(spelled), axis=-1)

    def save(self, folder, name: str = "tokenizer") -> pathlib.Path:
        path = pathlib.Path(folder, f"{name}.characters.json")
        path.write_text(json.dumps({"characters": self._characters}, ensure_ascii=False) + "\n", "utf-8")
        return path
