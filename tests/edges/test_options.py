"""Every option of every verb: numbers have bounds, and every default is one of its values."""

import argparse

import pytest

from keras_tfm.cli import Parser, parser

OUTSIDE = ("nan", "inf", "-inf", "-101", "x", "", "9" * 40, "1e400", "-100.5", "0x10")


def options(command, words=()):
    """(Words of the verb, option) for every option of the command, and of its verbs'."""
    if isinstance(command, Parser):
        command.complete()
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, verb in action.choices.items():
                yield from options(verb, (*words, word))
        else:
            yield " ".join(words), action


ALL = list(options(parser()))
NUMBERS = [(verb, action) for verb, action in ALL if action.metavar in ("N", "R")]


def test_numbers_are_found():
    names = {action.dest.partition(".")[2] for _, action in NUMBERS}
    assert len(NUMBERS) > 120 and {"learning_rate", "seed", "beam_size", "grace"} <= names
    assert {action.metavar for _, action in ALL if action.type is not None} == {
        "N",
        "R",
        "TEXT",
        "RUN",
        "MODEL",
        "FILE",
        "FOLDER",
        "PATH",
        "X,Y,W,H",
    }


@pytest.mark.parametrize(("verb", "action"), NUMBERS, ids=lambda x: getattr(x, "dest", x))
def test_a_number_has_bounds(verb, action):
    for text in OUTSIDE:
        if text[-1:].isdigit() and action.dest == "QuestionAnswererConfig.stride":
            continue  # --max-length bounds it
        if text == "9" * 40 and action.dest.endswith((".learning_rate", ".weight_decay")):
            continue  # of these any finite number can be meant
        with pytest.raises(argparse.ArgumentTypeError, match=r"^must be (a|above|at|below) .+; it is "):
            action.type(text)


def test_what_is_not_typed_is_not_there():
    """What was read of a file, or of a RUN, stays: only what is typed goes before it."""
    for verb in (
        "train translate --out a",
        "predict a",
        "evaluate a --data b",
        "launch --workers 2 -- train",
    ):
        assert not [
            name for name in vars(parser().parse_args(verb.split())) if "." in name and "workers" not in name
        ]


def test_every_option_has_a_help():
    assert not [(verb, action.option_strings) for verb, action in ALL if not action.help]
