"""Pages about runs, models and data: one document, shown as HTML, Markdown and on a console.

A page is a function that takes results and returns a :class:`Document`; ``table1``, ``image_sizes``, ``volumes`` and
``explain`` have one each.
"""

from torchsonic.lab.report.console import print_document
from torchsonic.lab.report.document import Cell, Code, Column, Document, Figure, Group, Items, Prose, Section, Table
from torchsonic.lab.report.files import to_html, write_document
from torchsonic.lab.report.markdown import to_markdown

__all__ = [
    "Cell",
    "Code",
    "Column",
    "Document",
    "Figure",
    "Group",
    "Items",
    "Prose",
    "Section",
    "Table",
    "print_document",
    "to_html",
    "to_markdown",
    "write_document",
]
