"""What the `tokenizers` library puts around and between texts: the post_processor of a tokenizer.json."""

from typing import Any, NamedTuple

from keras_tfm.data.tokenizers.tokenizer import SpecialTokens


class PostProcessor(NamedTuple):
    """The ids of one text and of a pair, where "A" and "B" are the ids of the texts, and B's segment.

    >>> from keras_tfm.data.tokenizers.post_processor import PostProcessor
    >>> PostProcessor.of({"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}).pair
    [2, 'A', 3, 'B', 3]
    """

    single: list[int | str]
    pair: list[int | str]
    segment: int

    @property
    def around(self) -> SpecialTokens:
        """The ids around one text."""
        place = self.single.index("A")
        before, after = self.single[:place], self.single[place + 1 :]
        return SpecialTokens([*map(int, before)], [*map(int, after)])

    @property
    def between(self) -> list[int | str]:
        """The ids between two texts."""
        return self.pair[self.pair.index("A") + 1 : self.pair.index("B")]

    @classmethod
    def of(cls, rule: Any) -> "PostProcessor":
        """The one of an entry of tokenizer.json, or of None; ValueError for what is not known."""
        try:
            return cls._of(rule)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"expected a template of tokens ({error!r})") from error

    @classmethod
    def _of(cls, rule: Any) -> "PostProcessor":
        kind = rule["type"] if rule else None
        if kind in (None, "ByteLevel"):
            return cls(["A"], ["A", "B"], 1)
        if kind == "Sequence":
            rules = [cls._of(part) for part in rule["processors"]]
            rules = [part for part in rules if (part.single, part.pair) != (["A"], ["A", "B"])]
            if len(rules) > 1:
                raise ValueError(f"expected one rule that adds tokens, got {len(rules)}")
            return rules[0] if rules else cls._of(None)
        if kind in ("RobertaProcessing", "BertProcessing"):
            is_bert, start, end = kind == "BertProcessing", int(rule["cls"][1]), int(rule["sep"][1])
            between = [end] if is_bert else [end, end]
            return cls([start, "A", end], [start, "A", *between, "B", end], int(is_bert))
        if kind != "TemplateProcessing":
            raise ValueError(f"expected a template of tokens, got {kind!r}")
        single, pair = (_ids(rule[name], rule["special_tokens"]) for name in ("single", "pair"))
        for ids, texts in ((single, ["A"]), (pair, ["A", "B"])):
            if [name for name in ids if isinstance(name, str)] != texts:
                raise ValueError(f"expected a template of {' and '.join(texts)}, got {ids}")
        *_, second = (part["Sequence"] for part in rule["pair"] if "Sequence" in part)
        return cls(single, pair, second["type_id"])


def _ids(template: Any, tokens: Any) -> list[int | str]:
    """The ids of a template, and the names of its texts."""
    ids: list[int | str] = []
    for part in template:
        if "Sequence" in part:
            ids.append(part["Sequence"]["id"])
        else:
            ids += map(int, tokens[part["SpecialToken"]["id"]]["ids"])
    return ids
