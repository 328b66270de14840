"""CLIP's tokenizer in a TensorFlow graph: byte pairs that know where a word ends (Radford et al. 2021).

A text is composed (NFC), lower-cased and split into words; white space is lost. Then the bytes of each word
are merged, the earliest merge first. The last byte of a word is a symbol of its own, spelled with "</w>"
after it. SentencePiece, which does the merging here (see `merges.py`), knows that symbol as one private
character. The authors' repair of broken text (ftfy, HTML) is left out, as in `transformers` 5.
"""

import functools
import json
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.configs import brief
from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.tokenizers.added import (
    FLAGS,
    NUL,
    SPACE,
    AddedToken,
    AddedTokens,
    Spans,
    appended,
    first_of_rows,
    in_order,
    special_tokens,
)
from keras_tfm.data.tokenizers.kernels import sentencepiece_kernel
from keras_tfm.data.tokenizers.merges import (
    NAMES,
    joined,
    merging_model,
    ranks_of,
    read_content,
    read_files,
)
from keras_tfm.data.tokenizers.offsets import at_source, composed, encoded_size, original_offsets
from keras_tfm.data.tokenizers.published import Published, write_options
from keras_tfm.data.tokenizers.tokenizer import Tokenizer, merged
from keras_tfm.data.tokenizers.unigram import require_size
from keras_tfm.serving.examples import refuse_single

START, END = "<|startoftext|>", "<|endoftext|>"
SUFFIX = "</w>"  # follows a byte that ends a word
LAST = dict(zip(NAMES, map(chr, range(0xE000, 0xE100)), strict=True))  # such bytes as private characters
SPELLED = r"<\|startoftext\|>|<\|endoftext\|>"
WORDS = rf"'s|'t|'re|'ve|'m|'ll|'d|\p{{L}}+|\p{{N}}|[^{SPACE}\p{{L}}\p{{N}}]+"
# The expression as published folders write it; some begin with the special tokens.
THEIR_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
NUM_SYMBOLS = 2 * len(NAMES) + 2  # the tokens that no merge makes: bytes, last bytes, start and end
SPLIT = f"{WORDS}|[{SPACE}]+"
ROLES = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": END}
# Whether a code point is white space; the last one stands for all others.
SPACES = np.array([chr(i).isspace() and not 0x1C <= i <= 0x1F for i in range(0x3002)])
OTHER_LENGTH = "İ"  # the only letter that lower-casing turns into several characters
OTHER_SIZE = len(OTHER_LENGTH.lower().encode())


