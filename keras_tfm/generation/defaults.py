"""How a model decodes unless a call says otherwise: the defaults that published checkpoints bring along."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from keras_tfm.configs import Config, Field, FieldError, Length, checked, kinds_of, meant
from keras_tfm.generation.options import DISTRIBUTION, DecodingOptions
from keras_tfm.generation.processors import require

SAMPLING = {*DISTRIBUTION, "seed", "contrastive_alpha"}
FIELDS = {field.name for field in dataclasses.fields(DecodingOptions)} - SAMPLING - {"draft", "processors"}


@dataclasses.dataclass(frozen=True)
class DecodingDefaults(Config):
    """Defaults of decoding.

    Args:
        start_id, end_ids, pad_id: token ids where they differ from the tokenizer's.
        options: fields of `DecodingOptions` except the sampling options, and `max_length` and `min_length`,
            which include the prompt.
        stop: strings that end a text, for tasks that take them.
    """

    start_id: int | None = None
    end_ids: tuple[int, ...] | None = None
    pad_id: int | None = None
    options: dict = dataclasses.field(default_factory=dict)
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := self.options.keys() - FIELDS - {"max_length", "min_length"}:
            raise ValueError(f"`options` of decoding: there is no {', '.join(sorted(unknown))}.")
        kinds = kinds_of(DecodingOptions) | {"max_length": Length, "min_length": int}
        options = {name: checked(x, kinds[name], name) for name, x in self.options.items()}
        object.__setattr__(self, "options", options)
        lengths = {"max_length", "min_length"}
        DecodingOptions(**{"max_new_tokens": 1, **{k: x for k, x in options.items() if k not in lengths}})

    def choose(self, length: int, **given: Any) -> dict[str, Any]:
        """The fields of `DecodingOptions` for prompts of `length` tokens; fields `given` by the caller come
        first.

        There is no "max_new_tokens" if nothing limits the length. A caller who asks for sampling, for
        contrastive search or for drafts does not get the published beams.
        """
        options = dict(self.options)
        most, least = options.pop("max_length", None), options.pop("min_length", 0)
        if most is not None:
            options.setdefault("max_new_tokens", max(1, most - length))
        if least > length:
            options.setdefault("min_new_tokens", least - length)
        known = [field.name for field in dataclasses.fields(DecodingOptions)]
        if unknown := sorted(given.keys() - set(known)):
            hint = meant(unknown[0], known)
            raise TypeError(f"Decoding has no option {', '.join(unknown)}{hint}; it has {', '.join(known)}.")
        given = {name: value for name, value in given.items() if value is not None}
        if (SAMPLING | {"draft"}) & given.keys():
            for name in ("beam_size", "length_penalty", "early_stopping"):
                options.pop(name, None)
        return {**options, **given}

    def within(
        self,
        room: int,
        usual: int,
        size: int,
        max_new_tokens: int | None = None,
        *,
        length: int = 1,
        leaves: str = "",
        **given: Any,
    ) -> DecodingOptions:
        """How prompts of `length` tokens are continued that leave `room` for new ones, in a vocabulary of
        `size`: by `usual` tokens unless these defaults or the options `given` say otherwise.

        ValueError for more `max_new_tokens`, saying what `leaves` no more room.
        """
        if max_new_tokens is not None:
            rule = f"must be at most {room}, {leaves}" if leaves else f"must lie in [1, {room}]"
            least = 0 if leaves else 1  # fewer are refused below
            require("max_new_tokens", max_new_tokens, lambda n: least <= n <= room, rule, whole=True)
        chosen = self.choose(length, max_new_tokens=max_new_tokens, **given)
        num_new = min(room, chosen.pop("max_new_tokens", usual))
        return DecodingOptions(num_new, **chosen).within(size)

    def refuse_whole_lengths(self, **given: Any) -> None:
        """Raise ValueError where an export with the options `given` would decode otherwise than the task: it
        writes as many tokens after every prompt, while published lengths may include the prompt.
        """
        for whole, new in (("max_length", "max_new_tokens"), ("min_length", "min_new_tokens")):
            if self.options.get(whole) and new not in self.options and given.get(new) is None:
                text = "The published {}, {}, includes the prompt; an export takes any prompt: give {}."
                raise FieldError(text, Field(whole), self.options[whole], Field(new))

    def ids(self) -> Iterator[tuple[str, int]]:
        """All (name, token id) pairs that these defaults contain."""
        named = {"start_id": self.start_id, "pad_id": self.pad_id, "end_ids": self.end_ids}
        named |= {name: x for name, x in self.options.items() if name.endswith(("_id", "_ids"))}
        sequences = [*self.options.get("forbidden_sequences", ())]
        sequences += [ids for ids, _ in self.options.get("sequence_bias", ())]
        named["sequences"] = tuple(token_id for ids in sequences for token_id in ids)
        for name, value in named.items():
            for token_id in value if isinstance(value, tuple) else (value,):
                if token_id is not None:
                    yield name, token_id

    def check_ids(self, size: int) -> None:
        """Raise ValueError if one of the token ids lies outside a vocabulary of `size` tokens."""
        for name, token_id in self.ids():
            if not 0 <= token_id < size:
                raise ValueError(f"`{name}` of decoding must lie in [0, {size}); it is {token_id}.")
