"""Settings of a run as JSON holds them, and back: what a damaged file holds is refused by its name."""

from __future__ import annotations

import json
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

C = TypeVar("C")
PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path", None: "null"}


class SettingsError(ValueError):
    """A setting that cannot be read; the message names the file and the setting."""


def plain_settings(config: Any) -> dict[str, Any]:
    """A dataclass of settings as JSON gives it back: tuples as lists, paths as text."""
    return json.loads(json.dumps(asdict(config), default=lambda path: path.as_posix()))


def public_settings(config: Any) -> dict[str, Any]:
    """The same with the last part of every path alone: results are passed on, and nobody needs to see the folders."""
    plain = plain_settings(config)
    found = {name: Path(text) for name, text in plain.items() if isinstance(text, str)}
    named = {name for name in found if isinstance(getattr(config, name), Path)}
    return plain | {name: path.name for name, path in found.items() if name in named or path.is_absolute()}


def choose_preset(config: C, presets: Mapping[str, Mapping[str, Any]], name: str) -> C:
    """A configuration with the settings of a preset; those of a group, such as ``training``, come as a mapping."""
    if name not in presets:
        raise ValueError(f"preset must be one of {', '.join(presets)}, got {name!r}")
    return _change(config, presets[name])


def _change(config: C, changes: Mapping[str, Any]) -> C:
    values = {n: _change(getattr(config, n), v) if isinstance(v, Mapping) else v for n, v in changes.items()}
    return replace(config, **values)  # type: ignore[type-var]


def with_absolute_paths(config: C) -> C:
    """A configuration whose paths are the same wherever a command is given."""
    found = {field.name: getattr(config, field.name) for field in fields(config)}  # type: ignore[arg-type]
    paths = {name: Path(os.path.abspath(path)) for name, path in found.items() if isinstance(path, Path)}
    return replace(config, **paths)  # type: ignore[type-var]


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings, overridden by others."""
    both = dict(first)
    for name, value in second.items():
        nested = isinstance(value, Mapping) and isinstance(both.get(name), Mapping)
        both[name] = merged(both[name], value) if nested else value
    return both


def complete_settings(cls: type[C], values: Mapping[str, Any], where: str) -> C:
    """Settings of an older run: a class may say as ``before`` what runs did that are older than a setting."""
    return parse_settings(cls, merged(getattr(cls, "before", {}), values), where)


def parse_settings(cls: type[C], values: Any, where: str) -> C:
    """A dataclass from what JSON holds; a setting that ``where`` leaves out has its default, also within a group."""
    if not isinstance(values, Mapping):
        raise SettingsError(f"{where} must be an object of settings, got {values!r}")
    hints = get_type_hints(cls)
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    unknown = sorted(values.keys() - known)
    if unknown:
        raise SettingsError(
            f"{where} has a setting {unknown[0]!r} that this version does not know; correct its name or update "
            "torchsonic"
        )
    # A group's own defaults may differ from those of its class: volumes train in batches of 2, signals of 32.
    groups = {f.name: f.default_factory() for f in fields(cls) if f.default_factory is not MISSING}  # type: ignore[arg-type]
    given = {
        name: merged(plain_settings(groups[name]), value)
        if isinstance(value, Mapping) and is_dataclass(groups.get(name))
        else value
        for name, value in values.items()
    }
    read = {name: read_value(value, hints[name], f"{where}: {name}") for name, value in given.items()}
    try:
        return cls(**read)
    except ValueError as error:
        raise SettingsError(f"{where}: {error}") from error


def read_value(value: Any, hint: Any, where: str) -> Any:
    """A value of the type that a hint asks for; ``where`` is what an error message begins with."""
    if is_dataclass(hint):
        return parse_settings(hint, value, where)  # type: ignore[arg-type]
    for member in _members(hint):
        found = _read_as(value, member)
        if found is not _NOTHING:
            return found
    raise SettingsError(f"{where} must be {_words(hint)}, got {value!r}")


_NOTHING = object()


def _members(hint: Any) -> tuple[Any, ...]:
    """The types that a hint offers."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _read_as(value: Any, member: Any) -> Any:
    if get_origin(member) is Literal:
        return value if value in get_args(member) else _NOTHING
    if get_origin(member) in (tuple, Sequence):
        return _read_list(value, get_args(member), list if get_origin(member) is Sequence else tuple)
    if member is type(None):
        return None if value is None else _NOTHING
    if isinstance(value, bool) != (member is bool):
        return _NOTHING
    if member is float and isinstance(value, int):
        return float(value)
    if member is Path and isinstance(value, str):
        return Path(value)
    return value if isinstance(value, member) else _NOTHING


def _read_list(value: Any, members: tuple[Any, ...], make: Callable[[Iterable[Any]], Any]) -> Any:
    if not isinstance(value, (list, tuple)):
        return _NOTHING
    if make is list or members[-1] is Ellipsis:
        members = members[:1] * len(value)
    if len(value) != len(members):
        return _NOTHING
    read = [_read_as(item, member) for item, member in zip(value, members, strict=True)]
    return _NOTHING if any(item is _NOTHING for item in read) else make(read)


def _words(hint: Any) -> str:
    return " or ".join(map(_type_words, _members(hint)))


def _type_words(member: Any) -> str:
    if get_origin(member) is Literal:
        return f"one of {', '.join(map(repr, get_args(member)))}"
    if get_origin(member) in (tuple, Sequence):
        return f"a list, each {_words(get_args(member)[0])}"
    return PLAIN[None if member is type(None) else member]