class CLIPTokenizer(Tokenizer):
    """CLIP's byte-pair encoding of lower-cased words (Radford et al. 2021).

    "<|startoftext|>" and "<|endoftext|>" are start and end, and are recognised where a text spells them.
    `detokenize` puts one space between words.

    Args:
        tokens: the vocabulary by id, bytes spelled by GPT-2's characters, "</w>" at the end of a word.
        merges: pairs "a b", the earliest first, as in merges.txt.
        pad: the token that pads.
        added: the added tokens (`AddedToken`, or entries of tokenizer.json), by default start and end; tokens
            that are not in `tokens` follow it, in the order of their ids.

    Raises:
        ValueError: if a special token, a byte or the result of a merge is not in the vocabulary, or an added
            token has another id or cannot be found as the `tokenizers` library finds it.

    >>> tokenizer = keras_tfm.data.CLIPTokenizer.train(["a photo of a cat"] * 9, vocabulary_size=540)
    >>> tokenizer.detokenize(tokenizer.tokenize(["A  photo of a CAT"])).numpy().tolist()
    [b'a photo of a cat']
    """

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[str],
        pad: str = END,
        added: Iterable[AddedToken | Mapping] | None = None,
    ):
        super().__init__(name="clip_tokenizer")
        added = None if added is None else in_order(added)
        tokens, made = list(tokens), ranks_of(merges)
        tokens += appended(added or [], tokens)
        known = set(tokens)
        if len({"", *tokens}) != 1 + len(tokens) or not known.issuperset((START, END, pad)):
            needed = ", ".join(dict.fromkeys((START, END, pad)))
            raise ValueError(f"tokens: expected different ones, among them {needed}")
        symbols = {*NAMES, *(name + SUFFIX for name in NAMES)}
        if missing := {*symbols, *made}.union(*(merge.split(" ") for merge in merges)) - known:
            raise ValueError(
                f"tokens: expected every byte, alone and with {SUFFIX}, and all merged tokens; "
                f"{min(missing)!r} is missing"
            )
        plain = {START, END} | {token.content for token in added or ()} - {*symbols, *made}
        if surplus := known - {*symbols, *made, *plain, pad}:
            raise ValueError(f"tokens: expected a merge that gives {min(surplus)!r}, got none")
        usual = in_order(special_tokens((START, END), tokens))
        added = usual if added is None else added
        self.vocabulary_size = self.unknown_id = len(tokens)
        self.pad_id, self.start_id, self.end_id = map(tokens.index, (pad, START, END))
        self.special_ids = self.start_id, self.end_id
        self._added = AddedTokens(added, self._normal_contents)
        others = [token for token in added if token.content not in (START, END)]
        self._added_to_texts = AddedTokens(others, self._normal_contents)
        # Kept as text, since tf.Module wraps the lists among its attributes.
        content: dict[str, Any] = {"tokens": tokens, "merges": list(merges), "pad": pad}
        content |= {} if added == usual else {"added": [token.entry for token in added]}
        self._content = json.dumps(content, ensure_ascii=False)
        spelled = [token.encode() + b" " if token in plain else _spelling(token) for token in tokens]
        spelled = [
            b"" if token in (START, END) else text for token, text in zip(tokens, spelled, strict=True)
        ]
        self._spelled = np.array([*spelled, "\ufffd".encode()], object)
        self._sizes = np.array([len(text.removesuffix(b" ")) for text in spelled], "int64")
        self._names = np.array([name.encode() for name in (*NAMES, *LAST.values())], object)
        pieces = [token if token in plain else _private(token) for token in tokens]
        model = merging_model(pieces, {_private(name): rank for name, rank in made.items()})
        self._pieces = sentencepiece_kernel(model, tf.int32)

    @classmethod
    def train(cls, lines: Iterable[str], vocabulary_size: int = 8_000) -> "CLIPTokenizer":
        """Learn merges from `lines`; `vocabulary_size`, at least 514, is an upper bound."""
        import tokenizers

        require_size(vocabulary_size, least=NUM_SYMBOLS)
        model = _library_tokenizer(tokenizers.models.BPE(end_of_word_suffix=SUFFIX))
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocabulary_size,
            end_of_word_suffix=SUFFIX,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        refuse_single(lines, "lines")
        model.train_from_iterator(lines, trainer)
        learnt = json.loads(model.to_str())["model"]["merges"]
        merges = [" ".join(pair) for pair in learnt][: vocabulary_size - NUM_SYMBOLS]
        made = (merge.replace(" ", "") for merge in merges)
        tokens = dict.fromkeys((*NAMES, *(name + SUFFIX for name in NAMES), *made, START, END))
        return cls([*tokens], merges)

    @classmethod
    def from_huggingface(cls, folder) -> "CLIPTokenizer":
        """Read the tokenizer.json, or vocab.json and merges.txt, of a folder of `transformers`.

        tokenizer_config.json or special_tokens_map.json names the padding token, by default the end token.
        Raises DataError unless it is a tokenizer like CLIP's.
        """
        published = Published(folder)
        path = published.folder / "tokenizer.json"
        try:
            if path.exists():
                _check_rules(published.content)
                tokens, merges = read_content(published.content)
            else:
                path = published.folder
                tokens, merges = read_files(path / "vocab.json", path / "merges.txt")
            for role, name in ROLES.items():
                if (token := published.role(role, name)) not in (name, None) and role != "pad_token":
                    raise ValueError(f"{role}: expected {name!r}, got {brief(token)}")
            pad = published.role("pad_token") or END
            return cls(tokens, merges, pad, published.added(ROLES, tokens))
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            raise DataError(path, None, f"no tokenizer of CLIP's kind ({error})") from None

    def save_huggingface(self, folder):
        """Write tokenizer.json and tokenizer_config.json into `folder`, as `transformers` reads them."""
        import tokenizers

        content = self.content
        ids = {token: number for number, token in enumerate(content["tokens"])}
        pairs = [tuple(merge.split(" ")) for merge in content["merges"]]
        whole = _library_tokenizer(
            tokenizers.models.BPE(ids, pairs, unk_token=END, end_of_word_suffix=SUFFIX)
        )
        whole.decoder = tokenizers.decoders.ByteLevel()
        whole.post_processor = tokenizers.processors.RobertaProcessing(
            (END, self.end_id), (START, self.start_id), trim_offsets=False, add_prefix_space=False
        )
        for token in self.added:
            flags = {name: getattr(token, name) for name in FLAGS}
            whole.add_tokens([tokenizers.AddedToken(token.content, **flags)])
        whole.save(str(pathlib.Path(folder, "tokenizer.json")))
        options = {
            "tokenizer_class": "CLIPTokenizer",
            "bos_token": START,
            **dict.fromkeys(("eos_token", "unk_token"), END),
            "pad_token": content["pad"],
        }
        write_options(options, folder)

    @property
    def ordinary(self) -> tuple[str, ...]:
        return (START, END)

    @property
    def content(self) -> dict:
        """The constructor's arguments as JSON values."""
        return json.loads(self._content)

    @property
    def tokens(self) -> list[str]:
        return self.content["tokens"]

    @property
    def silent_ids(self) -> tuple[int, ...]:
        """Only the start: padding comes after the end, and the padding token may also occur in texts."""
        return (self.start_id,)

    def tokenize(self, strings) -> tf.RaggedTensor:
        strings = tf.convert_to_tensor(strings, tf.string)
        strings = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", replace_control_characters=False)
        strings = tf.strings.regex_replace(strings, r"\x00", NUL)
        return self._added.tokenize(strings, self._tokenize, self._normal)

    def tokenize_with_offsets(self, strings) -> Spans:
        # `tokenize` replaces NUL by a character of more bytes, which would shift the offsets. Here another
        # control character, of one byte, replaces it.
        strings = tf.strings.regex_replace(tf.convert_to_tensor(strings, tf.string), r"\x00", "\x01")
        return self._added_to_texts.tokenize_with_offsets(
            strings,
            lambda texts: self._normalized(texts, self._tokenize_small_with_offsets, squeezes=False),
            lambda texts, read: self._normalized(texts, read, squeezes=True),
        )

    def _normalized(self, strings, read: Callable[[tf.Tensor], Spans], squeezes: bool) -> Spans:
        """What `read` gives for normalised strings, in which one space stands for several if `squeezes`."""
        texts, sources = composed(strings)
        points, characters = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")  # (B, characters)
        codes, small = points.flat_values, self._small(texts)
        sizes = encoded_size(small_letters(codes))
        sizes = tf.where(codes == ord(OTHER_LENGTH), tf.constant(OTHER_SIZE, sizes.dtype), sizes)
        if squeezes:
            small = _squeezed(small)
            is_space = tf.gather(SPACES, tf.minimum(codes, len(SPACES) - 1))
            is_more = is_space & tf.roll(is_space, 1, 0) & ~first_of_rows(points)
            sizes = tf.where(is_space, tf.cast(~is_more, sizes.dtype), sizes)
        token_ids, starts, ends = read(small)
        lengths = tf.cast(tf.strings.length(texts), tf.int64)
        offsets = original_offsets(starts, ends, characters, points.with_flat_values(sizes), lengths)
        return token_ids, *(at_source(sources, x) for x in offsets)

    def _tokenize_small_with_offsets(self, texts) -> Spans:
        """The pieces of normalised texts."""
        from keras_tfm.private.tensorflow_text import split

        words, begins, _ = split(texts, SPLIT, WORDS)
        pieces = self._merge(words.flat_values)  # (words, pieces)
        widths = pieces.with_flat_values(tf.gather(tf.constant(self._sizes), pieces.flat_values))
        before = tf.cumsum(tf.reduce_sum(widths, axis=1), exclusive=True)  # (words,)
        base = tf.gather(begins.flat_values - before, pieces.value_rowids())
        ends = base + tf.cumsum(widths.flat_values)
        token_ids, starts, ends = (
            merged(words.with_flat_values(pieces.with_flat_values(x)))
            for x in (pieces.flat_values, ends - widths.flat_values, ends)
        )  # (B, pieces)
        return token_ids, starts, ends

    def normalize(self, strings) -> tf.Tensor:
        """Valid UTF-8 strings (B,), composed (NFC) and lower-cased."""
        from keras_tfm.private.tensorflow_text import tf_text

        return self._small(tf_text.normalize_utf8(strings, "NFC"))

    def _normal(self, strings) -> tf.Tensor:
        """The same with single spaces, as the library normalises a text."""
        return _squeezed(self.normalize(strings))

    def _normal_contents(self, contents: list[str]) -> list[str]:
        return [text.decode() for text in self._normal(contents).numpy()]

    def _small(self, strings) -> tf.Tensor:
        strings = tf.strings.regex_replace(strings, OTHER_LENGTH, OTHER_LENGTH.lower())
        points = tf.strings.unicode_decode(strings, "UTF-8")  # (B, characters)
        return tf.strings.unicode_encode(points.with_flat_values(small_letters(points.flat_values)), "UTF-8")

    def _tokenize(self, strings) -> tf.RaggedTensor:
        """Texts (B,) without added tokens and NUL, as ids (B, None)."""
        from keras_tfm.private.tensorflow_text import split

        words, *_ = split(self.normalize(strings), SPLIT, WORDS)
        token_ids = self._merge(tf.strings.regex_replace(words.flat_values, NUL, "\0"))
        return merged(words.with_flat_values(token_ids))

    def _merge(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Words (N,), none empty, as ids (N, None)."""
        letters = tf.strings.bytes_split(words)
        codes = tf.reshape(tf.io.decode_raw(letters.flat_values, tf.uint8, fixed_length=1), [-1])
        ends = letters.row_limits()[:, None] - 1
        is_last = tf.scatter_nd(ends, tf.ones_like(ends[:, 0], tf.int32), [tf.size(codes, tf.int64)])
        names = tf.gather(tf.constant(self._names), tf.cast(codes, tf.int32) + len(NAMES) * is_last)
        return self._pieces().tokenize(joined(letters.with_flat_values(names))) - 1

    def _join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        spelled = tf.gather(tf.constant(self._spelled), token_ids.flat_values)
        strings = joined(token_ids.with_flat_values(spelled))
        strings = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", replace_control_characters=False)
        return tf.strings.strip(strings)

    def save(self, folder, name: str = "tokenizer") -> pathlib.Path:
        path = pathlib.Path(folder, f"{name}.clip.json")
        path.write_text(self._content + "\n", "utf-8")
        return path


def _squeezed(texts: tf.Tensor) -> tf.Tensor:
    return tf.strings.regex_replace(texts, f"[{SPACE}]+", " ")


def _private(token: str) -> str:
    """A token as spelled for SentencePiece: a private character replaces the last byte of a word."""
    if not token.endswith(SUFFIX):
        return token
    begin = token.removesuffix(SUFFIX)
    return begin[:-1] + LAST[begin[-1]]


def _spelling(token: str) -> bytes:
    """The text of a token that merges make."""
    return bytes(map(NAMES.index, token.removesuffix(SUFFIX))) + b" " * token.endswith(SUFFIX)


def small_letters(points: tf.Tensor) -> tf.Tensor:
    """Each of the code points (N,) lower-cased by itself."""
    table = _table_of_small_letters()
    small = tf.gather(tf.constant(table), tf.minimum(points, len(table) - 1))
    return tf.where(points < len(table), small, points)


@functools.cache
def _table_of_small_letters() -> np.ndarray:
    """The lower-case form of every code point by itself, as in the `tokenizers` library.

    TensorFlow's own lower-casing writes final sigmas and depends on the user's locale.
    """
    points = np.arange(sys.maxunicode + 1, dtype="int32")
    for point in range(len(points)):
        small = chr(point).lower()
        if len(small) == 1:
            points[point] = ord(small)
    return points[: 1 + np.flatnonzero(points != np.arange(len(points)))[-1]]


def _library_tokenizer(model):
    """A tokenizer of the `tokenizers` library with CLIP's rules around `model`."""
    import tokenizers
    from tokenizers import normalizers, pre_tokenizers

    whole = tokenizers.Tokenizer(model)
    spaces = normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
    whole.normalizer = normalizers.Sequence([normalizers.NFC(), spaces, normalizers.Lowercase()])
    words = pre_tokenizers.Split(tokenizers.Regex(THEIR_WORDS), behavior="removed", invert=True)
    whole.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return whole


def _check_rules(content: Mapping) -> None:
    """ValueError unless the content of a tokenizer.json has CLIP's rules."""
    normalizer, splitter = content["normalizer"], content["pre_tokenizer"]
    steps = [rule["type"] for rule in normalizer["normalizers"]]
    splits = splitter["pretokenizers"]
    rules = {
        "end of words": (content["model"].get("end_of_word_suffix"), SUFFIX),
        "normalizer": (steps, ["NFC", "Replace", "Lowercase"]),
        "pre-tokenizer": ([rule["type"] for rule in splits], ["Split", "ByteLevel"]),
        "words": (splits[0]["pattern"].get("Regex", "").removeprefix(f"{SPELLED}|"), THEIR_WORDS),
    }
    for name, (value, expected) in rules.items():
        if value != expected:
            raise ValueError(f"{name}: expected {expected!r}, got {value!r}")
