"""Griffe extension: what docstrings say in reStructuredText, said in Markdown.

Formulas become MathML, which browsers draw by themselves, so that the site needs no script for them. Names in roles
such as ``:func:`` become links where the site has a page for them.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

from griffe import AliasResolutionError, Extension, NameResolutionError, Object
from latex2mathml.converter import convert

BLOCK = re.compile(
    r"^(?P<indent> *)\.\. math::(?P<first>[^\n]*)\n(?P<rest>(?:(?P=indent) +\S[^\n]*\n|[ ]*\n)*)", re.MULTILINE
)
INLINE = re.compile(r":math:`([^`]+)`")
ROLE = re.compile(r":(?:class|func|meth|mod):`([\w.]+)`")
SECTION = re.compile(r"^(?:Parameters|Attributes)\n-+\n.*?(?=^[^\n]+\n---|\Z)", re.MULTILINE | re.DOTALL)
TOGETHER = re.compile(r"^([*\w]+(?:, [*\w]+)+)\n((?: +\S.*\n|\n(?= ))+)", re.MULTILINE)
SHORT = {r"\tfrac": r"\frac", r"\Big": "", r"\bmod": r"\operatorname{mod}"}  # what the converter does not know


class Markdown(Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value, obj)


def to_markdown(text: str, place: Object) -> str:
    """A docstring with its formulas as MathML and its roles as links; ``place`` says what names mean."""
    text = SECTION.sub(lambda found: TOGETHER.sub(_apart, found[0]), text + "\n")
    text = BLOCK.sub(_block, text).rstrip("\n")
    text = INLINE.sub(lambda found: _mathml(found[1], "inline"), text)
    return ROLE.sub(lambda found: _link(found[1], place), text)


def _apart(found: re.Match[str]) -> str:
    """Parameters that share a description, one by one: else each would be shown with the type of the first."""
    return "".join(f"{name}\n{found[2]}" for name in found[1].split(", "))


def _block(found: re.Match[str]) -> str:
    indent = found["indent"]
    formula = f"{found['first']} {textwrap.dedent(found['rest'])}"
    return f'{indent}<div class="formula">{_mathml(formula, "block")}</div>\n\n'


def _mathml(formula: str, display: str) -> str:
    for long, short in SHORT.items():
        formula = formula.replace(long, short)
    # Markdown must not take stars and underscores for emphasis.
    return convert(" ".join(formula.split()), display=display).replace("*", "&#42;").replace("_", "&#95;")


def _link(name: str, place: Object) -> str:
    """A link if some page describes the object, else its name alone: autorefs leaves out optional targets."""
    try:
        target = name if name.startswith("torchsonic.") else place.resolve(name)
    except (NameResolutionError, AliasResolutionError):
        target = name
    return f'<autoref optional identifier="{target}"><code>{name.rpartition(".")[2]}</code></autoref>'
