"""The picture in README, of a task that reads dates.

keras-tfm demo
python -m tests.visualize.screenshot runs/dates docs/attention.png
"""

import io
import pathlib
import sys
import tempfile

from PIL import Image

from keras_tfm import tasks
from keras_tfm.demo import EXAMPLE
from keras_tfm.visualize import attention_page
from tests.visualize.browser import Tab, headless

SIZE = {"width": 1100, "height": 624}
COLOURS = 160  # of the file


def take(browser, task, path):
    """Write the picture of a task that reads dates to `path`; the tab that shows it stays open."""
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder, "page.html")
        attention_page(task, EXAMPLE, page)
        tab = Tab(browser, page.as_uri(), **SIZE)
        with Image.open(io.BytesIO(tab.page.screenshot())) as image:
            image.convert("RGB").quantize(COLOURS).save(path, optimize=True)
    return tab


if __name__ == "__main__":
    run, path = sys.argv[1:]
    with headless() as browser:
        take(browser, tasks.load(run), path)
