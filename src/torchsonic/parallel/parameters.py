"""FSDP2: each process keeps a part of every parameter and gets the rest when a block is about to run."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from torchsonic.parallel.collectives import agree, check_mesh

CONTAINERS = (nn.Sequential, nn.ModuleList)


def shard_parameters(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Share the parameters, gradients and optimiser states of a model out over the processes of a mesh, by FSDP2.

    Each block of the model is a unit: its parameters are brought together before it runs and let go behind it.
    Processes have different samples, and gradients are means over them. All get the weights of the first.
    ``fully_shard`` refuses parameters without an axis; they become vectors of one element, which broadcast alike.

    Parameters
    ----------
    module
        Changed in place; make the optimiser afterwards.
    mesh
        Of one dimension; of a larger one give a part by name, such as ``mesh["data"]``. Modes that are shared out as
        well, over another dimension of the same mesh, must be so before.

    Returns
    -------
    nn.Module
        The model.

    Examples
    --------
    Under ``torchrun``, with one process for each device:

        mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("data", "modes"))
        model = parallelize_modes(model, mesh["modes"])
        model = shard_parameters(model, mesh["data"])
    """
    check_mesh(mesh)
    if any(isinstance(part, FSDPModule) for part in module.modules()):
        raise ValueError("the model's parameters are shared out already")
    _scalars_to_vectors(module)
    agree(module, mesh.get_group())
    for unit in (*_units(module), module):
        # Also the outermost, which is otherwise left whole behind a forward pass that no backward pass follows.
        fully_shard(unit, mesh=mesh, reshard_after_forward=True)
        assert isinstance(unit, FSDPModule)
        if mesh.device_type == "cpu":  # gloo knows no mean
            unit.set_force_sum_reduction_for_comms(True)
    return module


def _scalars_to_vectors(module: nn.Module) -> None:
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            if parameter.dim() == 0:
                vector = nn.Parameter(parameter.detach().reshape(1), requires_grad=parameter.requires_grad)
                part.register_parameter(name, vector)


def _units(module: nn.Module, *, within: bool = False) -> Iterator[nn.Module]:
    """The outermost blocks: modules with parts of their own that stand in a chain or list.

    Chains themselves are none, since networks go through them layer by layer without calling them.
    """
    for part in module.children():
        chain = isinstance(part, CONTAINERS)
        if within and not chain and any(True for _ in part.children()):
            yield part
        else:
            yield from _units(part, within=chain)
