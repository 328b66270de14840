"""The page without a pointer and without eyes: what the Tab key reaches, and what a screen reader is told."""

import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.visualize import attention_page
from tests import contract
from tests.visualize.browser import Tab
from tests.visualize.test_page_windows import windowed

# Marks what can have the focus: of radio buttons and of tabs the chosen one, arrows go on from there.
MARK = """() => {
    let count = 0;
    for (const element of document.querySelectorAll("button, input, select, [tabindex]")) {
        delete element.dataset.number;
        const isOther = element.type === "radio" && !element.checked;
        const isSeen = element.checkVisibility({ checkVisibilityCSS: true });
        if (element.tabIndex >= 0 && isSeen && !isOther) element.dataset.number = count++;
    }
    return count;
}"""


@pytest.fixture(scope="module")
def addresses(translator, tmp_path_factory):
    """{name: page} of a text that is written, an image, an image that is read in windows."""
    folder = tmp_path_factory.mktemp("accessible")
    attention_page(translator, "the cat sat", folder / "text.html", max_new_tokens=6)
    sizes = {"image_size": 16, "patch_size": 8, "dim": 8, "num_heads": 2, "num_layers": 1}
    task = tasks.ImageClassifier.from_size("tiny", ["a", "b"], **sizes, num_channels=3)
    contract.randomise(task.model, seed=4)
    attention_page(task, np.zeros((16, 16, 3), "uint8"), folder / "image.html")
    names = {name: (folder / f"{name}.html").as_uri() for name in ("text", "image")}
    return names | {"windows": windowed(folder)[-1]}


def views_by_keys(tab):
    """Go through the views by the keyboard alone, and yield the name of each."""
    names = tab.page.eval_on_selector_all("#views button", "tabs => tabs.map((tab) => tab.textContent)")
    tab.page.focus("#views button[aria-selected=true]")
    tab.page.keyboard.press("Home")
    for name in names:
        tab.drawn(name)
        assert tab.page.inner_text(":focus") == name
        yield name
        tab.page.focus("#views button[aria-selected=true]")
        tab.page.keyboard.press("ArrowRight")


def reached(tab):
    """(The numbers of what the Tab key reaches, how many there are)."""
    count = tab.page.evaluate(MARK)
    tab.page.evaluate("document.activeElement.blur()")
    found = set()
    for _ in range(count + 9):
        tab.page.keyboard.press("Tab")
        found.add(tab.page.evaluate("document.activeElement.dataset.number"))
    return {int(number) for number in found - {None}}, count


def nodes(tab):
    """[(role, name, whether it can have the focus)] of the accessibility tree."""
    session = tab.page.context.new_cdp_session(tab.page)
    found = []
    for node in session.send("Accessibility.getFullAXTree")["nodes"]:
        if not node["ignored"]:
            properties = {one["name"]: one["value"].get("value") for one in node.get("properties", ())}
            name = node.get("name", {}).get("value", "").strip()
            found.append((node["role"]["value"], name, bool(properties.get("focusable"))))
    session.detach()
    return found


@pytest.mark.parametrize("name", ["text", "image", "windows"])
def test_every_view_is_reached_and_told(browser, addresses, name):
    tab = Tab(browser, addresses[name])
    seen = set()
    for view in views_by_keys(tab):
        seen.add(view)
        if view == "Lines":
            tab.page.focus(".tokens.query")  # which chooses a token, whose weights the table shows
            tab.drawn(view)
        if view == "Matrix":
            tab.page.focus(".matrix canvas")
            tab.page.keyboard.press("ArrowDown")
            tab.drawn(view)
        told = nodes(tab)
        assert ("tabpanel", view) in {(role, said) for role, said, _ in told}
        unnamed = [role for role, said, can_focus in told if can_focus and not said and role != "RootWebArea"]
        assert not [role for role in unnamed if role not in ("generic", "tabpanel")], (view, unnamed)
        assert all(said for role, said, _ in told if role in ("img", "image", "canvas", "group", "table"))
        if view != "All heads":
            assert any(role == "table" for role, *_ in told), view
        found, count = reached(tab)
        assert found == set(range(count)) and count > 2, view
    assert seen >= {"Lines", "All heads", "Matrix"} and tab.errors == []


def test_what_is_done_by_keys_is_said(browser, addresses):
    tab = Tab(browser, addresses["text"])
    tab.view("Lines")
    tab.page.focus(".tokens.query")
    tab.page.keyboard.press("ArrowDown")
    tab.drawn()
    tab.page.wait_for_function("document.getElementById('status').textContent.includes('reads')")
    assert tab.page.get_attribute("#status", "aria-live") == "polite"
    tab.page.keyboard.press("[")
    tab.drawn()
    assert "Layer 1" in tab.page.text_content("#status")
    tab.view("All heads")
    label = tab.page.get_attribute(".heads-grid button", "aria-label")
    assert label.startswith("Layer 1, head 1: ") and label.endswith(" % on one token")
    tab.page.focus(".heads-grid button")
    tab.page.keyboard.press("Enter")
    tab.drawn("Matrix")
    tab.view("Query · key")
    rows = tab.page.locator(".strips table tbody tr")
    bars = [tab.marks(f".strips figure:nth-child({number}) canvas") for number in (1, 2, 3)]
    for place in range(rows.count()):
        cells = rows.nth(place).locator("td").all_text_contents()
        np.testing.assert_allclose(np.array(cells, float), [values[place] for values in bars], atol=6e-4)
    assert tab.errors == []
