"""What tasks refuse, each in a line."""

import pytest


def refusals(*cases):
    """The test that each call of `cases`, (a function of the fixture `task`, message), is a ValueError of one
    line with this message, a regular expression.
    """

    @pytest.mark.parametrize(("call", "message"), cases)
    def test(task, call, message):
        with pytest.raises(ValueError, match=message) as caught:
            call(task)
        assert "\n" not in str(caught.value)

    return test
