"""Layers as whole nodes of graphs that ``torch.fx`` records."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.fx import Proxy

__all__ = ["leaf_call"]


def leaf_call(layer: nn.Module, x: Proxy, *arguments: Any) -> Any:
    """Record a call of a layer as one node. Tracers would step into it, where control flow depends on sizes and values.

    Parameters
    ----------
    x, arguments
        Of the layer's ``forward``.
    """
    target = x.tracer.path_of_module(layer)  # type: ignore[attr-defined]
    if not target:
        raise TypeError(
            f"torch.fx records a {type(layer).__name__} as one node of a graph, and so needs a module round it; "
            "trace torch.nn.Sequential(layer)"
        )
    return x.tracer.create_proxy("call_module", target, (x, *arguments), {})
