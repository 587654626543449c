"""Arguments of a network as words on the command line, checked against its constructor."""

from __future__ import annotations

import difflib
import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torchsonic.models import model_entry

__all__ = ["read_options"]

SET_ELSEWHERE = {"num_classes": "the folders of classes", "in_channels": "the images, which have three"}
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


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
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            raise ValueError(f"model_options: {name} has no argument {key!r}; {hint}")
        if _is_mapping(hints[key]):
            if not inner:
                raise ValueError(f"model_options: give entries of {key} one by one, as {key}.NAME=VALUE, got {word!r}")
            options.setdefault(key, dict(arguments.get(key) or {}))[inner] = _guess(text)
        elif inner:
            raise ValueError(f"model_options: {key} has no entries, got {word!r}")
        else:
            options[key] = _read(text, hints[key], word)
    return options


def _members(hint: Any) -> list[Any]:
    union = get_origin(hint) in (Union, types.UnionType)
    return [member for part in get_args(hint) for member in _members(part)] if union else [hint]


def _is_mapping(hint: Any) -> bool:
    return any(get_origin(member) in (Mapping, dict) for member in _members(hint))


def _read(text: str, hint: Any, word: str) -> Any:
    """A value of one of the types that a hint allows, the strictest first."""
    members = _members(hint)
    for member in sorted(members, key=lambda member: member is str):
        try:
            return _read_as(text, member)
        except ValueError:
            continue
    expected = " or ".join(_words(member) for member in members)
    raise ValueError(f"model_options: {word.partition('=')[0]} must be {expected}, got {text!r}")


def _read_as(text: str, member: Any) -> Any:
    if member is bool:
        if text.lower() not in TRUTHS:
            raise ValueError(text)
        return TRUTHS[text.lower()]
    if member in (int, float, str):
        return member(text)
    if get_origin(member) is Literal:
        if text not in get_args(member):
            raise ValueError(text)
        return text
    if get_origin(member) in (Sequence, list, tuple):
        return [_read_as(part, get_args(member)[0]) for part in text.strip("[]()").split(",")]
    if member is type(None) and text.lower() == "none":
        return None
    raise ValueError(text)


def _words(member: Any) -> str:
    names = {int: "an integer", float: "a number", str: "a word", bool: "true or false", type(None): "none"}
    if member in names:
        return names[member]
    if get_origin(member) is Literal:
        return f"one of {', '.join(map(str, get_args(member)))}"
    inner = {int: "integers", float: "numbers"}.get(get_args(member)[0], "values") if get_args(member) else "values"
    return f"{inner} with commas"


def _guess(text: str) -> Any:
    """A value of a mapping, whose types only the operator knows: it checks them itself."""
    if "," in text:
        return [_guess(part) for part in text.strip("[]()").split(",")]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
