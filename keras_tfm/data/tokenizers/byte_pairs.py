"""GPT-2's tokenizer in a TensorFlow graph: byte-level byte-pair encoding (Radford et al. 2019, section 2.2).

Any text is a sequence of bytes, so that nothing is unknown and `detokenize(tokenize(text)) == text`.
A text is first split into words (GPT-2's rule, `_WORDS`), whose bytes are then merged, the earliest
merge first (Sennrich et al. 2016).
"""

import json
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.tokenizers.merges import (
    NAMES,
    NUL,
    SPACE,
    in_order,
    joined,
    merging_model,
    ranks_of,
    read_content,
    read_files,
)
from keras_tfm.data.tokenizers.offsets import original_offsets
from keras_tfm.data.tokenizers.sentence_pieces import SharedModel
from keras_tfm.data.tokenizers.special import tokenize_parts
from keras_tfm.data.tokenizers.tokenizer import Tokenizer, merged
from keras_tfm.private.tensorflow_text import use_model
from keras_tfm.serving.examples import refuse_single
from keras_tfm.training.safetensors import read_json

END = "<|endoftext|>"
# If several spaces stand before a word, only the last one belongs to it. RE2's expressions cannot look ahead,
# so this mark is put before that space first. It is a code point that is not a character, so that no text
# should contain it.
_MARK = r"\x{10ffff}"
_LAST_SPACE = rf"([{SPACE}])([{SPACE}][^{SPACE}])"
_WORDS = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^{SPACE}\p{{L}}\p{{N}}{_MARK}]+|[{SPACE}]+"


class Special(NamedTuple):
    """The special tokens of a model family.

    If there is a `mask`, all of them are recognised where a text spells them, the mask together with the
    spaces before it. Otherwise no text yields them. `ends_between` is the number of end tokens between the
    two texts of a pair.
    """

    pad: str
    start: str
    end: str
    unknown: str
    mask: str | None = None
    ends_between: int = 1

    @property
    def names(self) -> list[str]:
        """The distinct tokens, in a fixed order."""
        return [name for name in dict.fromkeys(self[:5]) if name is not None]


KINDS = (
    Special("<pad>", "<s>", "</s>", "<unk>", "<mask>", ends_between=2),  # RoBERTa's
    Special("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"),  # DeBERTa's, version 1
    Special(END, END, END, END),  # GPT-2's
)


