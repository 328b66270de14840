"""Formulas as MathML, which browsers draw by themselves: pages need no script and no font from elsewhere."""

import re

from docutils import nodes
from latex2mathml.converter import convert

# `\begin{split}` is what Sphinx puts around lines that are aligned.
ALIGNED = re.compile(r"\\(begin|end)\{(?:split|align\*?|aligned)\}")
# latex2mathml makes operators of infinity and of names such as softmax, and browsers leave gaps around those.
# A name needs a gap only before what follows without a bracket, as in log p.
NAMES = re.compile(r"<mo>(&#x0221E;|[A-Za-z]{2,})</mo>")
BEFORE_LETTERS = re.compile(r"(<mi>[A-Za-z]{2,}</mi>)(?=<m(?:i|n|sub|sup|over)>)")


def to_mathml(formula, display="inline"):
    """The MathML of a LaTeX `formula`."""
    latex = " ".join(formula.split())
    found = convert(ALIGNED.sub(r"\\\1{align*}", latex), display=display)
    return BEFORE_LETTERS.sub(r'\1<mspace width="0.17em"/>', NAMES.sub(r"<mi>\1</mi>", found))


def visit_inline(translator, node):
    translator.body.append(to_mathml(node.astext()))
    raise nodes.SkipNode


def visit_block(translator, node):
    formula = to_mathml(node.astext(), "block")
    translator.body.append(f'<div class="math-block">{formula}</div>\n')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
