"""Formulas as MathML, which browsers draw by themselves: pages need no script and no font from elsewhere."""

import re

from docutils import nodes
from latex2mathml.converter import convert

# `\begin{split}` is what Sphinx puts around lines that are aligned.
ALIGNED = re.compile(r"\\(begin|end)\{(?:split|align\*?|aligned)\}")
# latex2mathml makes operators of names such as softmax, and of infinity, around which browsers leave gaps.
NAMES = re.compile(r"<mo>([A-Za-z]{2,}|&#x0221E;)</mo>")


def to_mathml(formula, display="inline"):
    """The MathML of a LaTeX `formula`."""
    latex = " ".join(formula.split())
    return NAMES.sub(r"<mi>\1</mi>", convert(ALIGNED.sub(r"\\\1{align*}", latex), display=display))


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
