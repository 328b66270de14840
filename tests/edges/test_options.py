"""Every option of every verb: numbers have bounds, and names agree with the tables that they stand for."""

import argparse

import pytest

from keras_tfm.cli import names, parser

OUTSIDE = ("nan", "inf", "-inf", "-101", "x", "", "9" * 40, "1e400", "-100.5", "0x10")


def options(command, words=()):
    """(Words of the verb, option) for every option of the command, and of its verbs'."""
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, verb in action.choices.items():
                yield from options(verb, (*words, word))
        else:
            yield " ".join(words), action


TYPED = [(verb, action) for verb, action in options(parser()) if action.type is not None]
NUMBERS = [(verb, action) for verb, action in TYPED if action.dest != "strategy"]


def test_numbers_are_found():
    assert len(NUMBERS) > 80 and {"learning_rate", "seed", "beam_size", "grace"} <= {
        a.dest for _, a in NUMBERS
    }


@pytest.mark.parametrize(("verb", "action"), NUMBERS, ids=lambda x: getattr(x, "dest", x))
def test_a_number_has_bounds(verb, action):
    for text in OUTSIDE:
        with pytest.raises(argparse.ArgumentTypeError, match=r"^expected a (whole )?number .+, got "):
            action.type(text)
    default = action.default
    assert default is None or action.type(str(default)) == default


def test_names_are_those_of_the_tables():
    from keras_tfm.models import BERT
    from keras_tfm.tasks.translator import FAMILIES

    tables = {name: tuple(model.sizes) for name, model in FAMILIES.items()}
    assert tables | {"bert": tuple(BERT.sizes)} == names.SIZES
    assert tuple(FAMILIES) == names.FAMILIES
    from keras_tfm.data import train_tokenizer

    for kind in names.TOKENIZERS:
        assert train_tokenizer(["a few words"], kind, 300).vocabulary_size
