"""The files of a report on volumes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from torchsonic import __version__
from torchsonic.io import write_whole
from torchsonic.lab.report.volumes.markdown import picture_name, to_markdown
from torchsonic.lab.report.volumes.page import to_html
from torchsonic.lab.report.volumes.results import Evaluation, compare, find_warnings

__all__ = ["as_data", "write_report"]


def write_report(evaluation: Evaluation, folder: Path) -> list[Path]:
    """Write ``report.html``, ``report.md``, ``report.json`` and ``pictures/``; a file appears whole or not at all."""
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    files: dict[str, bytes] = {
        "report.html": to_html(evaluation).encode(),
        "report.md": to_markdown(evaluation).encode(),
        "report.json": (json.dumps(as_data(evaluation), indent=1, allow_nan=False) + "\n").encode(),
    }
    for place, name in enumerate(evaluation.cases):
        if name in evaluation.pictures:
            files[picture_name(place, name)] = evaluation.pictures[name]
    for name, data in files.items():
        write_whole(folder / name, data)
    return [folder / name for name in files]


def as_data(evaluation: Evaluation) -> dict[str, Any]:
    """Everything but the pictures, for JSON; what has no score is ``None``."""
    return _plain(
        {
            "title": evaluation.title,
            "torchsonic": __version__,
            "run": dict(evaluation.run),
            "classes": list(evaluation.classes),
            "tolerance_mm": evaluation.tolerance,
            "warnings": find_warnings(evaluation),
            "models": [
                {
                    "name": model.name,
                    "source": model.source,
                    "parameters": model.parameters,
                    "seconds_per_case": model.seconds(),
                    "peak_bytes": model.peak_bytes(),
                    "summary": model.summary(),
                    "lesions": model.lesions(evaluation.threshold),
                    "run": dict(model.origin),
                    "cases": {
                        name: {
                            "scores": list(case.scores),
                            "seconds": case.seconds,
                            "peak_bytes": case.peak_bytes,
                            "findings": None if case.lesions is None else case.lesions["findings"],
                        }
                        for name, case in model.cases.items()
                    },
                }
                for model in evaluation.models
            ],
            "differences": [vars(difference) for difference in compare(evaluation.models)],
            "cases": [{"case": name, "spacing_mm": evaluation.spacings[name]} for name in evaluation.cases],
            "skipped": [{"case": name, "reason": reason} for name, reason in evaluation.skipped],
        }
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
