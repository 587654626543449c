"""The numbers of the paper's tables and figures, to be shown beside ours."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, NamedTuple


class PaperCost(NamedTuple):
    """What the paper prints of a model; ``None`` where it prints nothing."""

    params_millions: float | None
    gflops: float | None
    """Of one forward pass, 2 for each multiply-add; the tables of synthetic shapes print half of it, as GMACs."""


def paper_results() -> dict[str, Any]:
    """All tables and figures by name, as in ``paper.json`` beside this file.

    Examples
    --------
    >>> paper_results()["imagenet_50m"]["rows"]["ResNet-50 Sonic"][0]
    1.34
    """
    text = files("torchsonic.lab.metrics").joinpath("paper.json").read_text(encoding="utf-8")
    return json.loads(text)


def paper_cost(row: str | None, task: str, num_axes: int) -> PaperCost:
    """Parameters and GFLOPs of a row of the table that speaks of a task.

    Parameters
    ----------
    row
        As the paper names it; ``None`` for a model that it does not have.
    task
        ``classification`` is the ImageNet table; ``segmentation`` that of synthetic shapes in two dimensions and that
        of medical volumes in three.

    Examples
    --------
    >>> paper_cost("ConvNet", "segmentation", 2)
    PaperCost(params_millions=0.153, gflops=0.312)
    """
    if row is None:
        return PaperCost(None, None)
    results = paper_results()
    if task == "classification":
        table = results["imagenet_50m"]
    elif num_axes == 3:
        table = results["medical_3d"]
    else:
        tests = {test["test"]: test["values"] for test in results["synthshape_halligalli"]["rows"]}
        return PaperCost(tests["params_millions"][row], 2 * tests["gmacs"][row])
    found = dict(zip(table["columns"], table["rows"][row], strict=True))
    return PaperCost(found["params_millions"], found.get("gflops"))
