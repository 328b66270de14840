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
        """Wait until all is drawn that was asked for, and it is `view`."""
        wanted = f"[data-drawn*='{view}']" if view else ""
        self.page.wait_for_selector(f"html[aria-busy=false]{wanted}", state="attached")

    def view(self, name):
        self.page.click(f"#views button:text-is('{name}')")
        self.drawn(name)

    def marks(self, selector):
        """What a canvas says that it drew."""
        return self.page.eval_on_selector(
            selector, "canvas => canvas.drawn.map((x) => x.length ? [...x] : x)"
        )

    def colours(self, selector, places):
        """The red, green and blue (N, 3) of a canvas at places (N, 2) in CSS pixels."""
        read = """(canvas, places) => {
            const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const ratio = canvas.width / canvas.clientWidth;
            return places.map(([x, y]) => {
                const at = 4 * (Math.floor(y * ratio) * canvas.width + Math.floor(x * ratio));
                return [...data.slice(at, at + 3)];
            });
        }"""
        return self.page.eval_on_selector(selector, read, places)

    def text(self, selector):
        return self.page.inner_text(selector)
