"""The special tokens of byte-level tokenizers: whose they are, and what published folders say of them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from keras_tfm.configs import brief
from keras_tfm.data.tokenizers.added import AddedToken, in_order, special_tokens
from keras_tfm.data.tokenizers.published import Published
from keras_tfm.data.tokenizers.splitting import GPT2, Rules

END = "<|endoftext|>"


class Special(NamedTuple):
    """The special tokens of a model family.

    If there is a `mask`, all of them are recognised where a text spells them, by default the mask together
    with the spaces before it. Otherwise no text yields those of GPT-2. `ends_between` is the number of end
    tokens between the two texts of a pair.
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


ROLES = {
    "pad": "pad_token",
    "start": "bos_token",
    "end": "eos_token",
    "unknown": "unk_token",
    "mask": "mask_token",
}
KINDS = (
    Special("<pad>", "<s>", "</s>", "<unk>", "<mask>", ends_between=2),  # RoBERTa's
    Special("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"),  # DeBERTa's, version 1
    Special(END, END, END, END),  # GPT-2's
)


def special_of(tokens: set[str], roles: Mapping[str, str], rules: Rules) -> Special:
    """The special tokens of a vocabulary and of `roles` beside it; ValueError if some are missing.

    A tokenizer that splits by other rules than GPT-2's has no usual ones: its `roles` state at least its end,
    which also stands for those that they leave out.
    """
    if rules != GPT2:
        if "end" not in roles or not set(roles) <= {"pad", "start", "end", "unknown"}:
            raise ValueError(f"roles: expected end, and at most pad, start and unknown, got {[*roles]}")
        if missing := {*roles.values()} - tokens:
            raise ValueError(f"tokens: expected {min(missing)!r}, which has a role, among them")
        end = roles["end"]
        return Special(roles.get("pad", end), roles.get("start", end), end, roles.get("unknown", end))
    special = next((kind for kind in KINDS if tokens.issuperset(kind.names)), None)
    if special is None:
        kinds = " or ".join(", ".join(kind.names) for kind in KINDS)
        raise ValueError(f"tokens: expected different ones, among them {kinds}")
    for role, token in roles.items():
        if special.mask is not None or role not in ("pad", "start", "end", "unknown") or token not in tokens:
            raise ValueError(f"{ROLES.get(role, role)}: expected {special.names}, got {token!r}")
    return Special(**{**special._asdict(), **roles})


def usual_added(special: Special, tokens: list[str], rules: Rules) -> list[AddedToken]:
    """The added tokens of a kind: its special ones, if a text may yield them."""
    if rules != GPT2:
        return in_order(special_tokens(special.names, tokens))
    if special.mask is None:
        return []
    names = [name for name in special.names if name != special.mask]
    return in_order(special_tokens(names, tokens) + special_tokens([special.mask], tokens, lstrip=True))


def published_options(published: Published, tokens: Sequence[str], rules: Rules) -> dict[str, Any]:
    """The options of a `ByteLevelTokenizer` that the files of a folder state, beside its `tokens`."""
    if rules != GPT2:
        return _options_of_roles(published, tokens) | {"rules": rules.entries}
    kind = next((kind for kind in KINDS if {*kind.names}.issubset(tokens)), KINDS[-1])
    roles = {name: getattr(kind, role) for role, name in ROLES.items()}
    roles |= {"cls_token": kind.start, "sep_token": kind.end}
    roles = {name: token for name, token in roles.items() if token is not None}
    if kind.mask is None:
        roles = dict.fromkeys(("bos_token", "eos_token", "unk_token"), END)
    added = published.added(roles, tokens)
    if kind.mask is None:  # no text yields GPT-2's own
        added = [token for token in added if token.content != END]
    stated = {role: published.role(name) for role, name in ROLES.items()}
    if kind.mask is not None:
        for name, expected in (("cls_token", kind.start), ("sep_token", kind.end)):
            if (token := published.role(name)) not in (None, expected):
                raise ValueError(f"{name}: expected {expected!r}, got {token!r}")
    return {
        "added": added,
        "prefix_space": published.adds_prefix_space(),
        "roles": {role: token for role, token in stated.items() if token not in (None, getattr(kind, role))},
    }


def _options_of_roles(published: Published, tokens: Sequence[str]) -> dict[str, Any]:
    """The same for a tokenizer whose special tokens are those that the files name."""
    usual = dict.fromkeys(("eos_token", "pad_token", "unk_token"), END) if published.splits_as_qwen2() else {}
    added = published.added(usual, tokens)
    names = {number: token for number, token in enumerate(tokens)} | {x.token_id: x.content for x in added}
    roles = {role: published.role(name, usual.get(name)) for role, name in ROLES.items() if role != "mask"}
    if roles["end"] is None and (end_id := published.end_token_id()) is not None:
        roles["end"] = names.get(end_id)
    before, _ = published.post_processor.around
    if roles["start"] is None and before:
        roles["start"] = names.get(before[0])
    if roles["end"] is None:
        raise ValueError("eos_token: expected what ends a text, here or as eos_token_id, got none")
    if not published.is_general and (space := published.options.get("add_prefix_space")):
        raise ValueError(f"add_prefix_space: expected none, got {brief(space)}")
    return {"added": added, "roles": {role: token for role, token in roles.items() if token is not None}}


def transformers_names(special: Special, roles: Mapping[str, str], rules: Rules) -> dict:
    """The names in tokenizer_config.json."""
    if rules != GPT2:
        names = {name: roles.get(role) for role, name in ROLES.items() if role != "mask"}
        return {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    names = {"bos_token": special.start, "eos_token": special.end, "unk_token": special.unknown}
    if special.mask is None:
        pad = {} if special.pad == END else {"pad_token": special.pad}
        return {"tokenizer_class": "GPT2Tokenizer", **names, **pad}
    names |= {"pad_token": special.pad, "mask_token": special.mask}
    names |= {"cls_token": special.start, "sep_token": special.end}
    return {"tokenizer_class": "PreTrainedTokenizerFast", **names}
