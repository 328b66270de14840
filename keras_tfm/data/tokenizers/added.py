"""Added tokens: strings that are looked for in a text before a tokenizer splits it, in a TensorFlow graph.

The rules are the `tokenizers` library's. Tokens that are not `normalized` are found in the text as it stands;
`normalized` tokens in the normalised texts between them. At each place the longest token is found. Then
tokens that should be whole words, but touch a letter, become text again, and white space beside a token that
strips it becomes part of that token.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_tfm.configs import brief
from keras_tfm.data.tokenizers.tokenizer import beside, merged

# White space according to Unicode; in TensorFlow's expressions \s matches only ASCII's.
SPACE = r"\t\n\v\f\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
# The library's \w, up to Unicode 15.
LETTERS = (
    r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}"
    r"\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}"
)
# TensorFlow's splitting ends at a NUL, so NUL replaces it while a text is split. It is a code point that is
# not a character, as is MARK, which byte pairs use; no text should contain them.
NUL, MARK = chr(0x10FFFE), chr(0x10FFFF)
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")  # in the order of tokenizer.json

# Ids (B, None) of texts (B,), and the same with the (start, end) bytes of each.
Tokenize = Callable[[tf.Tensor], tf.RaggedTensor]
Spans = tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]


class AddedToken(NamedTuple):
    """An added token and its id.

    `normalized` looks for the normalised `content` in the normalised text; `lstrip` and `rstrip` take the
    white space on that side into the token; `single_word` finds it only where no letter touches it. A token
    that is `special` stands for no text: models are not asked to predict it in the place of a word.

    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hi", "!"]
    >>> user = keras_tfm.data.AddedToken("<user>", token_id=7, rstrip=True)
    >>> keras_tfm.data.BERTTokenizer(pieces, added=[user]).tokenize(["<user> hi!"]).to_list()
    [[7, 5, 6]]
    """

    content: str
    token_id: int
    special: bool = False
    normalized: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False

    @property
    def entry(self) -> dict[str, Any]:
        """The token as tokenizer.json has it."""
        return {"id": self.token_id, "content": self.content} | {name: getattr(self, name) for name in FLAGS}

    @classmethod
    def of(cls, entry: Any, token_id: int | None = None) -> "AddedToken":
        """The token of an `entry` as in tokenizer.json, or itself; ValueError for anything else."""
        if isinstance(entry, AddedToken):
            return entry
        content = entry.get("content") if isinstance(entry, Mapping) else None
        token_id = entry.get("id") if content and token_id is None else token_id
        if not isinstance(content, str) or type(token_id) is not int:
            raise ValueError(f"added_tokens: expected an id and a content, got {brief(entry)}")
        flags = {name: entry.get(name, False) for name in FLAGS}
        flags["normalized"] = entry.get("normalized", not flags["special"])
        if wrong := {name: value for name, value in flags.items() if not isinstance(value, bool)}:
            raise ValueError(f"added_tokens: {content!r}: expected true or false, got {brief(wrong)}")
        return cls(content, token_id, **flags)


def special_tokens(names: Iterable[str], tokens: Sequence[str], **flags: bool) -> list[AddedToken]:
    """Special tokens that are found as they are spelled, with their ids among the `tokens`."""
    return [AddedToken(name, tokens.index(name), special=True, **flags) for name in dict.fromkeys(names)]


def in_order(added: Iterable[Any]) -> list[AddedToken]:
    """Added tokens, or their entries in tokenizer.json, as tokens in the order of their ids."""
    return sorted(map(AddedToken.of, added), key=lambda token: token.token_id)


def appended(added: Sequence[AddedToken], tokens: Sequence[str]) -> list[str]:
    """The `added` tokens whose ids follow the ids of `tokens`, in the order of their ids.

    Raises ValueError for a token that is listed twice, or whose id is not its own.
    """
    places = {token: number for number, token in enumerate(tokens)}
    if len({token.content for token in added}) < len(added):
        raise ValueError("added_tokens: expected each token once")
    for token in added:
        expected = places.setdefault(token.content, len(places))
        if token.token_id != expected:
            raise ValueError(
                f"added_tokens: {token.content!r}: expected the id {expected}, got {token.token_id}"
            )
    return list(places)[len(tokens) :]


class AddedTokens:
    """Finds added tokens in texts. `normalize` normalises a list of their contents, if a text is normalised.

    Raises ValueError for tokens that a graph cannot find as the library does.

    >>> from keras_tfm.data.tokenizers.added import AddedToken, AddedTokens
    >>> mask = AddedToken("<mask>", 7, special=True, lstrip=True)
    >>> lengths = lambda texts: tf.RaggedTensor.from_tensor(tf.strings.length(texts)[:, None])
    >>> AddedTokens([mask]).tokenize(tf.constant(["so <mask> be it"]), lengths).to_list()
    [[2, 7, 0, 6]]
    """

    def __init__(
        self, tokens: Iterable[AddedToken], normalize: Callable[[list[str]], list[str]] | None = None
    ):
        self.tokens = tuple(tokens)
        raw = [token for token in self.tokens if not token.normalized]
        later = [token for token in self.tokens if token.normalized]
        spelled = [token.content for token in later]
        spelled = normalize(spelled) if normalize and later else spelled
        self._raw = _Finder(raw, [token.content for token in raw]) if raw else None
        self._later = _Finder(later, spelled) if later else None

    def tokenize(
        self,
        strings: tf.Tensor,
        tokenize: Tokenize,
        normalize: Callable[[tf.Tensor], tf.Tensor] = lambda texts: texts,
    ) -> tf.RaggedTensor:
        """Ids (B, None), int32, of strings (B,) without NUL; `tokenize` reads the texts between the tokens.

        It is given normalised texts if some token is looked for in such, and should read them alike.
        """
        later = self._later
        between = tokenize if later is None else lambda texts: later.tokenize(normalize(texts), tokenize)
        return between(strings) if self._raw is None else self._raw.tokenize(strings, between)

    def tokenize_with_offsets(
        self,
        strings: tf.Tensor,
        tokenize: Callable[[tf.Tensor], Spans],
        normal: Callable[[tf.Tensor, Callable[[tf.Tensor], Spans]], Spans] = lambda texts, read: read(texts),
    ) -> Spans:
        """Ids, and the bytes (start, end) of each. `normal(texts, read)` is what `read` gives for normalised
        texts, with the offsets in `texts`.
        """
        later = self._later
        if later is None:
            between = tokenize
        else:
            between = lambda texts: normal(texts, lambda x: later.tokenize_with_offsets(x, tokenize))  # noqa: E731
        return between(strings) if self._raw is None else self._raw.tokenize_with_offsets(strings, between)


class _Finder:
    """Finds `tokens`, spelled as in `spelled`, in texts."""

    def __init__(self, tokens: list[AddedToken], spelled: list[str]):
        _check(tokens, spelled)
        with tf.init_scope():
            hashed = hashes(tf.constant(spelled)).numpy()
        order = np.argsort(hashed)
        self._hashes = hashed[order]
        ordered = [tokens[i] for i in order]
        self._ids = np.array([token.token_id for token in ordered], "int32")
        self._flags = {name: np.array([getattr(token, name) for token in ordered]) for name in FLAGS}
        self._strips = any(token.lstrip or token.rstrip for token in tokens)
        # In an expression the first alternative that matches is taken: the longest comes first.
        by_length = sorted(spelled, key=lambda text: len(text.encode()), reverse=True)
        self._pattern = "|".join(map(re.escape, by_length))

    def tokenize(self, strings: tf.Tensor, tokenize: Tokenize) -> tf.RaggedTensor:
        parts, is_token, place = self._parts(strings)
        if self._strips:
            parts, *_ = self._stripped(parts, is_token, place)
        token_ids = self._ids_at(is_token, place)
        texts = tf.where(token_ids >= 0, "", parts.flat_values)
        return merged(parts.with_flat_values(beside(one_each(token_ids, token_ids), tokenize(texts))))

    def tokenize_with_offsets(self, strings: tf.Tensor, tokenize: Callable[[tf.Tensor], Spans]) -> Spans:
        parts, is_token, place = self._parts(strings)
        parts, begins, ends = self._stripped(parts, is_token, place)
        token_ids = self._ids_at(is_token, place)
        found, *offsets = tokenize(tf.where(token_ids >= 0, "", parts.flat_values))  # (parts, pieces)
        base = tf.repeat(begins, found.row_lengths())
        inside = [x.with_flat_values(base + x.flat_values) for x in offsets]
        columns = zip((token_ids, begins, ends), (found, *inside), strict=True)
        token_ids, begins, ends = (
            merged(parts.with_flat_values(beside(one_each(x, token_ids), y))) for x, y in columns
        )
        return token_ids, begins, ends

    def _ids_at(self, is_token: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        """The id of each part (parts,), -1 for a text."""
        return tf.where(is_token, tf.gather(self._ids, place), -1)

    def _parts(self, strings: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """The parts (B, parts) of strings, and of each part whether it is a token and which one, (parts,)."""
        from keras_tfm.private.tensorflow_text import split

        parts, *_ = split(strings, self._pattern, kept=self._pattern)
        is_token = tf.strings.regex_full_match(parts.flat_values, self._pattern)
        place = tf.searchsorted(self._hashes, hashes(parts.flat_values))
        place = tf.minimum(place, len(self._ids) - 1)
        if self._flags["single_word"].any():
            parts, is_token, place = self._without_parts_of_words(parts, is_token, place)
        return parts, is_token, place

    def _stripped(self, parts, is_token, place) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """The parts without the white space that tokens beside them take, and of each its first byte and the
        one after its last, (parts,).
        """
        texts, is_first = parts.flat_values, first_of_rows(parts)
        is_last = tf.concat([is_first[1:], tf.ones_like(is_first[:1])], 0)
        sizes = tf.cast(tf.strings.length(texts), tf.int64)
        ends = tf.cumsum(sizes)
        row_begins = tf.gather(tf.concat([tf.zeros([1], tf.int64), ends], 0), parts.row_splits[:-1])
        ends -= tf.repeat(row_begins, parts.row_lengths())
        begins = ends - sizes
        # The token before a text takes white space first.
        for name, pattern, at_border, step in (
            ("rstrip", f"^[{SPACE}]+", is_first, 1),
            ("lstrip", f"[{SPACE}]+$", is_last, -1),
        ):
            if self._flags[name].any():
                strips = is_token & tf.gather(self._flags[name], place)
                beside = tf.roll(strips, step, 0) & ~at_border & ~is_token
                texts = tf.where(beside, tf.strings.regex_replace(texts, pattern, ""), texts)
                left = tf.cast(tf.strings.length(texts), tf.int64)
                taken = tf.where(is_token, tf.zeros_like(left), ends - begins - left)
                if name == "rstrip":
                    begins, ends = begins + taken, ends + tf.roll(taken, -1, 0)
                else:
                    begins, ends = begins - tf.roll(taken, 1, 0), ends - taken
        return parts.with_flat_values(texts), begins, ends

    def _without_parts_of_words(self, parts, is_token, place):
        """The same parts, where a token that should be a word and touches a letter belongs to the text."""
        texts, is_first = parts.flat_values, first_of_rows(parts)
        is_last = tf.concat([is_first[1:], tf.ones_like(is_first[:1])], 0)
        ends_with = tf.strings.regex_full_match(texts, f"(?s).*[{LETTERS}]")
        begins_with = tf.strings.regex_full_match(texts, f"(?s)[{LETTERS}].*")
        touched = (tf.roll(ends_with, 1, 0) & ~is_first) | (tf.roll(begins_with, -1, 0) & ~is_last)
        is_token &= ~(tf.gather(self._flags["single_word"], place) & touched)
        is_new = is_first | is_token | tf.roll(is_token, 1, 0)
        groups = tf.cumsum(tf.cast(is_new, tf.int64))
        splits = tf.gather(tf.concat([tf.zeros([1], tf.int64), groups], 0), parts.row_splits)
        texts = tf.strings.unsorted_segment_join(texts, groups - 1, splits[-1])
        parts = tf.RaggedTensor.from_row_splits(texts, splits, validate=False)
        return parts, tf.boolean_mask(is_token, is_new), tf.boolean_mask(place, is_new)


def _check(tokens: list[AddedToken], spelled: list[str]) -> None:
    """ValueError for tokens that a graph cannot find as the `tokenizers` library does."""
    for token, text in zip(tokens, spelled, strict=True):
        if not text:
            raise ValueError(f"added_tokens: {token.content!r}: nothing of it is left in a normalised text")
        if barred := [x for x in text if x in f"\0{NUL}{MARK}" or 0xD800 <= ord(x) < 0xE000]:
            raise ValueError(f"added_tokens: {token.content!r}: expected no U+{ord(barred[0]):04X} in it")
    names: dict[str, str] = {}
    for token, text in zip(tokens, spelled, strict=True):
        if names.setdefault(text, token.content) != token.content:
            raise ValueError(
                f"added_tokens: {names[text]!r} and {token.content!r} are one in a normalised text: "
                "remove one of the two"
            )
    blank = [x for x, text in zip(tokens, spelled, strict=True) if text.isspace() and x.lstrip]
    if blank and (greedy := [token for token in tokens if token.rstrip]):
        raise ValueError(
            f"added_tokens: {greedy[0].content!r} takes the white space behind it (rstrip), and "
            f"{blank[0].content!r} is white space that takes more of it (lstrip): remove one of the two"
        )


def first_of_rows(parts: tf.RaggedTensor) -> tf.Tensor:
    """Whether each part (parts,) is the first of its row."""
    starts = tf.boolean_mask(parts.row_splits[:-1], parts.row_lengths() > 0)[:, None]
    size = tf.size(parts.flat_values, tf.int64)
    return tf.scatter_nd(starts, tf.ones_like(starts[:, 0]), size[None]) > 0


def hashes(texts: tf.Tensor) -> tf.Tensor:
    """A number for each of the texts."""
    return tf.strings.to_hash_bucket_fast(texts, 2**62)


def one_each(values: tf.Tensor, token_ids: tf.Tensor) -> tf.RaggedTensor:
    """The values (parts,) of tokens as rows (parts, 1), and empty rows for texts, whose id is -1."""
    is_token = token_ids >= 0
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(values, is_token), tf.cast(is_token, tf.int64), validate=False
    )
