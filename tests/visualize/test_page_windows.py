"""Attention within windows on the page: over the picture, by lines, and the mean of all windows."""

import numpy as np

from keras_tfm import tasks
from keras_tfm.models import Swin
from keras_tfm.visualize import attention_page, look
from tests import contract
from tests.visualize.browser import Tab


def windowed(tmp_path):
    """(A Swin of two blocks, an image, the page's file)."""
    sizes = {"image_size": 16, "patch_size": 2, "dim": 8, "depths": (2,), "num_heads": (2,), "window": 4}
    task = tasks.ImageEncoder(Swin.from_size("T", **sizes))
    contract.randomise(task.model, seed=7)
    image = np.random.default_rng(8).integers(0, 256, (16, 16, 3)).astype("uint8")
    attention_page(task, image, tmp_path / "page.html")
    return task, image, (tmp_path / "page.html").as_uri()


def test_windows_over_the_picture(browser, tmp_path):
    """A chosen patch is shown in its window, which in the second block is shifted, at its place."""
    task, image, address = windowed(tmp_path)
    first, second = look(task, image).attention
    tab = Tab(browser, address)
    assert "within windows: choose one" in tab.text("#notes li")
    canvas = ".picture > canvas"

    def shows(attention, row, column):
        expected = attention.of_cell(row, column).mean(0).ravel()
        assert np.abs(np.array(tab.marks(canvas)) - expected).max() <= expected.max() / 15 + 1e-6
        assert f"“{row},{column}”" in tab.text("#caption")

    shows(first, 4, 4)  # the middle, where nothing was chosen
    tab.page.focus(canvas)
    for key in ("ArrowUp", "ArrowLeft", "ArrowLeft"):  # over the border of two windows
        tab.page.keyboard.press(key)
        tab.drawn("Picture")
    shows(first, 3, 2)
    tab.page.keyboard.press("]")
    tab.drawn("Picture 1")
    shows(second, 3, 2)  # the same spot in the next layer
    box = tab.page.locator(canvas).bounding_box()
    tab.page.mouse.click(box["x"] + box["width"] * 6.5 / 8, box["y"] + box["height"] * 0.5 / 8)
    tab.drawn("Picture")
    shows(second, 0, 6)
    assert "in its window, number 4 of 4" in tab.text("#caption")  # the roll brought its rows to the end
    tab.page.mouse.move(box["x"] + box["width"] * 0.5 / 8, box["y"] + box["height"] * 7.5 / 8)
    tab.drawn("Picture")
    shows(second, 7, 0)
    tab.page.mouse.move(0, 0)
    tab.drawn("Picture")
    shows(second, 0, 6)
    assert tab.errors == []


def test_a_window_by_its_lines_and_the_mean_of_all(browser, tmp_path):
    task, image, address = windowed(tmp_path)
    weights = look(task, image).attention[0].weights  # (N, H, T, T)
    tab = Tab(browser, address)
    tab.view("Lines")
    for chosen, expected in ((2, weights[2]), (-1, weights.mean(0))):
        tab.page.select_option("#windows select", str(chosen))
        tab.drawn("Lines 0 0,1 window 2" if chosen >= 0 else "")
        found = np.zeros_like(expected)
        for head, query, key, weight in tab.marks(".between canvas"):
            found[int(head), int(query), int(key)] = weight
        assert (np.abs(found - expected) <= expected.max(-1, keepdims=True) / 15 + 1e-6).all()
        names = tab.page.eval_on_selector_all(".tokens.key li", "all => all.map((one) => one.textContent)")
        assert names[0] == ("4,0" if chosen >= 0 else "0")
    views = tab.page.eval_on_selector_all("#views button", "tabs => tabs.map((tab) => tab.textContent)")
    assert views == ["Lines", "All heads", "Matrix", "Query · key", "Picture"]
    for view in views:
        tab.view(view)
    assert tab.errors == []
