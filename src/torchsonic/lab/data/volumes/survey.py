"""A look at every case before the work begins, so that what is wrong with any is known."""

from __future__ import annotations

import hashlib
import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from torchsonic.lab.data.volumes.cases import Case, CaseError
from torchsonic.lab.data.volumes.nifti import Volume, read_case
from torchsonic.lab.data.volumes.orientation import axis_codes, oblique_degrees


@dataclass(frozen=True)
class Facts:
    """What is known of a case without its voxels."""

    name: str
    channels: int
    shape: tuple[int, int, int]
    spacing: tuple[float, float, float]
    classes: tuple[int, ...]
    """Label values that occur."""
    digest: str = ""
    """Of the files: the same names may hold other voxels another time."""
    axes: str = "RAS"
    """Where the axes point, as :func:`axis_codes` says."""
    oblique: float = 0.0
    """See :func:`oblique_degrees`."""


def survey(
    cases: Sequence[Case],
    *,
    read: Callable[..., Volume] = read_case,
    num_classes: int | None = None,
    keep_going: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> tuple[list[Facts], int, dict[str, str]]:
    """Read every case once and check it, alone and beside the others.

    Parameters
    ----------
    read
        Like :func:`read_case`.
    num_classes
        By default found from the labels: the classes are 0 to K - 1, as far as there is no gap. A case with other
        values is a bad one.
    keep_going
        Leave bad cases out with a warning; otherwise the first one raises.
    advance
        Called after each case.

    Returns
    -------
    tuple
        Facts of the good cases, the number of classes, and why each of the others was left out.
    """
    facts: list[Facts] = []
    left_out: dict[str, str] = {}

    def refuse(error: CaseError) -> None:
        if not keep_going:
            raise error
        warnings.warn(f"left out: {error}", stacklevel=3)
        left_out[error.case] = str(error)

    for case in cases:
        try:
            facts.append(_look_at(read(case, num_classes=num_classes), case))
        except CaseError as error:
            refuse(error)
        advance()
    by_name = {case.name: case for case in cases}
    if num_classes is None:
        values = {value for fact in facts for value in fact.classes}
        num_classes = max(1, next(number for number in itertools.count() if number not in values))
        for fact in facts:
            if fact.classes and fact.classes[-1] >= num_classes:
                problem = (
                    f"label value {fact.classes[-1]}, but no case holds {num_classes}, and classes count from 0 "
                    "without gaps; relabel or remove the case, or give the number of classes"
                )
                refuse(CaseError(fact.name, by_name[fact.name].label or by_name[fact.name].images[0], problem))
    counts = [fact.channels for fact in facts if fact.name not in left_out] or [0]
    usual = max(set(counts), key=counts.count)
    for fact in facts:
        if fact.channels != usual and fact.name not in left_out:
            problem = f"the image has {fact.channels} channels, but most cases have {usual}; add or remove files"
            refuse(CaseError(fact.name, by_name[fact.name].images[0], problem))
    return [fact for fact in facts if fact.name not in left_out], num_classes, left_out


def digest_files(case: Case) -> str:
    """A digest of the bytes of a case's files."""
    digest = hashlib.sha256()
    for file in (*case.images, *([case.label] if case.label else [])):
        if file.exists():
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _look_at(volume: Volume, case: Case) -> Facts:
    _, depth, height, width = volume.image.shape
    classes = () if volume.label is None else tuple(int(value) for value in np.unique(volume.label))
    shape, lies = (depth, height, width), (axis_codes(volume.affine), oblique_degrees(volume.affine))
    return Facts(volume.name, len(volume.image), shape, volume.spacing, classes, digest_files(case), *lies)
