"""Excerpts of the pages that the search finds, also where pages are opened as files: `_static/texts.js` holds
the text of every page, and `_static/excerpts.js` gives it to Sphinx's search.
"""

import html
import json
import re
from pathlib import Path

MAIN = re.compile(r'<article role="main"[^>]*>(?P<body>.*?)</article>', re.DOTALL)
NO_TEXT = re.compile(r"<(script|style|math)\b.*?</\1>|<a class=\"headerlink\".*?</a>", re.DOTALL)
WITHIN_WORDS = re.compile(r"</?(?:a|code|em|span|strong|sub|sup)\b[^>]*>")
BETWEEN_WORDS = re.compile(r"<[^>]+>")


def text_of(page):
    """The words of a built page, without its navigation."""
    main = MAIN.search(page)
    if not main:
        return ""
    body = WITHIN_WORDS.sub("", NO_TEXT.sub(" ", main["body"]))
    return " ".join(html.unescape(BETWEEN_WORDS.sub(" ", body)).split())


def add_scripts(app, pagename, templatename, context, doctree):
    if pagename == "search":
        app.add_js_file("texts.js")
        app.add_js_file("excerpts.js")


def write_texts(app, exception):
    if exception is not None:
        return
    folder = Path(app.outdir)
    texts = {
        path.relative_to(folder).as_posix(): text_of(path.read_text("utf-8"))
        for path in sorted(folder.rglob("*.html"))
    }
    script = f"const TEXTS = {json.dumps(texts, ensure_ascii=False)};\n"
    (folder / "_static" / "texts.js").write_text(script, "utf-8")


def setup(app):
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", write_texts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
