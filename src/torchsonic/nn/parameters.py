"""The parameters of a model: groups for optimisers, and saving when they are sharded over processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from torchsonic.arguments import is_number


def is_sharded(module: nn.Module) -> bool:
    """Whether any parameters of a module are DTensors, sharded over processes; see :mod:`torchsonic.parallel`."""
    return any(hasattr(parameter, "placements") for parameter in module.parameters())


def mode_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Parameters of the modes of all Sonic layers in a model, and of the states of state-space layers."""
    own = [getattr(module, "mode_parameters", list) for module in model.modules()]
    return [parameter for parameters in own for parameter in parameters()]


def parameter_groups(
    model: nn.Module, lr: float, *, weight_decay: float = 0.0, mode_lr_scale: float = 0.01
) -> list[dict[str, Any]]:
    """Split a model's parameters so that its modes learn slowly and without weight decay.

    The phase of a mode at distance d is ``d * Im a / s``, so a small step in direction, scale or pole changes the far
    field completely. Mixing matrices and all other parameters learn at the full rate.

    Parameters
    ----------
    lr, weight_decay
        Learning rate and weight decay of ordinary parameters; vectors and scalars (biases, norms) get no weight decay.
    mode_lr_scale
        Learning rate of direction, scale, pole and transverse penalty, relative to ``lr``.

    Returns
    -------
    list of dict
        Parameter groups for any ``torch.optim`` optimiser. Each has a ``name``; several may share one if some
        parameters are sharded over processes.

    Examples
    --------
    >>> optimiser = torch.optim.AdamW(torchsonic.parameter_groups(torchsonic.SonicConv2d(3, 8), lr=1e-2))
    >>> [group["name"] for group in optimiser.param_groups]
    ['weights', 'vectors', 'modes']
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a network, got {type(model).__name__}; pass the model, not model.parameters()")
    for name, value in (("lr", lr), ("weight_decay", weight_decay), ("mode_lr_scale", mode_lr_scale)):
        if not isinstance(value, Tensor):  # as optimisers take it, to be captured in a graph
            if not is_number(value):
                raise TypeError(f"{name} must be a number, got {value!r}")
            if value < 0:
                raise ValueError(f"{name} must not be negative, got {value!r}")
    modes = {id(p) for p in mode_parameters(model)}
    # Optimisers can update sharded parameters together only if they are sharded alike.
    groups: dict[tuple[str, Any], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        kind = "modes" if id(parameter) in modes else "weights" if parameter.dim() > 1 else "vectors"
        groups.setdefault((kind, getattr(parameter, "device_mesh", None)), []).append(parameter)
    settings = {
        "weights": {"lr": lr, "weight_decay": weight_decay},
        "vectors": {"lr": lr, "weight_decay": 0.0},
        "modes": {"lr": lr * mode_lr_scale, "weight_decay": 0.0},
    }
    return [
        {"name": name, "params": params, **settings[name]}
        for name in settings
        for (kind, _), params in groups.items()
        if kind == name
    ]


def own_class(model: nn.Module) -> type:
    """The class that the user instantiated; FSDP2 puts a subclass in its place."""
    return next(kind for kind in type(model).__mro__ if not kind.__module__.startswith("torch."))


def whole_state(model: nn.Module, shapes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of all tensors of a model on the CPU, gathered if they are sharded; then all processes must call this.

    Parameters
    ----------
    shapes
        Tensors of the unsharded model: FSDP2 turns scalars into vectors of one element, which is undone.
    """
    state = {}
    for name, value in model.state_dict().items():
        whole = value.detach()
        if hasattr(whole, "full_tensor"):
            whole = whole.full_tensor()
            if whole.numel() == 1 and name in shapes:
                whole = whole.reshape(shapes[name].shape)
        state[name] = whole.to("cpu", copy=True).contiguous()
    return state


@contextmanager
def first_process_writes(model: nn.Module) -> Iterator[bool]:
    """Tell a process whether to write a model's files; the others wait until the files exist."""
    shared = is_sharded(model)
    try:
        yield not shared or torch.distributed.get_rank() == 0
    finally:
        if shared:
            torch.distributed.barrier()
