"""Which cases are learnt from and which are tested on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from torchsonic.lab.data.volumes import Case
from torchsonic.lab.data.volumes.survey import digest_files
from torchsonic.lab.runs.folder import read_facts


@dataclass(frozen=True)
class Split:
    """Names of cases."""

    train: tuple[str, ...]
    test: tuple[str, ...]

    def without(self, names: Sequence[str]) -> Split:
        """The split with some cases left out."""
        return Split(*[tuple(name for name in part if name not in names) for part in (self.train, self.test)])

    def hold_out(self, share: float, *, seed: int, patient: str | None) -> Split:
        """The training cases alone, some of them, with all of their patients' cases, to test on."""
        held = make_folds(self.train, round(1 / share), seed=seed, patient=patient)[0]
        return Split(tuple(name for name in self.train if name not in held), tuple(held))


def make_folds(names: Sequence[str], folds: int, *, seed: int = 0, patient: str | None = None) -> list[list[str]]:
    """Deal cases out to folds, all cases of a patient to the same one; a function of the arguments alone.

    Parameters
    ----------
    patient
        Regular expression searched for in each name: its first group, or all that it matches, is the patient. By
        default every case is one of its own.

    Examples
    --------
    >>> make_folds(["p1_a", "p1_b", "p2_a", "p3_a"], 3, patient="p[0-9]")
    [['p2_a'], ['p3_a'], ['p1_a', 'p1_b']]
    """
    owners = {name: _find_patient(name, patient) for name in sorted(names)}
    patients = sorted(set(owners.values()))
    if len(patients) == 1:
        raise ValueError("there is only one case or patient, so none is left for testing; add others")
    if len(patients) < folds:
        found = "1 case or patient is" if len(patients) == 1 else f"{len(patients)} cases or patients are"
        raise ValueError(f"{found} too few for folds={folds}; use fewer folds, more cases or a split file")
    order = np.random.Generator(np.random.Philox(key=[seed, 0])).permutation(len(patients))
    fold_of = {patients[index]: place % folds for place, index in enumerate(order)}
    return [[name for name, owner in owners.items() if fold_of[owner] == fold] for fold in range(folds)]


def _find_patient(name: str, pattern: str | None) -> str:
    if pattern is None:
        return name
    try:
        match = re.search(pattern, name)
    except re.error as error:
        raise ValueError(f"patient={pattern!r} is not a valid regular expression: {error}") from error
    if match is None:
        raise ValueError(f"patient={pattern!r} is not found in the name of case {name}")
    return match[1] if match.re.groups else match[0]


def read_split(path: Path) -> Split:
    """Names of cases from a JSON file ``{"train": [..], "test": [..]}``; ``test`` may be empty."""
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"split file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"split file {path} is not valid JSON: {error}") from error
    parts = [saved.get(name) if isinstance(saved, dict) else None for name in ("train", "test")]
    if not all(isinstance(part, list) and all(isinstance(name, str) for name in part) for part in parts):
        raise ValueError(f'split file {path} must contain {{"train": [names], "test": [names]}}')
    split = Split(*[tuple(sorted(part)) for part in parts if part is not None])
    for part in (split.train, split.test):
        twice = sorted({name for name in part if part.count(name) > 1})
        if twice:
            raise ValueError(f"split file {path} names case {twice[0]} twice")
    both = sorted(set(split.train) & set(split.test))
    if both:
        raise ValueError(f"split file {path} has case {both[0]} in train and in test; leave it in one of them")
    if not split.train:
        raise ValueError(f"split file {path} has no case in train")
    return split


def choose_split(
    names: Sequence[str], *, file: Path | None, folds: int, fold: int, seed: int, patient: str | None
) -> Split:
    """The split of a file, or one fold against the others; no patient is on both sides of either."""
    if file is None:
        parts = make_folds(names, folds, seed=seed, patient=patient)
        train = sorted(name for index, part in enumerate(parts) if index != fold for name in part)
        return Split(tuple(train), tuple(parts[fold]))
    split = read_split(file)
    unknown = [name for name in (*split.train, *split.test) if name not in set(names)]
    if unknown:
        raise ValueError(f"split file {file} names case {unknown[0]}, which is not in the data folder")
    learnt = {_find_patient(name, patient): name for name in split.train}
    for name in split.test:
        owner = _find_patient(name, patient)
        if owner in learnt:
            raise ValueError(
                f"split file {file} has {learnt[owner]} in train and {name} in test, both of patient {owner}; "
                "leave a patient in one of them"
            )
    return split


def find_learnt(
    folder: Path, data: Path, cases: Sequence[Case], find: Callable[[Path], Sequence[Case]]
) -> tuple[list[str], list[str]]:
    """Names of cases that a run was trained on, and of those that only have the name of one.

    Names say something only where the run's own data are not there to compare.

    Parameters
    ----------
    folder, data
        Of the run.
    cases
        Cases to test.
    find
        Finds the cases of ``data``.
    """
    facts, is_there = read_facts(folder / "split.json", "train"), (data / "images").is_dir()
    names = set(facts["train"])
    digests = {digest for name, digest in facts.get("digests", {}).items() if name in names}
    known = find(data) if is_there else []
    files = {file.resolve() for case in known if case.name in names for file in case.images}
    learnt = [
        case.name for case in cases if files & {file.resolve() for file in case.images} or digest_files(case) in digests
    ]
    return learnt, [] if is_there else [case.name for case in cases if case.name in names.difference(learnt)]
