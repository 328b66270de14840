"""How byte-level tokenizers split a text into words, whose bytes they then merge: one `WordRule` for each
published pattern, for TensorFlow's expressions and for the `tokenizers` library.

All patterns end in `\\s+(?!\\S)|\\s+`: of several spaces, the last one is left to what stands behind it.
RE2's expressions, which are TensorFlow's, cannot look ahead, so a mark is put before that last space first.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from keras_tfm.configs import brief
from keras_tfm.data.tokenizers.added import MARK, SPACE

# RE2 knows the characters of Unicode 15, and the library those of Unicode 16: what came between.
CAPITAL = r"\p{Lu}\p{Lt}\x{1c89}\x{a7cb}\x{a7cc}\x{a7da}\x{a7dc}\x{10d50}-\x{10d65}"
SMALL = r"\p{Ll}\x{1c8a}\x{a7cd}\x{a7db}\x{10d70}-\x{10d85}"
UNCASED = (
    r"\p{Lm}\p{Lo}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d4f}\x{10d6f}\x{10ec2}-\x{10ec4}\x{11380}-\x{11389}"
    r"\x{1138b}\x{1138e}\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{13460}-\x{143fa}"
    r"\x{16100}-\x{1611d}\x{16d40}-\x{16d6c}\x{18cff}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2ebf0}-\x{2ee5d}"
)
LETTER = CAPITAL + SMALL + UNCASED
ACCENT = (
    r"\p{M}\x{897}\x{10d69}-\x{10d6d}\x{10efc}\x{113b8}-\x{113c0}\x{113c2}\x{113c5}\x{113c7}-\x{113ca}"
    r"\x{113cc}-\x{113d0}\x{113d2}\x{113e1}\x{113e2}\x{11f5a}\x{1611e}-\x{1612f}\x{1e5ee}\x{1e5ef}"
)
NUMBER = (
    r"\p{N}\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{16130}-\x{16139}\x{16d70}-\x{16d79}"
    r"\x{1ccf0}-\x{1ccf9}\x{1e5f1}-\x{1e5fa}"
)
_MARK = rf"\x{{{ord(MARK):x}}}"
_SPACE_BUT_LINES = SPACE.replace(r"\n", "").replace(r"\r", "")
# The classes of characters in published patterns.
CLASSES = {
    r"\p{Lu}\p{Lt}": CAPITAL,
    r"\p{Ll}": SMALL,
    r"\p{Lm}\p{Lo}": UNCASED,
    r"\p{L}": LETTER,
    r"\p{M}": ACCENT,
    r"\p{N}": NUMBER,
    r"\s": SPACE,
}


class WordRule(NamedTuple):
    """A rule of splitting: its published `pattern`, which may be the library's `own`, GPT-2's, and the spaces
    that may be the `last` one before what is no space.
    """

    pattern: str
    last: str = _SPACE_BUT_LINES  # a break at the end of a run of spaces takes the whole run
    own: bool = False

    def split(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Strings (B,), without NUL and `MARK`, as words (B, None); nothing of a string is lost."""
        from keras_tfm.private.tensorflow_text import split

        border = f"([{SPACE}])([{self.last}][^{SPACE}])"
        strings = tf.strings.regex_replace(strings, border, r"\1" + MARK + r"\2")
        expression = _in_re2(self.pattern)
        words, *_ = split(strings, f"{expression}|{_MARK}", kept=expression)
        return words


@functools.cache
def _in_re2(pattern: str) -> str:
    """RE2's expression of the words of a published `pattern`, where marks stand before last spaces."""
    known = "|".join(map(re.escape, CLASSES))

    def of_class(match: re.Match[str]) -> str:
        text = re.sub(known, lambda name: CLASSES[name[0]], match[0])
        if not match[0].startswith("["):
            return f"[{text}]"
        return text.replace("[^", f"[^{_MARK}", 1)

    return re.sub(rf"\[[^]]*\]|{known}", of_class, pattern.replace(r"|\s+(?!\S)", ""))


_LAST = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_CHATS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_SIGNS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + _LAST
RULES = {
    "gpt2": WordRule(
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", SPACE, own=True
    ),
    "qwen2": WordRule(_CHATS + r"\p{N}" + _SIGNS),
    "llama3": WordRule(_CHATS + r"\p{N}{1,3}" + _SIGNS),
    # Mistral's since 2024: a capital behind a small letter begins a word.
    "tekken": WordRule(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _LAST
    ),
}


