"""ESM-2's tokenizer (Lin et al. 2023): a token for each residue, as transformers' EsmTokenizer reads them."""

import json
import pathlib
import re
from collections.abc import Sequence

import tensorflow as tf

from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.tokenizers.published import Published, write_options
from keras_tfm.data.tokenizers.tokenizer import Tokenizer

ROLES = {"pad": "<pad>", "start": "<cls>", "end": "<eos>", "unknown": "<unk>", "mask": "<mask>"}
THEIRS = ("pad_token", "cls_token", "eos_token", "unk_token", "mask_token")  # in tokenizer_config.json
NAMES = dict(zip(THEIRS, ROLES.values(), strict=True))
SPACES = r"[\pZ\x09-\x0d\x1c-\x1f\x{85}]"  # at which Python splits
VOCABULARY = ("<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>")


class ResidueTokenizer(Tokenizer):
    """A token for each residue of a protein, and for each token that a text spells, "<mask>" for example.

    Upper-case letters are residues, B, U, Z, O and X too, "." and "-" gaps. What lies between tokens is split
    at white space, and each piece is unknown. `detokenize` puts nothing between tokens.

    Args:
        vocabulary: the tokens by id, by default ESM-2's.

    Raises:
        ValueError: if a special token is missing, or one occurs twice.

    >>> tokenizer = keras_tfm.data.ResidueTokenizer()
    >>> tokenizer.tokenize(["MKT<mask>", "M k"]).to_list()
    [[20, 15, 11, 32], [20, 3]]
    >>> tokenizer.detokenize([[20, 15, 11, tokenizer.end_id]]).numpy().tolist()
    [b'MKT']
    """

    blank = ROLES["mask"]

    def __init__(self, vocabulary: Sequence[str] = VOCABULARY):
        super().__init__(name="residue_tokenizer")
        vocabulary = tuple(vocabulary)
        missing = [token for token in ROLES.values() if token not in vocabulary]
        if missing or len({"", *vocabulary}) != 1 + len(vocabulary):
            raise ValueError(
                f"expected tokens, each once, with {', '.join(ROLES.values())}, got {list(vocabulary[:5])}"
            )
        self.vocabulary, self.vocabulary_size = vocabulary, len(vocabulary)
        self.pad_id, self.start_id, self.end_id, self.unknown_id, self.mask_id = map(
            vocabulary.index, ROLES.values()
        )
        self.special_ids = tuple(sorted(map(vocabulary.index, ROLES.values())))
        self.begins_word = tf.ones([self.vocabulary_size], tf.bool)
        self._pattern = "|".join(map(re.escape, sorted(vocabulary, key=len, reverse=True)))

    @classmethod
    def from_huggingface(cls, folder) -> "ResidueTokenizer":
        """Read a folder's vocab.txt; DataError if it is missing, and for special tokens that are spelled
        otherwise.
        """
        published = Published(folder)
        path = published.folder / "vocab.txt"
        if not path.is_file():
            raise DataError(folder, None, "expected vocab.txt, got none")
        for role, name in NAMES.items():
            if (token := published.role(role, name)) not in (name, None):
                raise DataError(folder, None, f"{role}: expected {name!r}, as in ESM-2, got {token!r:.80}")
        try:
            return cls([line.strip() for line in path.read_text("utf-8").splitlines()])
        except ValueError as error:
            raise DataError(path, None, str(error)) from error

    def save_huggingface(self, folder):
        """Write vocab.txt and tokenizer_config.json into `folder`, as `transformers` reads them."""
        pathlib.Path(folder, "vocab.txt").write_text("\n".join(self.vocabulary), "utf-8")
        write_options({"tokenizer_class": "EsmTokenizer", **NAMES}, folder)

    def save(self, folder, name: str = "tokenizer") -> pathlib.Path:
        path = pathlib.Path(folder, f"{name}.residues.json")
        path.write_text(json.dumps({"vocabulary": self.vocabulary}, ensure_ascii=False) + "\n", "utf-8")
        return path

    @property
    def tokens(self) -> list[str]:
        return list(self.vocabulary)

    @property
    def symbols(self) -> list[bytes]:
        """The bytes of each token."""
        return [token.encode() for token in self.vocabulary]

    def tokenize(self, strings) -> tf.RaggedTensor:
        strings = tf.strings.regex_replace(tf.convert_to_tensor(strings, tf.string), SPACES, " ")
        apart = tf.strings.regex_replace(strings, f"({self._pattern})", r" \1 ")
        pieces = tf.strings.split(apart)  # (B, tokens)
        is_it = pieces.flat_values[:, None] == tf.constant(self.vocabulary)
        ids = tf.argmax(is_it, axis=1, output_type=tf.int32)
        return pieces.with_flat_values(tf.where(tf.reduce_any(is_it, axis=1), ids, self.unknown_id))

    def _join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        spelled = tf.gather(tf.constant(self.vocabulary), token_ids.flat_values)
        return tf.strings.reduce_join(token_ids.with_flat_values(spelled), axis=-1)
