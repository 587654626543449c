"""Folders of classes: which images there are, and which of them cannot be used."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from torchsonic.lab.data.images.files import SUFFIXES, ImageError, check_header, map_images, read_image

Check = Literal["decode", "header"]
NAMED = 20
"""Bad images that are named one by one."""


@dataclass(frozen=True)
class ImageFolder:
    """Images of one part of a data set, sorted by class and name.

    Parameters
    ----------
    files
        Paths.
    labels
        Number of each file's class.
    classes
        Names of the classes: those of their folders.
    """

    files: tuple[Path, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    def take(self, places: Sequence[int]) -> ImageFolder:
        """Some of the images."""
        return replace(self, files=tuple(self.files[i] for i in places), labels=tuple(self.labels[i] for i in places))


def find_classes(folder: Path) -> tuple[str, ...]:
    """Names of the folders in a folder, sorted; these are the classes."""
    if not folder.is_dir():
        holder = next((parent for parent in folder.parents if parent.is_dir()), Path("."))
        found = _folders(holder)
        listing = f"; {holder} holds {', '.join(found[:6])}{' ..' if len(found) > 6 else ''}" if found else ""
        raise ValueError(f"there is no folder {folder}; images belong in train/CLASS/ and val/CLASS/{listing}")
    names = _folders(folder)
    if not names:
        raise ValueError(f"{folder} contains no folder; put the images of each class into a folder of its own")
    return tuple(names)


def _folders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def find_files(folder: Path) -> list[Path]:
    """Image files in a folder and those inside it, by suffix, sorted.

    Links are followed, each folder once; one to a folder that it lies in is not, since it would be followed for ever
    and show the images of other classes. Pipes and sockets, which can be waited for in vain, are left out; links that
    lead nowhere are not, so that they are missed.
    """
    found, visited = [], {os.path.realpath(folder)}

    def is_new(where: str, name: str) -> bool:
        place = Path(os.path.realpath(os.path.join(where, name)))
        known = str(place) in visited or Path(os.path.realpath(where)).is_relative_to(place)
        visited.add(str(place))
        return not known

    for where, folders, names in os.walk(folder, followlinks=True):
        inner = sorted(name for name in folders if not name.startswith("."))
        folders[:] = [name for name in inner if is_new(where, name)]
        chosen = (name for name in sorted(names) if Path(name).suffix.lower() in SUFFIXES and not name.startswith("."))
        found += [path for path in (Path(where) / name for name in chosen) if path.is_file() or not path.exists()]
    return found


def find_images(folder: Path, classes: Sequence[str] | None = None) -> ImageFolder:
    """Images of a folder that has a folder for each class.

    If classes are known, a folder of another name is refused, and those without a folder are named in a warning.
    """
    found = find_classes(folder)
    known = found if classes is None else tuple(classes)
    foreign = [name for name in found if name not in known]
    if foreign:
        raise ValueError(f"{folder / foreign[0]} is a class that training does not have; it has {_some(known)}")
    absent = [name for name in known if name not in found]
    if absent:
        warnings.warn(
            f"{folder} has no folder for {len(absent)} of {len(known)} classes: {_some(absent)}", stacklevel=2
        )
    files: list[Path] = []
    labels: list[int] = []
    for name in found:
        own = find_files(folder / name)
        if not own:
            raise ValueError(f"{folder / name} has no image ({', '.join(sorted(SUFFIXES))}); add some or remove it")
        files += own
        labels += [known.index(name)] * len(own)
    return ImageFolder(tuple(files), tuple(labels), known)


def leave_out_bad(
    images: ImageFolder,
    *,
    check: Check = "decode",
    strict: bool = False,
    keep: Callable[[int, Path], None] | None = None,
    advance: Callable[[], None] = lambda: None,
) -> tuple[ImageFolder, dict[str, str]]:
    """Look at every image once, on all cores.

    Parameters
    ----------
    check
        Decode images, or only look whether their first bytes are those of one.
    strict
        The first bad image raises; otherwise bad ones are left out with a warning.
    keep
        Called with the number and the path of each image in place of decoding it; raises :class:`ImageError` for a bad
        one.
    advance
        Called after each image.

    Returns
    -------
    tuple
        The good images, and why each of the others was left out.
    """

    def look(place: int) -> None:
        if check == "header":
            check_header(images.files[place])
        elif keep is not None:
            keep(place, images.files[place])
        else:
            read_image(images.files[place])

    good: list[int] = []
    bad: dict[str, str] = {}
    for place, found in enumerate(map_images(look, range(len(images)))):
        advance()
        if not isinstance(found, ImageError):
            good.append(place)
        elif strict:
            raise found
        else:
            bad[str(images.files[place])] = str(found)
    _tell_bad(images, good, bad)
    return images.take(good), bad


def _tell_bad(images: ImageFolder, good: Sequence[int], bad: Mapping[str, str]) -> None:
    """Warn of bad images; a class of which no image is left raises."""
    for problem in list(bad.values())[:NAMED]:
        warnings.warn(f"left out: {problem}", stacklevel=3)
    if len(bad) > NAMED:
        warnings.warn(f"left out: {len(bad) - NAMED} more images, {len(bad)} of {len(images)} in all", stacklevel=3)
    empty = set(images.labels) - {images.labels[place] for place in good}
    if empty:
        first = images.labels.index(min(empty))
        raise ValueError(
            f"every image of class {images.classes[min(empty)]} is unreadable; the first: "
            f"{bad[str(images.files[first])]}; repair some or remove the folder"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
