"""Sphinx's configuration: `make docs` builds this folder into docs/_build/html, without a network."""

import gc
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent)]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

gc.set_threshold(200_000, 20, 20)  # millions of nodes live to the end: to look through them takes long

from keras_tfm.version import __version__  # noqa: E402

project = "keras_tfm"
author = "the authors of keras_tfm"
copyright = author
release = __version__
language = "en"

# The last four stand in docs/extensions/.
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "docstrings",
    "excerpts",
    "mathml",
    "reference",
]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}  # autosummary asks for .rst
autosummary_generate = False
toc_object_entries = False  # thousands, which each page's navigation would copy; a package's table names them

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
myst_update_mathjax = False
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = (
    False  # Keras's docstrings are of another markup, and Keras's documentation has them
)
autodoc_preserve_defaults = True

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"keras_tfm {release}"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_js_files = ["copy.js"]
html_copy_source = False
html_show_sphinx = False
templates_path: list[str] = []
