"""The files of a report on image sizes."""

from __future__ import annotations

import io
import json
import math
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from torchsonic import __version__
from torchsonic.io import write_whole
from torchsonic.lab.report.image_sizes.figure import draw_sizes
from torchsonic.lab.report.image_sizes.results import RunFacts, SizeReport, find_warnings
from torchsonic.lab.report.image_sizes.words import (
    Rows,
    about_line,
    accuracy_rows,
    budget_rows,
    explanations,
    loss_rows,
    paper_curves,
    title,
    top5_rows,
    verdict_lines,
)
from torchsonic.lab.report.table1.elements import embed, item_list, read_part, scrollable, warning_box
from torchsonic.lab.report.table1.marks import as_list, as_table, as_text
from torchsonic.lab.runs.provenance import summary_line

__all__ = ["as_data", "to_html", "to_markdown", "write_report"]

DPI = 130
PICTURE = "sizes.png"


def write_report(report: SizeReport, folder: Path) -> list[Path]:
    """Write ``report.html``, ``report.md``, ``report.json`` and ``sizes.png``; a file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    draw_sizes(report).savefig(buffer, dpi=DPI)
    files: dict[str, bytes] = {
        "report.html": to_html(report, buffer.getvalue()).encode(),
        "report.md": to_markdown(report).encode(),
        "report.json": (json.dumps(as_data(report), indent=1, allow_nan=False) + "\n").encode(),
        PICTURE: buffer.getvalue(),
    }
    for name, data in files.items():
        write_whole(folder / name, data)
    return [folder / name for name in files]


def _origin(run: RunFacts) -> str:
    return f"{run.config.label}, seed {run.config.training.seed}: {summary_line(dict(run.results['run']))}"


def to_markdown(report: SizeReport) -> str:
    """The whole report."""
    parts = [f"# {title(report)}", as_text(about_line(report))]
    warnings = find_warnings(report)
    if warnings:
        parts += ["## Before comparing", as_list(map(as_text, warnings))]
    verdicts = verdict_lines(report)
    parts += [as_list(map(as_text, verdicts))] if verdicts else []
    parts += [f"![Top-1 over image sizes, and its loss beside the paper's]({PICTURE})", *explanations()]
    for heading, (headers, rows) in (
        ("Top-1 lost relative to the training size, percent", loss_rows(report)),
        ("Top-1, percent", accuracy_rows(report)),
        ("Top-5, percent", top5_rows(report)),
        ("Budget", budget_rows(report)),
    ):
        parts += [f"## {heading}", as_table(headers, rows, left=1)]
    origins = [summary_line(dict(report.run)), *map(_origin, report.runs)]
    parts += ["## Where the numbers come from", as_list(origins)]
    if report.left_out:
        parts += [f"## Left out ({len(report.left_out)})", as_list(map(as_text, report.left_out.values()))]
    return "\n\n".join(parts) + "\n"


def to_html(report: SizeReport, picture: bytes) -> str:
    """The report as one file that needs no other."""
    skipped = ""
    if report.left_out:
        items = item_list(map(escape, report.left_out.values()))
        skipped = f'<section><h2 id="skipped">Left out ({len(report.left_out)})</h2>{items}</section>'
    origins = [summary_line(dict(report.run)), *map(_origin, report.runs)]
    return Template(read_part("page.html", __package__ or "")).substitute(
        style=read_part("page.css"),
        title=title(report),
        about=escape(about_line(report)),
        warnings=warning_box(find_warnings(report)),
        verdicts="".join(f'<p class="rank">{escape(line)}</p>' for line in verdict_lines(report)),
        figure=embed(picture, "Top-1 over image sizes, and its loss beside the paper's"),
        notes="".join(f"<p>{escape(sentence)}</p>" for sentence in explanations()),
        losses=_table("Percent of top-1 lost at each size", loss_rows(report)),
        top1=_table("Top-1 at each size", accuracy_rows(report)),
        top5=_table("Top-5 at each size", top5_rows(report)),
        budget=_table("What each network costs and was trained with", budget_rows(report)),
        origin=item_list(escape(line.replace("`", "")) for line in origins),
        skipped=skipped,
    )


def _table(caption: str, content: Rows) -> str:
    headers, rows = content
    head = "".join(f'<th scope="col">{escape(word)}</th>' for word in headers)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{_cell(word)}</td>" for word in rest)}</tr>'
        for first, *rest in rows
    )
    return scrollable(caption, f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>", "plain")


def _cell(word: str) -> str:
    number, bracket, interval = word.partition(" (")
    return escape(number) + (f"<br><small>{escape(interval.rstrip(')'))}</small>" if bracket else "")


def as_data(report: SizeReport) -> dict[str, Any]:
    """Everything for JSON; hits of single images are bits, packed and written in hexadecimal digits."""
    return _plain(
        {
            "torchsonic": __version__,
            "run": dict(report.run),
            "images": report.images,
            "warnings": find_warnings(report),
            "verdicts": verdict_lines(report),
            "curves": [
                {
                    "model": curve.model,
                    "told": curve.told,
                    "resized": curve.resized,
                    "train_size": curve.train_size,
                    "points": [vars(point) for point in curve.points],
                    "runs": [run.folder.as_posix() for run in curve.runs],
                }
                for curve in report.curves
            ],
            "paper": paper_curves(),
            "runs": [
                {
                    "folder": run.folder.as_posix(),
                    "results": dict(run.results),
                    "hits": [
                        {"size": size, "told": told, "top1": _bits(top1), "top5": _bits(top5)}
                        for (size, told), (top1, top5) in run.hits.items()
                    ],
                }
                for run in report.runs
            ],
            "left_out": dict(report.left_out),
        }
    )


def _bits(hits: np.ndarray) -> str:
    return np.packbits(hits).tobytes().hex()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
