"""What the documentation site does to docstrings and links; `make docs` builds it and is part of `make check`."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def hook(name, *packages):
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is of the extra docs")
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "hooks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Place:
    def resolve(self, name):
        return f"torchsonic.nn.{name}"


def test_formulas_become_mathml():
    docstrings = hook("docstrings", "griffe", "latex2mathml")
    text = docstrings.to_markdown("Sum.\n\n.. math:: y = \\sum_m\n   x_m * 2\n\nof :math:`x_m`.", Place())
    first, block, last = text.split("\n\n")
    assert (first, last[:3], last[-1]) == ("Sum.", "of ", ".")
    assert block.startswith('<div class="formula"><math')
    assert block.count("<msub>") == 1
    assert last.count('display="inline"') == 1
    assert not {"*", "_", "\\"} & set(block + last), "Markdown would read these"


def test_roles_become_links_to_the_full_name():
    docstrings = hook("docstrings", "griffe", "latex2mathml")
    text = docstrings.to_markdown("See :class:`SonicConv2d` and :func:`torchsonic.models.create_model`.", Place())
    assert 'identifier="torchsonic.nn.SonicConv2d"><code>SonicConv2d</code>' in text
    assert 'identifier="torchsonic.models.create_model"><code>create_model</code>' in text


def test_parameters_described_together_are_shown_one_by_one():
    docstrings = hook("docstrings", "griffe", "latex2mathml")
    before = "Do.\n\nParameters\n----------\na, b\n    Both.\nc\n    One.\n\nReturns\n-------\nx, y\n    Kept."
    after = (
        "Do.\n\nParameters\n----------\na\n    Both.\nb\n    Both.\nc\n    One.\n\nReturns\n-------\nx, y\n    Kept."
    )
    assert docstrings.to_markdown(before, Place()) == after


def test_links_to_results_point_to_their_place_on_the_site():
    pages = hook("results_pages", "mkdocs")
    assert pages.on_page_markdown("[a](../results/bench/init.md)") == "[a](results/bench/init.md)"
    assert pages.on_page_markdown("[a](results/init.md) `../results`") == "[a](results/init.md) `../results`"


def test_a_result_without_heading_is_refused():
    pages = hook("results_pages", "mkdocs")
    assert pages._overview({"results/a/b.md": "# Speed\n"}).endswith("- [Speed](a/b.md)\n")
    with pytest.raises(ValueError, match=r"results/a/b\.md has no heading"):
        pages._overview({"results/a/b.md": "Speed\n"})


@pytest.mark.parametrize("tag", ['<script src="https://x.org/a.js">', '<link rel="a" href="//x.org/a.css">'])
def test_a_page_that_loads_from_elsewhere_is_refused(tag, tmp_path):
    hosts = hook("foreign_hosts", "mkdocs")

    class Config:
        site_dir = str(tmp_path)

    (tmp_path / "index.html").write_text('<a href="https://x.org">one may link</a><img src="a.png">')
    hosts.on_post_build(Config())
    (tmp_path / "page.html").write_text(tag)
    with pytest.raises(hosts.PluginError, match=r"page\.html loads from a foreign host"):
        hosts.on_post_build(Config())


def test_short_cells_stay_on_one_line():
    layout = hook("layout")
    shown = layout.on_page_content('<td>2d-64-16-128</td><td style="a">a cell of many words</td>')
    assert shown == '<td><span class="word">2d-64-16-128</span></td><td style="a">a cell of many words</td>'


def test_a_notebook_becomes_a_page_with_its_outputs():
    notebooks = hook("notebooks", "mkdocs")
    printed = {"output_type": "stream", "text": ["3\n", "4\n"]}
    drawn = {"output_type": "display_data", "data": {"image/png": "AAAA", "text/plain": ["<Figure>"]}}
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {"cell_type": "code", "source": ["print(3)\n", "print(4)"], "outputs": [printed, drawn]},
    ]
    text, pictures = notebooks.to_markdown({"cells": cells}, "a")
    assert text.startswith("# Title\ntext\n\n```python\nprint(3)\nprint(4)\n```\n\n```text\n3\n4\n```\n\n![")
    assert pictures == {"a-0.png": bytes(3)}
    assert "(a-0.png)" in text
