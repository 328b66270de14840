"""docs/guides/matrix.md: its tables are what docs/extensions/matrix.py makes of what tests recorded."""

import pytest

from tests.docs.pages import ROOT, module

MAKER = ROOT / "docs" / "extensions" / "matrix.py"
pytestmark = pytest.mark.skipif(not MAKER.exists(), reason="the pages are not part of the wheel")


def test_the_tables_are_what_was_recorded():
    maker = module(MAKER)
    written = {table["name"]: table["rows"] for table in maker.TABLE.finditer(maker.PAGE.read_text("utf-8"))}
    assert written == maker.tables(), "python docs/extensions/matrix.py writes docs/guides/matrix.md anew"


def test_a_refusal_is_numbered_once():
    maker, reasons = module(MAKER), {}
    cells = ["yes", ["an answer"], None, "The task 'a' is long.", "The task 'b-c' is long.", "x"]
    expected = ["yes", "yes", "", "no (1)", "no (1)", "no (2)"]
    assert [maker.cell(answer, reasons) for answer in cells] == expected
    assert reasons == {"The task is long": 1, "x": 2}
