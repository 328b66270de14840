"""What the files of a folder say about its tokenizer beside the vocabulary: the class, options, added tokens.

Files and keys win over each other as in `transformers` 5. A class of one model family builds its rules anew,
of the vocabulary and tokenizer_config.json; the general class takes tokenizer.json as it is.
"""

import functools
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keras_tfm.configs import brief, checked
from keras_tfm.data.sources.lines import DataError, Path
from keras_tfm.data.tokenizers.added import AddedToken
from keras_tfm.data.tokenizers.post_processor import PostProcessor
from keras_tfm.training.safetensors import CheckpointError, read_json

GENERAL = ("PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend")
FAMILIES = (
    "AlbertTokenizer", "BartTokenizer", "BertTokenizer", "CLIPTokenizer", "DebertaTokenizer",
    "DebertaV2Tokenizer", "DistilBertTokenizer", "ElectraTokenizer", "EsmTokenizer", "FNetTokenizer",
    "GPT2Tokenizer", "MBart50Tokenizer", "MBartTokenizer", "Qwen2Tokenizer", "RobertaTokenizer",
    "SiglipTokenizer", "T5Tokenizer", "XLMRobertaTokenizer",
)  # fmt: skip
# Values of `model_type` in config.json that choose one of the FAMILIES where no class is named.
MODELS = (
    "albert", "bart", "bert", "clip", "deberta", "deberta-v2", "distilbert", "electra", "esm", "fnet", "gpt2",
    "mbart", "qwen2", "qwen3", "roberta", "siglip", "t5", "xlm-roberta",
)  # fmt: skip
LLAMA = "LlamaTokenizer"  # a class of SentencePiece's rules, which folders of bytes name too
ROLES = tuple(f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
WORD_SPLITTING = {"word_tokenizer_type": "basic", "subword_tokenizer_type": "wordpiece"}


class Published:
    """The class, the options and the added tokens of the tokenizer in a `folder` of `transformers`.

    Raises DataError for a class that is not one of `GENERAL` and `FAMILIES`, and CheckpointError for a
    damaged file, and where special tokens that a text spells are to be split.

    >>> import json, pathlib
    >>> from keras_tfm.data.tokenizers.published import Published
    >>> written = pathlib.Path("tokenizer_config.json").write_text(json.dumps({"pad_token": "[PAD]"}))
    >>> Published(".").added({}, ["a"])[0][:3]
    ('[PAD]', 1, True)
    """

    def __init__(self, folder: Path):
        self.folder = pathlib.Path(folder)
        self.options = self._read("tokenizer_config.json")
        config = self._read("config.json")
        name = self.options.get("tokenizer_class") or config.get("tokenizer_class")
        if config.get("model_type") == "qwen2":  # whatever class such a folder names
            name = "Qwen2Tokenizer"
        of_bytes = "'ByteLevel'" in str(self.content.get("pre_tokenizer"))
        if of_bytes and (str(name).removesuffix("Fast") == LLAMA or config.get("model_type") == "mistral"):
            name = GENERAL[1]
        if name not in (None, *GENERAL) and str(name).removesuffix("Fast") not in FAMILIES:
            raise DataError(
                self.folder,
                None,
                f"tokenizer_class: expected one of {', '.join(FAMILIES)}, or {GENERAL[1]} with a "
                f"tokenizer.json, got {brief(name)}: its rules are not known here",
            )
        if self.options.get("split_special_tokens"):
            path = self.folder / "tokenizer_config.json"
            raise CheckpointError(path, "split_special_tokens", "false", "true")
        self._family = str(name or config.get("model_type"))
        self._config = config
        has_file = (self.folder / "tokenizer.json").is_file()
        of_family = name is None and (config.get("model_type") in MODELS or not has_file)
        self.is_general = name in GENERAL or (name is None and not of_family)

    @functools.cached_property
    def content(self) -> dict[str, Any]:
        """The content of tokenizer.json, or {} if there is none."""
        return self._read("tokenizer.json")

    @functools.cached_property
    def post_processor(self) -> PostProcessor:
        """The ids that tokenizer.json puts around and between texts; CheckpointError for others."""
        rule = self.content.get("post_processor")
        try:
            return PostProcessor.of(rule)
        except ValueError:
            path = self.folder / "tokenizer.json"
            raise CheckpointError(path, "post_processor", "a template of tokens", brief(rule)) from None

    def _read(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        return read_json(path) if path.is_file() else {}

    def role(self, name: str, default: str | None = None) -> str | None:
        """The token of a role, "pad_token" for example, or the default of its class."""
        value = self._legacy_options().get(name, default)
        return value.get("content") if isinstance(value, Mapping) else value

    def _legacy_options(self) -> dict[str, Any]:
        """The options, and special_tokens_map.json's unless there is an `added_tokens_decoder`."""
        if "added_tokens_decoder" in self.options:
            return self.options
        return {**self.options, **self._read("special_tokens_map.json")}

    def bert_rules(self) -> dict[str, Any]:
        """The arguments of `BERTTokenizer` in the options; DataError for rules that are not BERT's."""
        if self.is_general or not (self.folder / "tokenizer_config.json").is_file():
            return {}
        path, options = self.folder / "tokenizer_config.json", self.options
        for name, expected in WORD_SPLITTING.items():
            if options.get(name, expected) != expected:
                raise DataError(path, None, f"{name}: expected {expected!r}, got {brief(options[name])}")
        try:
            return {
                "lowercase": checked(options.get("do_lower_case", True), bool, "do_lower_case"),
                "strip_accents": checked(options.get("strip_accents"), bool | None, "strip_accents"),
                "han": checked(options.get("tokenize_chinese_chars", True), bool, "tokenize_chinese_chars"),
            }
        except ValueError as error:
            raise DataError(path, None, str(error)) from error

    def adds_prefix_space(self) -> bool:
        """Whether a space is put before texts; ValueError for anything but true or false."""
        options = (self.content.get("pre_tokenizer") or {}) if self.is_general else self.options
        return checked(options.get("add_prefix_space", False), bool, "add_prefix_space")

    def splits_at_spaces(self) -> bool:
        """Whether a SentencePiece tokenizer splits texts at white space before it reads them."""
        if self.is_general:
            return "WhitespaceSplit" in str(self.content.get("pre_tokenizer"))
        return "debertav2" not in self._family.lower().replace("-", "")

    def cleans_up(self) -> bool:
        """Whether decoded texts lose spaces before punctuation; ValueError for anything but true or false."""
        option = "clean_up_tokenization_spaces"
        return bool(checked(self.options.get(option), bool | None, option))

    def ends_texts(self) -> bool:
        """Whether a class puts its own tokens after texts, whatever tokenizer.json says: T5's and mBART's."""
        return not self.is_general and self._family.lower().startswith(("t5", "mbart"))

    def begins_with_language(self) -> bool:
        """Whether a class puts the language before the text and not behind it: mBART-50's."""
        return self._family.lower().startswith("mbart50")

    def joins_as_xlm_roberta(self) -> bool:
        """Whether a class joins two texts by two end tokens, as XLM-RoBERTa's does, in one segment."""
        return not self.is_general and self._family.lower().replace("-", "").startswith("xlmroberta")

    def ends_between(self, end_id: int) -> int:
        """How many end tokens stand between two texts, 1 or 2; 1, too, where other tokens do."""
        if not self.is_general:
            return 2 if self.joins_as_xlm_roberta() else 1
        return 2 if self.post_processor.between == [end_id, end_id] else 1

    def splits_as_qwen2(self) -> bool:
        """Whether a class splits texts as Qwen2's does, whatever tokenizer.json says."""
        return not self.is_general and self._family.lower().startswith("qwen")

    def end_token_id(self) -> int | None:
        """The first id that ends a text in generation_config.json or config.json, if there is one."""
        value = {**self._config, **self._read("generation_config.json")}.get("eos_token_id")
        value = value[0] if isinstance(value, list) and value else value
        return value if type(value) is int else None

    def added(self, roles: Mapping[str, str], vocabulary: Sequence[str]) -> list[AddedToken]:
        """The added tokens beside a `vocabulary` by id; `roles` are the special tokens of the class.

        Raises ValueError if a token has another id than `transformers` would give it.
        """
        ids = {token: number for number, token in enumerate(vocabulary)}
        tokens: dict[str, AddedToken] = {}
        for entry in self._entries({} if self.is_general else roles):
            token = AddedToken.of(entry, ids.setdefault(entry["content"], len(ids)))
            if entry.get("id", token.token_id) != token.token_id:
                raise ValueError(
                    f"added_tokens: {token.content!r}: expected the id {token.token_id}, got {entry['id']}"
                )
            tokens[token.content] = token
        return sorted(tokens.values(), key=lambda token: token.token_id)

    def _entries(self, roles: Mapping[str, str]) -> Iterable[dict[str, Any]]:
        """The added tokens as in tokenizer.json, in the order in which `transformers` adds them."""
        options, file = self._legacy_options(), [*map(_entry, _listed(self.content, "added_tokens"))]
        more = [name for name in options if name.endswith("_token") and name not in ROLES]
        more = [options[name] for name in more if isinstance(options[name], str | Mapping)]
        stated_roles = [options[role] for role in ROLES if options.get(role) is not None]
        default_roles = [roles[role] for role in ROLES if role in roles and role not in options]
        named = [_entry(token) for token in [*stated_roles, *default_roles, *more]]
        extra = [_entry(token) for token in self._extra()]
        if "added_tokens_decoder" in options:
            decoder = _mapping(options["added_tokens_decoder"], "added_tokens_decoder")
            stated = {_number(number): _entry(token) for number, token in decoder.items()}
        else:
            # Qwen2's class adds all its special tokens once more, as such.
            older = _listed(options, "additional_special_tokens") if self.splits_as_qwen2() else []
            special = {entry["content"] for entry in [*map(_entry, [*stated_roles, *older]), *extra]}
            stated = {
                _number(number): {"content": token, "special": token in special}
                for token, number in self._read("added_tokens.json").items()
            }
            stated |= {_number(entry.get("id")): entry for entry in file}
        entries = sorted(file, key=lambda entry: _number(entry.get("id"))) if self.is_general else []
        extra = extra or [_entry(token) for token in _listed(options, "additional_special_tokens")]
        names = {entry["content"] for entry in named}
        for number, entry in sorted(stated.items()):
            normalized = entry.get("normalized", not entry.get("special", False))
            is_special = entry.get("special", False) or entry["content"] in names
            entries.append(entry | {"id": number, "normalized": normalized, "special": is_special})
        present = {entry["content"] for entry in entries}
        return [*entries, *(x | {"special": True} for x in [*named, *extra] if x["content"] not in present)]

    def _extra(self) -> list:
        """The special tokens without a role, without the older list of special_tokens_map.json."""
        extra = _listed(self.options, "extra_special_tokens")
        extra = extra or _listed(self.options, "additional_special_tokens")
        if "added_tokens_decoder" in self.options:
            return extra
        more = _listed(self._read("special_tokens_map.json"), "extra_special_tokens")
        return extra + [token for token in more if token not in extra]


def _entry(token: Any) -> dict[str, Any]:
    """A token, spelled or as an object, as an object; ValueError for anything else."""
    entry = {"content": token, "special": True} if isinstance(token, str) else token
    if not isinstance(entry, Mapping) or not isinstance(entry.get("content"), str):
        raise ValueError(f"added_tokens: expected a token or an object with its content, got {brief(token)}")
    return dict(entry)


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ValueError(f"added_tokens: expected the id of a token, got {brief(value)}") from None


def _listed(options: Mapping[str, Any], name: str) -> list:
    """A list of tokens, or the values of a mapping of them."""
    value = options.get(name) or []
    if isinstance(value, str) or not isinstance(value, Mapping | Sequence):
        raise ValueError(f"{name}: expected a list of tokens, got {brief(value)}")
    return [*value.values()] if isinstance(value, Mapping) else [*value]


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: expected an object, got {brief(value)}")
    return value


def tokens_of_file(path: Path) -> list[AddedToken] | None:
    """The added tokens of a tokenizer.json, or None if it lists none; DataError if they are damaged."""
    entries = read_json(path).get("added_tokens")
    try:
        return None if entries is None else [AddedToken.of(entry) for entry in entries]
    except (ValueError, TypeError) as error:
        raise DataError(path, None, str(error)) from error


def write_options(options: Mapping[str, Any], folder: Path) -> None:
    """Write tokenizer_config.json into `folder`."""
    path = pathlib.Path(folder, "tokenizer_config.json")
    path.write_text(json.dumps(options, indent=2, ensure_ascii=False) + "\n", "utf-8")
