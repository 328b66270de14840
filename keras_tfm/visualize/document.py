"""A page as one file: its parts in `web/`, and the data that its script draws.

Nothing of the data is markup or script. The header is JSON in which no `<` is left, the blocks are base64,
and the script writes them as text; the policy lets the two parts of this package's own run and nothing else.
"""

import base64
import dataclasses
import hashlib
import html
import json
import pathlib
import re
from typing import Any

from keras_tfm.training.folder import Path, new_file

WEB = pathlib.Path(__file__).with_name("web")
SCRIPTS = "data.js", "paint.js", "lines.js", "model.js", "matrix.js", "vectors.js", "picture.js", "steps.js"
FRAME_HEIGHT = 820  # pixels, in a notebook


@dataclasses.dataclass(frozen=True)
class Page:
    """What a page shows: a `header` that JSON can say, and `blocks` of base64 by name. A notebook shows it
    inline; `html` is the whole file, `write` writes it.

    >>> examples = ["a good film", "a bad film"], ["+", "-"]
    >>> task = keras_tfm.tasks.TextClassifier.from_examples(examples, size="tiny", vocabulary_size=300)
    >>> page = keras_tfm.visualize.attention_page(task, "a film")
    >>> page.html().startswith("<!doctype html>"), page.header["text"]
    (True, 'a film')
    """

    header: dict[str, Any]
    blocks: dict[str, str]

    def html(self, is_live: bool = False) -> str:
        """The file's text. A live page asks the server that it came from, for other texts."""
        script = "".join((WEB / name).read_text("utf-8") for name in (*SCRIPTS, "page.js"))
        script = f'"use strict";\n(() => {{\n{script}}})();\n'
        style = (WEB / "page.css").read_text("utf-8")
        parts = {
            "policy": policy(script, style, is_live),
            "style": style,
            "script": script,
            "data": as_data({**self.header, "is_live": is_live}),
            "blocks": "\n".join(
                f'<script type="text/plain" id="{name}">{block}</script>'
                for name, block in self.blocks.items()
            ),
        }
        template = (WEB / "page.html").read_text("utf-8")
        return re.sub(r"\[\[(\w+)\]\]", lambda match: parts[match[1]], template)

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        with new_file(path) as file:
            file.write_text(self.html(), "utf-8")

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks: it has no access to what is around it."""
        return (
            f'<iframe sandbox="allow-scripts" title="Attention" srcdoc="{html.escape(self.html())}" '
            f'style="width: 100%; height: {FRAME_HEIGHT}px; border: 0"></iframe>'
        )


def as_data(value: Any) -> str:
    """JSON that may stand in a script element: no `<` begins a tag or a comment there."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


def policy(script: str, style: str, is_live: bool) -> str:
    """The Content-Security-Policy: this script and this style, by their hashes; images of the page itself."""
    rules = {
        "default-src": "'none'",
        "script-src": _hash_of(script),
        "style-src": _hash_of(style),
        "img-src": "data:",
        "connect-src": "'self'" if is_live else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
