"""A headless Chromium, and pages in it: what they drew, and whether their consoles are silent."""

import contextlib
import shutil

import pytest

SECONDS = 20


@contextlib.contextmanager
def headless():
    """Debian's Chromium; a test is skipped where it, or Playwright, is missing."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra `test`")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium: apt install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page at `address`; `errors` is what its console complained of, requests that it made among it."""

    def __init__(self, browser, address, width=1280, height=860, scheme="light"):
        self.page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page.set_default_timeout(1000 * SECONDS)
        self.errors = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type != "log" else None)
        self.page.goto(address)
        self.drawn()

    def drawn(self, view=""):
        """Wait until the view is drawn, and the frame after it."""
        self.page.wait_for_selector(f"html[data-drawn*='{view}']", state="attached")
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def view(self, name):
        self.page.click(f"#views button:text-is('{name}')")
        self.drawn(name)

    def marks(self, selector):
        """What a canvas says that it drew."""
        return self.page.eval_on_selector(selector, "canvas => canvas.drawn.map((x) => x.length ? [...x] : x)")

    def colour(self, selector, x, y):
        """The red, green and blue of a canvas at a place in CSS pixels."""
        pixel = """(canvas, [x, y]) => {
            const ratio = canvas.width / canvas.clientWidth;
            return [...canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data].slice(0, 3);
        }"""
        return self.page.eval_on_selector(selector, pixel, [x, y])

    def text(self, selector):
        return self.page.inner_text(selector)
