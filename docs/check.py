"""Whether built pages hold together: `python docs/check.py docs/_build/html`, the end of `make docs`.

Every link within the pages leads to a file, and to a place in it; nothing is loaded from elsewhere; the
search knows the layers' names.
"""

import html.parser
import pathlib
import re
import sys
import urllib.parse

LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
ELSEWHERE = re.compile(r"(?:[a-z]+:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"(?:@import\s+|url\()\s*[\"']?((?:[a-z]+:)?//[^\"')\s]+)", re.IGNORECASE)
FOUND_BY_SEARCH = ("transformerblock", "multiheadattention", "imageclassifier", "glove")


class Page(html.parser.HTMLParser):
    """The places that a page has, what it links to, and what it loads."""

    def __init__(self, text):
        super().__init__()
        self.places, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.places |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        address = values.get(LOADS.get(tag, ""))
        if address and values.get("rel") not in ("canonical", "index", "search", "next", "prev"):
            self.loads.append(address)


def problems(folder):
    """What is wrong with the pages in `folder`, a line each."""
    folder = pathlib.Path(folder)
    pages = {path.resolve(): Page(path.read_text("utf-8")) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        return [f"{folder}: no pages"]
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        for address in page.loads:
            if ELSEWHERE.match(address):
                found.append(f"{name}: loads {address}")
            elif not address.startswith("data:"):
                found += _broken(name, path, address, pages)
        for address in page.links:
            if not re.match(r"[a-z]+:", address, re.IGNORECASE):
                found += _broken(name, path, address, pages)
    for path in folder.rglob("*.css"):
        name = path.relative_to(folder)
        found += [f"{name}: loads {address}" for address in IN_STYLES.findall(path.read_text("utf-8"))]
    return found + unknown_to_search(folder)


def _broken(name, path, address, pages):
    """A line where `address`, on the page at `path`, leads nowhere."""
    parts = urllib.parse.urlsplit(address)
    target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return [f"{name}: {address} leads to no file"]
    place = urllib.parse.unquote(parts.fragment)
    if place and target in pages and place not in pages[target].places:
        return [f"{name}: {address} leads to no place on its page"]
    return []


def unknown_to_search(folder):
    """A line for each of the names that Sphinx's index of words lacks."""
    index = folder / "searchindex.js"
    words = index.read_text("utf-8").lower() if index.exists() else ""
    return [f"searchindex.js: {word} is not found" for word in FOUND_BY_SEARCH if word not in words]


def main(folder):
    found = problems(folder)
    for line in found:
        print(line, file=sys.stderr)
    if found:
        raise SystemExit(f"{len(found)} problems in {folder}")
    pages = list(pathlib.Path(folder).rglob("*.html"))
    print(
        f"{len(pages)} pages in {folder}: every link within them leads somewhere, nothing is loaded from afar"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
