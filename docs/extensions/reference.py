"""The pages of docs/api/: one for each package, of the names that it offers, written anew by each build."""

import importlib
import inspect
from pathlib import Path

PACKAGES = (
    "layers",
    "models",
    "heads",
    "tasks",
    "data",
    "data.worlds",
    "generation",
    "training",
    "word_vectors",
    "visualize",
    "visualize.plots",
    "convert",
    "serving",
)
INDEX = """# API reference

What each package offers, from its docstrings. Everything else is the package's own and may change.

```{{toctree}}
:maxdepth: 1

{pages}
```
"""
PAGE = """# {name}

```{{eval-rst}}
.. automodule:: {name}

.. currentmodule:: {name}

.. autosummary::
   :nosignatures:

{names}

{members}
```
"""


def public_names(package):
    """What a package offers: its `__all__` or, without one, what its `__init__` imports of this project, in
    its order.
    """
    if hasattr(package, "__all__"):
        return list(package.__all__)
    return [
        name
        for name, value in vars(package).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", "keras_tfm").startswith("keras_tfm")
    ]


def directive(package, name):
    """autodoc's directive for a public name, with the methods that have docstrings of their own."""
    value = getattr(package, name)
    if inspect.isclass(value):
        kind, options = "class", ["members", "show-inheritance"]
    elif callable(value):
        kind, options = "function", []
    else:
        kind, options = "data", ["no-value"]
    if is_guest(package, name):
        options.append("no-index")
    return "\n".join([f".. auto{kind}:: {name}", *(f"   :{option}:" for option in options), ""])


def is_guest(package, name):
    """Whether another package, the one that the name comes from, offers it too."""
    home = getattr(getattr(package, name), "__module__", package.__name__).split(".")[1]
    return home in PACKAGES and home != package.__name__.split(".")[1] and name in offered(home)


def offered(name):
    return public_names(importlib.import_module(f"keras_tfm.{name}"))


def page(name):
    """The Markdown of a package's page."""
    package = importlib.import_module(f"keras_tfm.{name}")
    names = public_names(package)
    return PAGE.format(
        name=f"keras_tfm.{name}",
        names="\n".join(f"   {each}" for each in names),
        members="\n".join(directive(package, each) for each in names),
    )


def write_pages(app):
    folder = Path(app.srcdir, "api")
    folder.mkdir(exist_ok=True)
    for name in PACKAGES:
        write(folder / f"{name}.md", page(name))
    write(folder / "index.md", INDEX.format(pages="\n".join(PACKAGES)))


def write(path, text):
    """A page that stays the same keeps its time, so that Sphinx does not read it again."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def setup(app):
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
