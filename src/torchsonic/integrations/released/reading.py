"""Reading a file of weights without executing anything in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from torchsonic.integrations.released.generations import ConversionError
from torchsonic.io import RefusedFileError, load_plain

# Names under which training scripts put the state dict.
WRAPPERS = ("state_dict", "model_state_dict", "model", "network_weights", "net")
# Put in front of every name by DistributedDataParallel and torch.compile.
SHELLS = ("module.", "_orig_mod.")
MOST_SHARED = 4


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The named tensors of a ``.safetensors`` or ``torch.save`` file, on the CPU.

    Nothing in the file is executed; see :mod:`torchsonic.io`.
    """
    if not path.is_file():
        raise ConversionError(f"there is no file {path}")
    if path.suffix == ".safetensors":
        return _checked(_without_shells(_read_safetensors(path)), path)
    try:
        content = load_plain(path)
    except RefusedFileError as reason:
        raise ConversionError(f"{path} {reason}") from reason
    return _checked(_without_shells(_state_dict(content, path)), path)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # its reader has errors of its own
        raise ConversionError(f"{path} is not a valid safetensors file: {error}") from error


def _is_state_dict(content: Any) -> bool:
    return (
        isinstance(content, Mapping)
        and len(content) > 0
        and all(isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items())
    )


def _state_dict(content: Any, path: Path) -> dict[str, Tensor]:
    if _is_state_dict(content):
        return dict(content)
    if not isinstance(content, Mapping):
        raise ConversionError(f"{path} contains a {type(content).__name__}, not named tensors")
    found = [name for name in WRAPPERS if _is_state_dict(content.get(name))]
    if len(found) == 1:
        return dict(content[found[0]])
    names = ", ".join(str(name) for name in list(content)[:8]) or "nothing"
    if found:
        raise ConversionError(
            f"{path} contains several state dicts ({', '.join(found)}); save the one you need on its own"
        )
    raise ConversionError(f"{path} contains no state dict under {', '.join(WRAPPERS)}; it has {names}")


def _without_shells(state: dict[str, Tensor]) -> dict[str, Tensor]:
    for shell in (*SHELLS, *SHELLS):  # either may be inside the other
        if state and all(name.startswith(shell) for name in state):
            state = {name.removeprefix(shell): value for name, value in state.items()}
    return state


def _checked(state: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Refuse tensors that are no plain arrays of numbers, which could be neither read nor copied."""
    odd = [n for n, t in state.items() if t.layout != torch.strided or t.is_quantized or t.device.type != "cpu"]
    if odd:
        raise ConversionError(f"{path}: {', '.join(odd[:5])} must be dense and not quantised; convert and save them")
    # Strides of zero: a file of a kilobyte may hold a tensor that fills any memory once it is copied.
    size = path.stat().st_size
    spread = [name for name, t in state.items() if t.numel() * t.element_size() > size]
    if spread:
        raise ConversionError(
            f"{path}: {', '.join(spread[:5])} repeat numbers and are larger than the whole file; save copies of them"
        )
    # Tied weights share their numbers, too, but not hundreds of times.
    total = sum(t.numel() * t.element_size() for t in state.values())
    if total > MOST_SHARED * size:
        raise ConversionError(f"{path}: its tensors share numbers and would fill {total / 1e6:.0f} MB; save copies")
    return state
