"""Configurations that check themselves, and JSON of a bounded depth."""

import dataclasses
import json
import pickle
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import numpy as np
import pytest

import keras_tfm
from keras_tfm.configs import (
    MAX_DEPTH,
    Between,
    Config,
    Count,
    Depth,
    Field,
    FieldError,
    Heads,
    Multiple,
    Rate,
    Refusal,
    Size,
    TokenId,
    kinds_of,
    parse_json,
    refuse_sizes,
)


class Pair(NamedTuple):
    before: Sequence[int]
    after: Sequence[int]


@dataclasses.dataclass(frozen=True)
class Inner(Config):
    words: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Sizes(Config):
    vocabulary_size: Size
    dim: Size = 8
    num_heads: Heads = 2
    num_layers: Depth = 1
    dropout: Rate = 0.0
    kind: Literal["a", "b"] = "a"
    sides: Size | tuple[Size, Size] = 4
    end_id: TokenId = 1
    position_dim: Annotated[Size, Multiple(4)] = 4
    pairs: tuple[Pair, Pair] | None = None
    inner: Inner = dataclasses.field(default_factory=Inner)
    anything: Any = None
    stem: tuple[tuple[Size, Count], ...] = ((4, 5),)  # a width and a stride, which no weight has


def test_what_json_gives_is_converted():
    values = {
        "vocabulary_size": np.int64(9),
        "dropout": 0,
        "sides": [1, 2],
        "pairs": [[[1], []], [[], [2]]],
        "inner": {"words": ["a"]},
    }
    config = Sizes.from_json(values)
    assert config.sides == (1, 2) and config.inner == Inner(("a",)) and config.pairs[1] == Pair((), (2,))
    assert type(config.vocabulary_size) is int and type(config.dropout) is float
    assert Sizes.from_json(json.loads(json.dumps(dataclasses.asdict(config)))) == config
    assert dataclasses.replace(config, dropout=0.5).dropout == 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": "8"}, "`dim` must be a whole number; it is '8'"),
        ({"dim": 8.0}, "`dim` must be a whole number; it is 8.0"),
        ({"dim": False}, "`dim` must be a whole number; it is False"),
        ({"dim": 0}, "`dim` must be at least 1; it is 0"),
        ({"position_dim": 0}, "`position_dim` must be at least 1; it is 0"),
        ({"position_dim": 6}, "`position_dim` must be a multiple of 4; it is 6"),
        ({"dropout": float("nan")}, "`dropout` must be a number; it is nan"),
        ({"dropout": 1}, "`dropout` must be below 1; it is 1"),
        ({"kind": "c"}, "`kind` must be one of a, b; it is 'c'"),
        ({"kind": []}, r"`kind` must be one of a, b; it is \[\]"),
        ({"sides": [1]}, r"`sides` must be a whole number, or a list of 2; it is \[1\]"),
        ({"sides": 0}, "`sides` must be at least 1, or a list of 2; it is 0"),
        ({"sides": [8, 0]}, r"^`sides`\[1\] must be at least 1; it is 0\.$"),
        ({"pairs": [1, 2]}, r"`pairs`\[0\] must be a list of 2; it is 1"),
        ({"inner": {"words": "a"}}, "`words` must be a list; it is 'a'"),
        ({"inner": {"word": "a"}}, "Inner has no word .did you mean words..; it has words"),
        ({"inner": 3}, "Inner: expected an object of fields, got 3"),
        ({"num_heads": 3}, "`num_heads` must divide `dim`, 8; it is 3"),
        ({"end_id": 9}, "`end_id` must be in the vocabulary of 9; it is 9"),
        ({"anything": 1, "more": 1}, "Sizes has no more; it has vocabulary_size, dim"),
    ],
)
def test_what_is_declared_holds(changes, message):
    with pytest.raises(ValueError, match=message):
        Sizes.from_json({"vocabulary_size": 9, **changes})


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match="Sizes needs vocabulary_size"):
        Sizes.from_json({})


def bounds_of(kind):
    """(Least, most) for each whole number in the annotation `kind`; one without bounds has infinite ones."""
    if kind is int:
        yield -np.inf, np.inf
    elif get_origin(kind) is Annotated:
        bounds = [part for part in kind.__metadata__ if isinstance(part, Between)]
        whole = list(bounds_of(kind.__origin__))
        yield from ((bounds[-1].least, bounds[-1].most) for _ in whole) if bounds else whole
    else:
        for part in get_args(kind):
            yield from bounds_of(part)


def multiples_of(kind):
    """The numbers of which a value of the annotation `kind` must be a multiple."""
    own = {part.of for part in getattr(kind, "__metadata__", ()) if isinstance(part, Multiple)}
    return own.union(*map(multiples_of, get_args(kind)))


def test_fields_of_families_keep_the_bounds_of_those_they_replace():
    names = [name for name in keras_tfm.models.__all__ if name.endswith("Config")]
    wide = []
    for config in (getattr(keras_tfm.models, name) for name in names):
        for name, kind in kinds_of(config).items():
            bases = [*filter(dataclasses.is_dataclass, config.__bases__)]
            outer = [pair for base in bases for pair in bounds_of(kinds_of(base).get(name))]
            outer = outer or [(-(2**31), 2**31)]  # a new field has some bounds
            least, most = min(low for low, _ in outer), max(high for _, high in outer)
            factors = set().union(*(multiples_of(kinds_of(base).get(name)) for base in bases))
            if any(low < least or high > most for low, high in bounds_of(kind)) or factors - multiples_of(
                kind
            ):
                wide.append(f"{config.__name__}.{name}")
    assert len(names) > 70 and not wide


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 4}, "`num_layers` is 4, and there are 3 weights"),
        ({"dim": 16}, "`dim` is 16, and no weight has such an axis"),
        ({"sides": (4, 7)}, "`sides` is 7, and no weight has such an axis"),
        ({"stem": ((4, 5), (7, 1))}, "`stem` is 7, and no weight has such an axis"),
    ],
)
def test_sizes_are_borne_out_by_weights(changes, message):
    shapes = [(9, 8), (8, 3, 8), (8,)]
    refuse_sizes(Sizes(9, num_layers=3), shapes)
    with pytest.raises(ValueError, match=message):
        refuse_sizes(Sizes(9, **changes), shapes)


def test_json_of_a_bounded_depth():
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert parse_json(json.dumps(["[" * 1_000])) == ["[" * 1_000]
    for depth in (MAX_DEPTH + 1, 500, 100_000):
        for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
            with pytest.raises(ValueError, match="nested more than 64 deep"):
                parse_json(text)


def test_one_error_names_fields_for_python_and_options_for_the_command_line():
    error = FieldError("{least} must be at most {most}, {:.1f}; {} has {!r}", 2, Field("sizes[1]"), "{most}")
    assert str(error) == "`least` must be at most `most`, 2.0; `sizes`[1] has '{most}'"
    flags = {"least": "--least-area", "sizes": "--size"}
    assert error.named(flags) == "--least-area must be at most `most`, 2.0; --size[1] has '{most}'"
    refusal = Refusal("learning_rate", "above 0", -1)
    assert refusal.named({"learning_rate": "--learning-rate"}) == "--learning-rate must be above 0; it is -1."
    assert (refusal.field, refusal.expected, refusal.got) == ("learning_rate", "above 0", -1)
    for each in (error, refusal):
        again = pickle.loads(pickle.dumps(each))
        assert type(again) is type(each) and str(again) == str(each)