class ByteLevelTokenizer(Tokenizer):
    """Byte-level byte-pair encoding (Radford et al. 2019, section 2.2).

    No text is unknown, and `detokenize` restores it exactly. GPT-2's "<|endoftext|>" serves as padding, start
    and end. Malformed UTF-8 is read as U+FFFD, and written as U+FFFD where tokens yield it.

    Args:
        tokens: the vocabulary by id, bytes spelled by GPT-2's characters ("Ġ" is a space), as in vocab.json.
        merges: pairs "a b", the earliest first, as in merges.txt.

    Raises:
        ValueError: if a byte, a special token or the result of a merge is not in the vocabulary.

    >>> tokenizer = keras_tfm.data.ByteLevelTokenizer.train(["low lower lowest"] * 9, vocabulary_size=270)
    >>> token_ids = tokenizer.tokenize(["slower 🙂"])
    >>> tokenizer.detokenize(token_ids).numpy()[0].decode()
    'slower 🙂'
    """

    def __init__(self, tokens: Sequence[str], merges: Sequence[str]):
        super().__init__(name="byte_level_tokenizer")
        tokens, pairs = list(tokens), [tuple(merge.split(" ")) for merge in merges]
        known, made = set(tokens), ranks_of(merges)
        special = next((kind for kind in KINDS if known.issuperset(kind.names)), None)
        if len({"", *tokens}) != 1 + len(tokens) or special is None:
            kinds = " or ".join(", ".join(kind.names) for kind in KINDS)
            raise ValueError(f"tokens: expected different ones, among them {kinds}")
        if missing := {*NAMES, *made}.union(*pairs) - known:
            raise ValueError(
                f"tokens: expected every byte and all merged tokens; {min(missing)!r} is missing"
            )
        surplus = known - {*NAMES, *made}
        if special.mask is None and surplus != {END}:
            raise ValueError(f"tokens: expected a merge that gives {min(surplus - {END})!r}, got none")
        self.vocabulary_size = self.unknown_id = len(tokens)
        self.pad_id, self.start_id, self.end_id = map(tokens.index, special[:3])
        self.blank = special.mask
        self.mask_id = None if special.mask is None else tokens.index(special.mask)
        self.special_ids = tuple(i for i, token in enumerate(tokens) if token in surplus)
        self.begins_word = tf.constant([token.startswith("Ġ") for token in tokens])
        self._special = special
        self._role_ids = tuple(tokens.index(name) for name in special.names)
        mask = f"[{SPACE}]*{re.escape(str(special.mask))}"
        self._pattern = "|".join([*map(re.escape, special[:4]), mask])
        # Kept as text, since tf.Module wraps the lists among its attributes.
        self._content = json.dumps({"tokens": tokens, "merges": list(merges)}, ensure_ascii=False)
        byte_of = {name: bytes([byte]) for byte, name in enumerate(NAMES)}
        silent = special[:3]
        spelled = [
            b"" if t in silent else t.encode() if t in surplus else b"".join(byte_of[name] for name in t)
            for t in tokens
        ]
        self._spelled = np.array([*spelled, "\ufffd".encode()], object)
        self._names = np.array([name.encode() for name in NAMES], object)
        model = merging_model(tokens, made)
        self._pieces = tf_text.SentencepieceTokenizer(model=model, out_type=tf.int32)
        use_model(self._pieces, SharedModel(model))

    @classmethod
    def train(cls, lines: Iterable[str], vocabulary_size: int = 8000) -> "ByteLevelTokenizer":
        """Learn merges from `lines`; `vocabulary_size`, at least 257, is an upper bound."""
        import tokenizers  # imported here, since only training needs it

        if vocabulary_size < 257:
            raise ValueError(f"vocabulary_size: expected at least 257, got {vocabulary_size}")
        model = tokenizers.Tokenizer(tokenizers.models.BPE())
        model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocabulary_size,
            special_tokens=[END],
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        refuse_single(lines, "lines")
        model.train_from_iterator(lines, trainer)
        learnt = json.loads(model.to_str())["model"]
        return cls(in_order(learnt["vocab"]), [" ".join(pair) for pair in learnt["merges"]])

    @classmethod
    def from_files(cls, vocabulary, merges) -> "ByteLevelTokenizer":
        """Read a vocab.json {token: id} and a merges.txt; ValueError for other content."""
        return cls(*read_files(vocabulary, merges))

    @classmethod
    def from_huggingface(cls, folder) -> "ByteLevelTokenizer":
        """Read the tokenizer.json, or vocab.json and merges.txt, of a folder of `transformers`.

        Raises DataError unless it is a byte-level tokenizer like GPT-2's.
        """
        path = pathlib.Path(folder, "tokenizer.json")
        if not path.exists():
            paths = (pathlib.Path(folder, name) for name in ("vocab.json", "merges.txt"))
            try:
                return cls.from_files(*paths)
            except (ValueError, OSError) as error:
                raise DataError(folder, None, f"no tokenizer of GPT-2's kind ({error})") from None
        try:
            content = read_json(path)
            model, splitting = content["model"], content["pre_tokenizer"]
            if model["type"] != "BPE" or splitting["type"] != "ByteLevel" or splitting["add_prefix_space"]:
                raise ValueError(f"expected byte-level pairs, got {model['type']} of {splitting['type']}")
            return cls(*read_content(content))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(path, None, f"no tokenizer of GPT-2's kind ({error})") from None

    def save_huggingface(self, folder, add_start: bool = False):
        """Write tokenizer.json and tokenizer_config.json into `folder`, as `transformers` reads them.

        With `add_start` a text begins with the start token. Tokenizers with a mask token always put the start
        and the end token around it.
        """
        import tokenizers

        content = json.loads(self._content)
        tokens = content["tokens"]
        ids = {token: number for number, token in enumerate(tokens)}
        pairs = [tuple(merge.split(" ")) for merge in content["merges"]]
        whole = tokenizers.Tokenizer(tokenizers.models.BPE(ids, pairs))
        whole.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        whole.decoder = tokenizers.decoders.ByteLevel()
        special = self._special
        whole.add_special_tokens(
            [
                tokenizers.AddedToken(name, special=True, normalized=False, lstrip=name == special.mask)
                for name in special.names
            ]
        )
        start, end = ((name, tokens.index(name)) for name in (special.start, special.end))
        if special.mask is not None:
            between = " ".join([special.end] * special.ends_between)
            whole.post_processor = tokenizers.processors.TemplateProcessing(
                single=f"{special.start} $A {special.end}",
                pair=f"{special.start} $A {between} $B {special.end}",
                special_tokens=[start, end],
            )
        elif add_start:
            whole.post_processor = tokenizers.processors.TemplateProcessing(
                single=f"{special.start} $A", pair=f"{special.start} $A $B", special_tokens=[start]
            )
        whole.save(str(pathlib.Path(folder, "tokenizer.json")))
        path = pathlib.Path(folder, "tokenizer_config.json")
        options = _transformers_names(special) | ({"add_bos_token": True} if add_start else {})
        path.write_text(json.dumps(options, indent=2) + "\n", "utf-8")

    def tokenize_words(self, words) -> tf.RaggedTensor:
        return self.tokenize(tf.strings.join([" ", words]))

    @property
    def between_ids(self) -> tuple[int, ...]:
        """The ids between the two texts of a pair: two end tokens for RoBERTa."""
        return (self.end_id,) * self._special.ends_between

    @property
    def content(self) -> dict[str, list[str]]:
        """The constructor's arguments as JSON values."""
        return json.loads(self._content)

    @property
    def special_tokens(self) -> list[str]:
        """The distinct special tokens: padding, start, end, unknown and the mask."""
        return self._special.names

    @property
    def tokens(self) -> list[str]:
        """The tokens by id; bytes are shown as characters where they form whole ones."""
        names = []
        for name, spelled in zip(self.content["tokens"], self.symbols, strict=True):
            text = spelled.decode("utf-8", "replace").replace(" ", "Ġ")
            names.append(text if text.isprintable() and "\ufffd" not in text else name)
        return names

    @property
    def symbols(self) -> list[bytes]:
        """The bytes of each token: the `symbols` of `generation.StopSequences`."""
        return self._spelled[:-1].tolist()

    def tokenize(self, strings) -> tf.RaggedTensor:
        strings = tf.convert_to_tensor(strings, tf.string)
        strings = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", replace_control_characters=False)
        strings = tf.strings.regex_replace(strings, r"\x00", NUL)
        if self.mask_id is None:
            return self._tokenize(strings)
        return tokenize_parts(strings, self._pattern, self._special.names, self._role_ids, self._tokenize)

    def tokenize_with_offsets(self, strings) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        strings = tf.convert_to_tensor(strings, tf.string)
        # The two marks are replaced by a character of the same number of bytes, so that offsets stay right.
        texts = tf.strings.regex_replace(strings, f"{_MARK}|{NUL}", chr(0x10FFFD))
        token_ids = self._tokenize(tf.strings.regex_replace(texts, r"\x00", NUL))
        sizes = tf.constant([len(x) for x in self._spelled], tf.int64)
        sizes = token_ids.with_flat_values(tf.gather(sizes, token_ids.flat_values))
        before = tf.cumsum(tf.reduce_sum(sizes, axis=1), exclusive=True)  # (B,)
        ends = sizes.with_flat_values(tf.cumsum(sizes.flat_values) - tf.gather(before, sizes.value_rowids()))
        _, characters = tf.strings.unicode_decode_with_offsets(strings, "UTF-8")  # (B, characters)
        lengths = tf.cast(tf.strings.length(strings), tf.int64)
        widths = tf.concat([characters, lengths[:, None]], axis=1)[:, 1:] - characters
        return token_ids, *original_offsets(ends - sizes, ends, characters, widths, lengths)

    def _tokenize(self, strings) -> tf.RaggedTensor:
        """Texts (B,) without special tokens and NUL, as ids (B, None)."""
        strings = tf.strings.regex_replace(strings, _LAST_SPACE, r"\1" + chr(0x10FFFF) + r"\2")
        words = tf_text.regex_split(strings, f"{_WORDS}|{_MARK}", keep_delim_regex_pattern=_WORDS)
        letters = tf.strings.bytes_split(tf.strings.regex_replace(words.flat_values, NUL, "\0"))
        letters = letters.with_flat_values(self._spell(letters.flat_values))
        token_ids = self._pieces.tokenize(joined(letters)) - 1
        return merged(words.with_flat_values(token_ids))

    def _spell(self, letters):
        """GPT-2's names of single bytes (N,)."""
        codes = tf.reshape(tf.io.decode_raw(letters, tf.uint8, fixed_length=1), [-1])
        return tf.gather(tf.constant(self._names), tf.cast(codes, tf.int32))

    def _join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        spelled = tf.gather(tf.constant(self._spelled), token_ids.flat_values)
        strings = joined(token_ids.with_flat_values(spelled))
        return tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", replace_control_characters=False)

    def save(self, folder, name: str = "tokenizer") -> pathlib.Path:
        path = pathlib.Path(folder, f"{name}.bytes.json")
        path.write_text(self._content + "\n", "utf-8")
        return path


def _transformers_names(special: Special) -> dict:
    """The content of tokenizer_config.json."""
    if special.mask is None:
        names = dict.fromkeys(("bos_token", "eos_token", "unk_token"), END)
        return {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, **names}
    names = {"pad_token": special.pad, "unk_token": special.unknown, "mask_token": special.mask}
    names |= dict.fromkeys(("bos_token", "cls_token"), special.start)
    names |= dict.fromkeys(("eos_token", "sep_token"), special.end)
    return {"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": False, **names}
