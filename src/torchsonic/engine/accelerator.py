"""What runs on which device: PyTorch's operations everywhere, and Triton's kernels on GPUs."""

from __future__ import annotations

import importlib.util
import warnings
from functools import cache
from typing import Literal

from torchsonic.arguments import choice

__all__ = ["coupling_on", "interpreted", "set_coupling", "transforms_pairs"]

CouplingName = Literal["torch", "triton"]
TRITON_DEVICES = ("cuda", "xpu")  # ROCm calls itself cuda
_chosen: CouplingName | None = None


def set_coupling(name: CouplingName) -> None:
    """Choose what couples modes on GPUs from now on.

    Parameters
    ----------
    name
        ``"triton"``, the default on CUDA, ROCm and XPU devices if Triton is installed: kernels that evaluate responses
        where they are used and never store them. ``"torch"``: PyTorch's operations. Other devices always use these.

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


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


@cache
def _warn_once(kind: str) -> None:
    warnings.warn(
        f"Triton is not installed, so modes are coupled by PyTorch's operations on {kind}, which is slower and takes "
        'more memory; pip install "torchsonic[triton]", or torchsonic.set_coupling("torch") to keep it so',
        UserWarning,
        stacklevel=2,
    )
