"""What builds the pages: the markup of docstrings, formulas, the reference, the check of what was built."""

import json
import shutil
import subprocess
import sys
import types

import pytest

import keras_tfm
import keras_tfm.data
import keras_tfm.layers
import keras_tfm.training
from tests.docs.pages import ROOT, module

DOCS = ROOT / "docs"
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the pages are not part of the wheel")


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Gives `x` * 2.", ["Gives ``x`` \\* 2.", ""]),
        ("one\nparagraph\n\nand another", ["one paragraph", "", "and another", ""]),
        ("`x`s and (`y`)^2", ["``x``\\ s and (\\ ``y``\\ )^2", ""]),
        ("of names_ and |x|", ["of names\\_ and \\|x\\|", ""]),
        ("So:\n\n    layer(x)\n", ["So:", "", "::", "", "        layer(x)", ""]),
        ("name      shape\ntoken_ids (B, S)", ["::", "", "    name      shape", "    token_ids (B, S)", ""]),
        ("- `one`\n- two", ["- ``one``", "- two", ""]),
        (
            "Args:\n    x: of `y`\n        and more.\n    z_1: other.",
            [":param x: of ``y`` and more.", ":param z_1: other.", ""],
        ),
        ("Raises:\n    ValueError: if it is.", [":raises ValueError: if it is.", ""]),
        (">>> f(`x`)\n2\n", [">>> f(`x`)", "2", ""]),
    ],
)
def test_docstrings_become_restructured_text(docstring, expected):
    pytest.importorskip("sphinx", reason="the extra `docs` brings it")
    convert = module(DOCS / "extensions" / "docstrings.py").as_restructured_text
    assert convert(docstring.split("\n")) == expected


def test_formulas_become_mathml():
    pytest.importorskip("latex2mathml", reason="the extra `docs` brings it")
    convert = module(DOCS / "extensions" / "mathml.py").to_mathml
    inline, block = convert(r"x_t \in \mathbb{R}^{D}"), convert("a &= b \\\\\n c &= d", "block")
    assert inline.startswith("<math") and 'display="inline"' in inline and "<msub>" in inline
    assert 'display="block"' in block and "\\" not in block
    name, before_letter = convert(r"\operatorname{softmax}(x)"), convert(r"\log p")
    assert "<mi>softmax</mi><mo" in name and '<mi>log</mi><mspace width="0.17em"/><mi>p</mi>' in before_letter
    assert "<mi>&#x0221E;</mi>" in convert(r"-\infty")


def test_the_reference_has_what_packages_offer():
    reference = module(DOCS / "extensions" / "reference.py")
    assert reference.public_names(keras_tfm.data) == keras_tfm.data.__all__
    names = reference.public_names(keras_tfm.layers)
    assert {"TransformerBlock", "dot_product_attention", "Layer"} <= {*names} and "attention" not in names
    assert not {"os", "Any", "annotations"} & {*reference.public_names(keras_tfm.training)}
    text = reference.page("layers")
    assert ".. autoclass:: TransformerBlock\n   :members:" in text and ".. autofunction:: causal_mask" in text
    assert ":no-index:" not in text  # a name is at home on one page
    assert "CheckpointError\n   :members:\n   :show-inheritance:\n   :no-index:" in reference.page("convert")
    packages = {name.partition(".")[0] for name in reference.PACKAGES}
    assert {*keras_tfm.__all__} - packages == {"Model", "__version__", "export"}  # `export` offers nothing


def test_texts_of_pages_are_what_the_search_excerpts(tmp_path):
    excerpts = module(DOCS / "extensions" / "excerpts.py")
    page = (
        '<nav>Elsewhere</nav><article role="main" id="main"><h1>Sums<a class="headerlink" href="#">#</a></h1>'
        "<p>a &lt; <em>b</em>, c<script>x()</script></p><p>d</p></article><footer>end</footer>"
    )
    (tmp_path / "_static").mkdir()
    (tmp_path / "guides").mkdir()
    (tmp_path / "guides" / "sums.html").write_text(page)
    excerpts.write_texts(types.SimpleNamespace(outdir=tmp_path), None)
    script = (tmp_path / "_static" / "texts.js").read_text("utf-8")
    texts = json.loads(script.removeprefix("const TEXTS = ").rstrip(";\n"))
    assert texts == {"guides/sums.html": "Sums a < b, c d"}


PAGE = '<html><a id="here" href="#here">a</a>{}</html>'
WRONG = {
    '<a href="none.html">': "index.html: none.html leads to no file",
    '<a href="#nowhere">': "index.html: #nowhere leads to no place on its page",
    '<a href="other.html#nowhere">': "index.html: other.html#nowhere leads to no place on its page",
    '<img src="gone.png">': "index.html: gone.png leads to no file",
    '<script src="https://cdn.example/x.js"></script>': "index.html: loads https://cdn.example/x.js",
    '<link rel="stylesheet" href="//fonts.example/x.css">': "index.html: loads //fonts.example/x.css",
}


def test_pages_are_checked(tmp_path, capsys):
    check = module(DOCS / "check.py")
    assert check.problems(tmp_path) == [f"{tmp_path}: no pages"]
    (tmp_path / "index.html").write_text(
        PAGE.format('<a href="other.html#here"><a href="https://example.org">')
    )
    (tmp_path / "other.html").write_text(PAGE.format(""))
    (tmp_path / "searchindex.js").write_text(f'Search.setIndex({{"{" ".join(check.FOUND_BY_SEARCH)}"}})')
    assert check.problems(tmp_path) == []
    check.main(tmp_path)
    assert "2 pages" in capsys.readouterr().out
    for text, line in WRONG.items():
        (tmp_path / "index.html").write_text(PAGE.format(text))
        assert check.problems(tmp_path) == [line]
    (tmp_path / "index.html").write_text(PAGE.format(""))
    (tmp_path / "a.css").write_text('@import "https://fonts.example/a.css"; b { background: url(data:x) }')
    (tmp_path / "searchindex.js").write_text("Search.setIndex({})")
    with pytest.raises(SystemExit, match="5 problems"):
        check.main(tmp_path)
    assert "a.css: loads https://fonts.example/a.css" in capsys.readouterr().err


@pytest.mark.slow
def test_the_pages_build_without_a_network(tmp_path):
    """As `make docs` does, warnings as errors; where the system allows it, in a namespace without a
    network.
    """
    pytest.importorskip("sphinx", reason="the extra `docs` brings it")
    alone = ["unshare", "-rn"] if shutil.which("unshare") else []
    if alone and subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        alone = []
    build = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-d",
        tmp_path / "trees",
    ]
    done = subprocess.run(
        [*alone, *build, DOCS, tmp_path / "html"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert module(DOCS / "check.py").problems(tmp_path / "html") == []
