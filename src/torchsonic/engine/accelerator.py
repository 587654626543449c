"""What runs on which device: PyTorch's operations everywhere, and Triton's kernels on GPUs."""

from __future__ import annotations

import importlib.util
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from torchsonic.arguments import choice

__all__ = ["coupling_on", "device_of", "interpreted", "set_coupling", "transforms_pairs"]

CouplingName = Literal["torch", "triton"]
TRITON_DEVICES = ("cuda", "xpu")  # ROCm calls itself cuda
_chosen: CouplingName | None = None


def set_coupling(name: CouplingName) -> None:
    """Choose what couples modes on GPUs.

    Parameters
    ----------
    name
        ``"triton"``, the default on CUDA, ROCm and XPU devices if Triton is installed: kernels that compute responses
        where they are needed and never store them. ``"torch"``: PyTorch's operations, which other devices always use.

    Examples
    --------
    >>> torchsonic.set_coupling("torch")
    """
    global _chosen
    choice(name, ("torch", "triton"), "name")
    if name == "triton":
        from torchsonic.engine import triton_kernels as triton_kernels  # its absence names the extra
    _chosen = name


def coupling_on(kind: str) -> CouplingName:
    """What couples modes on a type of device; one warning if Triton could but is not installed."""
    if kind not in TRITON_DEVICES and not (_chosen == "triton" and interpreted()):
        return "torch"
    if _chosen is None and not _installed():
        _warn_once(kind)
    return _chosen or ("triton" if _installed() else "torch")


def interpreted() -> bool:
    """Whether Triton's interpreter runs kernels on the CPU, as tests do."""
    from torchsonic.engine.triton_kernels import INTERPRETED

    return INTERPRETED


def transforms_pairs(kind: str) -> bool:
    """Whether the two signals of a mode are transformed as real ones: GPUs then need not weave them into one."""
    return kind in TRITON_DEVICES or coupling_on(kind) == "triton"


def device_of(tensor: Tensor) -> AbstractContextManager:
    """Make a tensor's device the current one: Triton launches there, wherever the tensors are."""
    index = tensor.device.index
    known = index is not None and torch.accelerator.is_available()  # not the device of a fake tensor
    return torch.accelerator.device_index(index) if known else nullcontext()


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


@cache
def _warn_once(kind: str) -> None:
    warnings.warn(
        f"Triton is not installed, so modes are coupled by PyTorch's operations on {kind}, which is slower and takes "
        'more memory; run: pip install "torchsonic[triton]", or silence this with torchsonic.set_coupling("torch")',
        UserWarning,
        stacklevel=2,
    )
