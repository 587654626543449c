"""``evaluate RUN`` and ``predict RUN``: the run says its kind, so that users need not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from torchsonic.cli.command import UserError

__all__ = ["name_kind"]


def name_kind(arguments: Sequence[str], kinds: Mapping[str, Collection[str]]) -> list[str]:
    """Arguments in which ``evaluate RUN`` says of what kind the run is.

    Parameters
    ----------
    kinds
        Of each command that takes runs.
    """
    words = list(arguments)
    known = kinds.get(words[0], ()) if words else ()
    if len(words) < 2 or not known or words[1].startswith("-") or words[1] in known:
        return words
    from torchsonic.lab.runs.folder import RunError, kind_of, model_kind

    folder = Path(words[1])
    try:
        kind = model_kind(folder) or kind_of(folder)
    except RunError as error:
        raise UserError(f"{folder} holds no finished run: {error}") from error
    if kind not in known:
        raise UserError(f"{words[0]}: {folder} is a run on {kind} data; this command knows {', '.join(known)}")
    return [words[0], kind, *words[1:]]
