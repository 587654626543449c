"""What checkpoints hold of a model and its optimiser: whole tensors, however many processes have parts of them.

So a run may go on with another number of processes and another strategy. Processes put their parts together here, which
all of them have to do at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def whole_weights(weights: Mapping[str, Tensor], shapes: Mapping[str, torch.Size], *, keep: bool) -> dict[str, Any]:
    """Whole tensors in place of shared ones, in the shapes of the model before it was shared out.

    Parameters
    ----------
    weights
        Of a model, or averaged.
    shapes
        Of the model before it was shared out: there, scalars are scalars.
    keep
        Whether this process is to have them; otherwise it gets ``None`` for each that is shared out.
    """
    return {name: _gather(value, shapes.get(name), keep=keep) for name, value in weights.items()}


def whole_optimiser(
    optimiser: torch.optim.Optimizer, model: nn.Module, shapes: Mapping[str, torch.Size], *, keep: bool
) -> dict[str, Any]:
    """State of an optimiser in the same way; ``model`` is what it optimises."""
    state = optimiser.state_dict()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    order = [names[id(parameter)] for group in optimiser.param_groups for parameter in group["params"]]
    whole = {
        place: {key: _gather(value, shapes[order[place]], keep=keep) for key, value in values.items()}
        for place, values in state["state"].items()
    }
    return {**state, "state": whole}


def _gather(value: Any, shape: torch.Size | None, *, keep: bool) -> Any:
    if not hasattr(value, "full_tensor"):
        return value
    whole = value.detach().full_tensor()  # one after another: no process but the keeping one ever has them all
    if not keep:
        return None
    assert shape is not None
    return whole.cpu().reshape(shape)


def share_weights(whole: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parts of whole tensors that this process holds, as those of the same names are shared out."""
    return {name: _share(value, like[name]) if name in like else value for name, value in whole.items()}


def load_weights(model: nn.Module, whole: Mapping[str, Tensor]) -> None:
    """Give a model weights, of which each process takes its part."""
    model.load_state_dict(share_weights(whole, model.state_dict()))


def load_optimiser(optimiser: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Give an optimiser a state, of which each process takes its part."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    # `step` counts; everything else has a number for each of the parameter's.
    shared = {
        place: {key: value if key == "step" else _share(value, parameters[place]) for key, value in values.items()}
        for place, values in state["state"].items()
    }
    optimiser.load_state_dict({**state, "state": shared})


def _share(whole: Tensor, like: Tensor) -> Tensor:
    if not hasattr(like, "placements"):
        return whole
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    whole = whole.reshape(like.shape).to(like.device)  # a scalar is a vector where parameters are shared out
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)
