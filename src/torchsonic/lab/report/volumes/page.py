"""The report on volumes as one HTML file that needs no other."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template

from torchsonic.lab.report.table1.elements import embed, item_list, read_part, scrollable, warning_box
from torchsonic.lab.report.volumes.results import Evaluation, compare, find_warnings
from torchsonic.lab.report.volumes.words import (
    Cell,
    about_line,
    case_rows,
    case_words,
    cost_headers,
    difference_rows,
    explanations,
    lesion_headers,
    lesion_rows,
    score_groups,
    score_rows,
    spacing_words,
)
from torchsonic.lab.runs.provenance import summary_line

__all__ = ["to_html"]

OPEN = 6
"""Cases whose pictures are shown without a click."""


def to_html(evaluation: Evaluation) -> str:
    """The whole page."""
    lesions, differences = _lesions(evaluation), _differences(evaluation)
    links = '<a href="#differences">Differences</a>' if differences else ""
    links += '<a href="#lesions">Lesions</a>' if lesions else ""
    return Template(read_part("page.html", __package__ or "")).substitute(
        title=escape(evaluation.title),
        style=read_part("page.css"),
        about=escape(about_line(evaluation)),
        links=links,
        warnings=warning_box(find_warnings(evaluation)),
        scores=_scores(evaluation),
        notes="".join(f"<p>{escape(sentence)}</p>" for sentence in explanations(evaluation)),
        differences=differences,
        lesions=lesions,
        cases=_cases(evaluation),
        pictures="".join(_case(evaluation, place, name) for place, name in enumerate(evaluation.cases)),
        origin=_origin(evaluation),
        skipped=_skipped(evaluation),
    )


def _cell(cell: Cell) -> str:
    shown = f"<b>{escape(cell.text)}</b>" if cell.best else escape(cell.text)
    return shown + (f"<br><small>{escape(cell.interval)}</small>" if cell.interval else "")


def _pair_head(groups: Sequence[str], others: Sequence[str]) -> str:
    """Two lines of headings: groups over Dice and NSD, then columns of their own."""
    top = "".join(f'<th scope="colgroup" colspan="2">{escape(group)}</th>' for group in groups)
    top += "".join(f'<th scope="col" rowspan="2">{escape(word)}</th>' for word in others)
    second = '<th scope="col">Dice</th><th scope="col">NSD</th>' * len(groups)
    return f'<thead><tr><td rowspan="2"></td>{top}</tr><tr>{second}</tr></thead>'


def _pairs(words: Sequence[str]) -> str:
    """Cells of Dice and NSD in turn; a line stands behind each pair."""
    return "".join(f"<td{' class=diff' if place % 2 else ''}>{word}</td>" for place, word in enumerate(words))


def _scores(evaluation: Evaluation) -> str:
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{_pairs([_cell(cell) for cell in cells])}'
        f"{''.join(f'<td>{escape(word)}</td>' for word in costs)}</tr>"
        for name, cells, costs in score_rows(evaluation)
    )
    head = _pair_head(score_groups(evaluation), cost_headers(evaluation))
    return scrollable(
        "Dice and NSD of each model and class, and what it costs", f"{head}<tbody>{body}</tbody>", "scores"
    )


def _plain_table(caption: str, headers: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    head = "".join(f'<th scope="col">{escape(word)}</th>' for word in headers)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{word}</td>" for word in rest)}</tr>' for first, rest in rows
    )
    return scrollable(caption, f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>", "plain")


def _differences(evaluation: Evaluation) -> str:
    found = difference_rows(compare(evaluation.models))
    if not found:
        return ""
    rows = [(escape(name), [*map(_cell, cells), escape(count)]) for name, cells, count in found]
    table = _plain_table("Differences between models", ("difference of means", "Dice", "NSD", "cases"), rows)
    note = "Case by case, over the cases that both have: an interval without zero is a difference that shows."
    return f'<section><h2 id="differences">Differences</h2>{table}<p class="about">{note}</p></section>'


def _lesions(evaluation: Evaluation) -> str:
    found = lesion_rows(evaluation)
    if not found:
        return ""
    rows = [(escape(name), [_cell(cell) for cell in cells]) for name, cells in found]
    table = _plain_table("Detection of lesions", ("model", *lesion_headers()), rows)
    return f'<section><h2 id="lesions">Lesions</h2>{table}</section>'


def _cases(evaluation: Evaluation) -> str:
    rows = [
        (f'<a href="#case{place}">{escape(name)}</a>', [escape(spacing), *map(escape, words)])
        for place, (name, spacing, words) in enumerate(case_rows(evaluation))
    ]
    headers = ("case", "spacing (D, H, W)", *[model.name for model in evaluation.models])
    return _plain_table("Mean Dice of each case", headers, rows)


def _case(evaluation: Evaluation, place: int, name: str) -> str:
    headers = cost_headers(evaluation)[1:]  # parameters do not differ from case to case
    body = "".join(
        f'<tr><th scope="row">{escape(model.name)}</th>{_pairs([escape(word) for word in scores])}'
        f"{''.join(f'<td>{escape(word)}</td>' for word in costs[: len(headers)])}</tr>"
        for model in evaluation.models
        if name in model.cases
        for scores, costs in [case_words(model.cases[name])]
    )
    head = _pair_head(evaluation.classes, headers)
    title = f"{name}, {spacing_words(evaluation.spacings[name])}"
    picture = embed(evaluation.pictures[name], name, kind="webp") if name in evaluation.pictures else ""
    return (
        f'<details id="case{place}"{" open" if place < OPEN else ""}><summary><b>{escape(name)}</b>, '
        f"{escape(spacing_words(evaluation.spacings[name]))}</summary>"
        f"<figure>{picture}</figure>"
        f"{scrollable(title, f'{head}<tbody>{body}</tbody>', 'scores')}</details>"
    )


def _origin(evaluation: Evaluation) -> str:
    items = [escape(summary_line(dict(evaluation.run)).replace("`", ""))]
    for model in evaluation.models:
        command = model.origin.get("command")
        trained = f", trained by <code>{escape(str(command))}</code>" if command else ""
        commit = f" at commit {escape(str(model.origin['commit'])[:10])}" if model.origin.get("commit") else ""
        items.append(f"{escape(model.name)}: <code>{escape(model.source)}</code>{trained}{commit}")
    return item_list(items)


def _skipped(evaluation: Evaluation) -> str:
    if not evaluation.skipped:
        return ""
    items = item_list(f"<code>{escape(name)}</code>: {escape(reason)}" for name, reason in evaluation.skipped)
    return f'<section><h2 id="skipped">Left out ({len(evaluation.skipped)})</h2>{items}</section>'
