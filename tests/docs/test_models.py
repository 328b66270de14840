"""docs/models.md: its tables are what docs/extensions/families.py makes of the code."""

import pytest

from keras_tfm import models
from keras_tfm.tasks.images.image_families import FAMILIES, READ_MORE
from tests.docs.pages import ROOT, module

MAKER = ROOT / "docs" / "extensions" / "families.py"
pytestmark = pytest.mark.skipif(not MAKER.exists(), reason="the pages are not part of the wheel")


@pytest.fixture(scope="module")
def maker():
    return module(MAKER)


def test_the_tables_are_those_of_the_code(maker):
    found = maker.TABLE.finditer(maker.PAGE.read_text("utf-8"))
    written = {table["folder"]: table["rows"] for table in found}
    assert written == maker.tables(), "python docs/extensions/families.py writes docs/models.md anew"


def test_images_are_the_families_of_the_command(maker):
    names = maker.families()["vision"]
    assert {name.lower() for name in names if name not in READ_MORE} == {*FAMILIES}
    assert {*READ_MORE} <= {*names}


def test_folders_are_those_that_are_read(maker):
    folders = maker.readers()
    assert models.BERT in folders["transformers"] and models.BERT not in folders["timm"]
    assert models.CaiT in folders["timm"] and models.CMT not in {*folders["timm"], *folders["transformers"]}
