"""Arguments of a network as words on the command line, checked against its constructor."""

from __future__ import annotations

import contextlib
import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin, get_type_hints

from torchsonic.lab.runs.settings import SettingsError, read_value
from torchsonic.models import model_entry

SET_ELSEWHERE = {"num_classes": "the folders of classes", "in_channels": "the images, which have three"}
TRUTHS = {"yes": True, "1": True, "no": False, "0": False}


def read_options(name: str, words: Sequence[str]) -> dict[str, Any]:
    """Arguments for :func:`torchsonic.create_model` from words ``name=value``.

    Values are read as the constructor annotates them; a list is written ``1,1,2,1``, an entry of a mapping
    ``operator_options.num_modes=8``. What a preset or the registry sets in a mapping stays unless it is named.

    Raises
    ------
    ValueError
        For an unknown name, with the nearest known one, and for a value of the wrong type.

    Examples
    --------
    >>> read_options("resnet50_niff", ["width=16", "depths=1,1,2,1", "operator_options.hidden=4,4"])
    {'width': 16, 'depths': [1, 1, 2, 1], 'operator_options': {'pointwise': True, 'hidden': [4, 4]}}
    """
    entry, arguments = model_entry(name)
    constructor = entry.build.__init__
    known = list(inspect.signature(constructor).parameters)[1:]
    hints = get_type_hints(constructor)
    options: dict[str, Any] = {}
    for word in words:
        path, equals, text = word.partition("=")
        key, _, inner = path.partition(".")
        if not equals or not key or not text:
            raise ValueError(f"model_options must be name=value, got {word!r}")
        if key in SET_ELSEWHERE:
            raise ValueError(f"model_options: {key} is set by {SET_ELSEWHERE[key]}")
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
            hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(known)}"
            raise ValueError(f"model_options: {name} has no argument {key!r}; {hint}")
        if _is_mapping(hints[key]):
            if not inner:
                raise ValueError(f"model_options: give entries of {key} one by one, as {key}.NAME=VALUE, got {word!r}")
            options.setdefault(key, dict(arguments.get(key) or {}))[inner] = _guess(text)
        elif inner:
            raise ValueError(f"model_options: {key} has no entries, got {word!r}")
        else:
            options[key] = _read(text, hints[key], key)
    return options


def _is_mapping(hint: Any) -> bool:
    return any(get_origin(member) in (Mapping, dict) for member in (hint, *get_args(hint)))


def _read(text: str, hint: Any, name: str) -> Any:
    """A value of the type that a hint asks for: what the text looks like, a list of that, or the text itself."""
    found = _guess(text)
    for value in (found, [found], TRUTHS.get(text.lower(), found)):
        with contextlib.suppress(SettingsError):
            return read_value(value, hint, name)
    return read_value(text, hint, f"model_options: {name}")


def _guess(text: str) -> Any:
    """What a text looks like; of an entry of a mapping only the operator knows the type, and checks it itself."""
    if "," in text:
        return [_guess(part) for part in text.strip("[]()").split(",")]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
