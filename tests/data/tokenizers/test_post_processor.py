"""What stands around and between texts, as the `tokenizers` library puts it there."""

import json

import pytest

from keras_tfm.data.tokenizers.post_processor import PostProcessor

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import processors  # noqa: E402

A, B, START, END = 0, 1, 2, 3
TOKENS = [("<s>", START), ("</s>", END)]


def template(single, pair):
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=TOKENS)


BYTES, BERT = processors.ByteLevel(), processors.BertProcessing(("</s>", END), ("<s>", START))
ROBERTA = processors.RobertaProcessing(("</s>", END), ("<s>", START))
XLM_ROBERTA = template("<s> $A </s>", "<s> $A </s> </s> $B </s>")
LLAMA = template("<s> $A", "<s> $A <s> $B:1")
RULES = [None, BYTES, BERT, ROBERTA, XLM_ROBERTA, LLAMA, template("$A </s>", "$A </s> $B:1 </s>:1")]
RULES += [processors.Sequence(parts) for parts in ([BYTES, LLAMA], [ROBERTA, BYTES], [BYTES], [])]
RULES.append(processors.Sequence([template("$A", "$A $B"), LLAMA]))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_ids_and_segments_are_the_librarys(rule):
    whole = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": A, "b": B}, unk_token="a"))
    if rule is not None:
        whole.post_processor = rule
    ours = PostProcessor.of(json.loads(whole.to_str())["post_processor"])
    single, pair = whole.encode("a"), whole.encode("a", "b")
    names = {"A": A, "B": B}
    assert [names.get(x, x) for x in ours.single] == single.ids
    assert [names.get(x, x) for x in ours.pair] == pair.ids
    assert ours.segment == pair.type_ids[pair.ids.index(B)]
    before, after = ours.around
    assert [*before, A, *after] == single.ids


def of_template(name, value):
    whole = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": A}, unk_token="a"))
    whole.post_processor = XLM_ROBERTA
    return json.loads(whole.to_str())["post_processor"] | {name: value}


SECOND = {"Sequence": {"id": "B", "type_id": 0}}
TWICE = {"type": "Sequence", "processors": [of_template("single", [{"Sequence": {"id": "A"}}])] * 2}


@pytest.mark.parametrize(
    "rule",
    [
        {"type": "Other"},
        [3],
        {"type": "BertProcessing"},
        of_template("special_tokens", {}),
        of_template("pair", None),
        of_template("pair", [SECOND]),
        of_template("single", []),
        TWICE,
    ],
)
def test_what_is_not_known_is_refused(rule):
    with pytest.raises(ValueError, match="expected"):
        PostProcessor.of(rule)
