"""BERT's normalisation as a table: the characters that replace each character.

Devlin et al. 2019, with the rules of the `tokenizers` library. The table follows Python's Unicode data. The
library's data is older: some 500 of 282,000 characters differ, punctuation that was assigned later.
"""

import bisect
import functools
import unicodedata

import numpy as np

NUM_CHARACTERS = 0x323B0  # above it only tags and variation selectors are assigned, and private planes
TAGS = range(0xE0000, 0xE0200)  # tags and variation selectors
PRIVATE = 0xF0000  # where the planes for private use begin
# The blocks of Chinese characters in the original code: where each begins and ends. One begins there at
# 2B920, although Unicode's block begins at 2B820.
HAN = (
    0x3400, 0x4DC0, 0x4E00, 0xA000, 0xF900, 0xFB00, 0x20000, 0x2A6E0,
    0x2A700, 0x2B740, 0x2B740, 0x2B820, 0x2B920, 0x2CEB0, 0x2F800, 0x2FA20,
)  # fmt: skip


@functools.cache
def characters(
    lowercase: bool, strip_accents: bool, han: bool = True, marks: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The replacements of all characters as (values, lengths) of rows.

    There is a row for each code point below `NUM_CHARACTERS`, then one for each of the `TAGS`, and an empty
    one for all of private use. Spaces are put around Chinese characters if `han`, and around punctuation if
    `marks`.
    """
    rows = [
        [] if 0xD800 <= i < 0xE000 else _normal(chr(i), lowercase, strip_accents, han, marks)
        for i in (*range(NUM_CHARACTERS), *TAGS)
    ]
    rows.append([])
    lengths = np.array([len(row) for row in rows], "int64")
    return np.array([value for row in rows for value in row], "int32"), lengths


def _normal(character: str, lowercase: bool, strip_accents: bool, han: bool, marks: bool) -> list[int]:
    category = unicodedata.category(character)
    is_han = han and _is_han(character)
    if category in ("Lo", "Cn") and unicodedata.is_normalized("NFD", character):
        # Most characters have neither case nor accents, so that nothing else changes them.
        return [32, ord(character), 32] if is_han else [ord(character)]
    if character in "\t\n\r" or category.startswith("Z"):
        return [32]
    if category in ("Cc", "Cf", "Co") or character == "\ufffd":
        return []
    text = character
    if strip_accents:
        text = "".join(x for x in unicodedata.normalize("NFD", text) if unicodedata.category(x) != "Mn")
    if lowercase:
        text = "".join(x.lower() for x in text)
    apart = [x for x in text if is_han or (marks and _is_mark(x))]
    return [ord(y) for x in text for y in (f" {x} " if x in apart else x)]


def _is_mark(character: str) -> bool:
    is_ascii_mark = character.isascii() and character.isprintable() and not character.isalnum()
    return (is_ascii_mark and character != " ") or unicodedata.category(character).startswith("P")


def stands_alone(character: str) -> bool:
    """Whether a normalised character is always a word of its own: punctuation, or a Chinese character."""
    return _is_mark(character) or _is_han(character)


def _is_han(character: str) -> bool:
    return bisect.bisect(HAN, ord(character)) % 2 == 1
