"""How byte-level tokenizers split a text into words, whose bytes they then merge: one `WordRule` for each
published pattern, for TensorFlow's expressions and for the `tokenizers` library.

All patterns end in `\\s+(?!\\S)|\\s+`: of several spaces, the last one is left to what stands behind it.
RE2's expressions, which are TensorFlow's, cannot look ahead, so a mark is put before that last space first.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from keras_tfm.configs import brief
from keras_tfm.data.tokenizers.added import MARK, SPACE

# RE2 knows the characters of Unicode 15, and the library those of Unicode 16: what came between.
LETTER = (
    r"\p{L}\x{1c89}\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65}"
    r"\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{11380}-\x{11389}\x{1138b}\x{1138e}\x{11390}-\x{113b5}\x{113b7}"
    r"\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{13460}-\x{143fa}\x{16100}-\x{1611d}\x{16d40}-\x{16d6c}\x{18cff}"
    r"\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2ebf0}-\x{2ee5d}"
)
NUMBER = (
    r"\p{N}\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{16130}-\x{16139}\x{16d70}-\x{16d79}"
    r"\x{1ccf0}-\x{1ccf9}\x{1e5f1}-\x{1e5fa}"
)
_MARK = rf"\x{{{ord(MARK):x}}}"
_SIGN = rf"[^{SPACE}{LETTER}{NUMBER}{_MARK}]"
_SPACE_BUT_LINES = SPACE.replace(r"\n", "").replace(r"\r", "")


class WordRule(NamedTuple):
    """A rule of splitting: its published `pattern`, or None for the library's own, GPT-2's; the expression of
    its `words` where marks stand before last spaces; and the spaces that may be such a `last` one.
    """

    pattern: str | None
    words: str
    last: str

    def split(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Strings (B,), without NUL and `MARK`, as words (B, None); nothing of a string is lost."""
        from keras_tfm.private.tensorflow_text import split

        border = f"([{SPACE}])([{self.last}][^{SPACE}])"
        strings = tf.strings.regex_replace(strings, border, r"\1" + MARK + r"\2")
        words, *_ = split(strings, f"{self.words}|{_MARK}", kept=self.words)
        return words


def _of_chats(numbers: str) -> tuple[str, str, str]:
    """The arguments of the rule with `numbers`, an expression that follows the sign of a class of digits."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        rf"{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    # Where a run of spaces ends in a line break, the break takes the whole run, and nothing is marked.
    words = (
        rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n{LETTER}{NUMBER}{_MARK}]?[{LETTER}]+|[{NUMBER}]{numbers}"
        rf"| ?{_SIGN}+[\r\n]*|[{SPACE}]*[\r\n]+|[{SPACE}]+"
    )
    return pattern, words, _SPACE_BUT_LINES


RULES = {
    "gpt2": WordRule(
        None, rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{LETTER}]+| ?[{NUMBER}]+| ?{_SIGN}+|[{SPACE}]+", SPACE
    ),
    "qwen2": WordRule(*_of_chats("")),
    "llama3": WordRule(*_of_chats("{1,3}")),
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
        if rule.pattern is not None and pattern == {"Regex": rule.pattern}:
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

    pattern = RULES[rules.split].pattern
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=pattern is None)
    whole.pre_tokenizer = bytes_of
    if pattern is not None:
        words = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        whole.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_of])
    if rules.normalizer is not None:
        whole.normalizer = normalizers.NFC()