class Rules(NamedTuple):
    """What a byte-level tokenizer does with a text before it merges bytes.

    `split` names one of `RULES`, `normalizer` is None or "NFC", and with `ignore_merges` a word that is a
    token itself is that token, whatever its bytes would merge to.
    """

    split: str = "gpt2"
    normalizer: str | None = None
    ignore_merges: bool = False

    @classmethod
    def of(cls, entries: Mapping[str, Any]) -> "Rules":
        """The rules of their `entries` by name; ValueError for other ones."""
        rules = cls(**entries)
        allowed: dict[str, list] = {
            "split": [*RULES],
            "normalizer": [None, "NFC"],
            "ignore_merges": [False, True],
        }
        for name, values in allowed.items():
            if (value := getattr(rules, name)) not in values:
                raise ValueError(f"{name}: expected one of {values}, got {brief(value)}")
        if rules.split == "gpt2" and rules != cls():
            raise ValueError(f"rules: expected another split than GPT-2's beside {brief(entries)}")
        return rules

    @property
    def entries(self) -> dict[str, Any]:
        """What differs from GPT-2's rules, by name."""
        usual = Rules()._asdict()
        return {name: value for name, value in self._asdict().items() if value != usual[name]}


GPT2, QWEN2 = Rules(), Rules("qwen2", "NFC")


def read_rules(content: Mapping[str, Any], is_general: bool) -> Rules:
    """The rules of the content of a tokenizer.json; ValueError, naming it, for one that is not known.

    Unless `is_general`, the class of the tokenizer counts, and only the kind of pre-tokenizer is compared.
    """
    model, before = content["model"], content.get("pre_tokenizer") or {}
    parts = before.get("pretokenizers", []) if before.get("type") == "Sequence" else [before]
    kinds = " and ".join(str(part.get("type")) for part in parts)
    if model["type"] != "BPE" or kinds not in ("ByteLevel", "Split and ByteLevel"):
        raise ValueError(f"expected byte-level pairs, got {model['type']} of {kinds}")
    split, last = _split_of(parts), parts[-1]
    ignores = model.get("ignore_merges")
    refused = {
        name: model.get(name) for name in ("continuing_subword_prefix", "end_of_word_suffix", "dropout")
    }
    refused |= {"byte_fallback": model.get("byte_fallback")}
    if split == "gpt2":
        refused |= {"ignore_merges": ignores}
        if is_general:
            refused |= {"normalizer": content.get("normalizer"), "use_regex": not last.get("use_regex", True)}
        normalizer = None
    else:
        refused |= {name: last.get(name, True) for name in ("use_regex", "add_prefix_space")}
        normalizer = _normalizer_of(content.get("normalizer"))
    for name, value in refused.items():
        if value:
            raise ValueError(f"{name}: expected none, got {brief(value)}")
    return GPT2 if split == "gpt2" else Rules(split, normalizer, bool(ignores))


def _split_of(parts: list[Mapping[str, Any]]) -> str:
    """The name of the splitting rule in a list of pre-tokenizers that ends in ByteLevel."""
    if len(parts) == 1:
        return "gpt2"
    pattern = parts[0].get("pattern") or {}
    for name, rule in RULES.items():
        if not rule.own and pattern == {"Regex": rule.pattern}:
            how = parts[0].get("behavior"), parts[0].get("invert", False)
            if how != ("Isolated", False):
                raise ValueError(f"behavior and invert: expected 'Isolated' and False, got {brief(how)}")
            return name
    raise ValueError(f"pattern: expected one of {', '.join(RULES)}, got {pattern}")


def _normalizer_of(entry: Mapping[str, Any] | None) -> str | None:
    if entry is None:
        return None
    if entry == {"type": "NFC"}:
        return "NFC"
    raise ValueError(f"normalizer: expected none or NFC, got {brief(entry)}")


def use_rules(whole: Any, rules: Rules, prefix_space: bool) -> None:
    """Let a tokenizer of the `tokenizers` library, `whole`, normalise and split texts by the `rules`."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    rule = RULES[rules.split]
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=rule.own)
    whole.pre_tokenizer = bytes_of
    if not rule.own:
        words = pre_tokenizers.Split(Regex(rule.pattern), behavior="isolated")
        whole.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_of])
    if rules.normalizer is not None:
        whole.normalizer = normalizers.NFC()
