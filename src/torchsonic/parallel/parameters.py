"""FSDP2: each process keeps a part of every parameter and gets the rest just before a block runs."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from torchsonic.parallel.collectives import agree, check_mesh

CONTAINERS = (nn.Sequential, nn.ModuleList)


def shard_parameters(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Shard the parameters, gradients and optimiser states of a model over the processes of a mesh, with FSDP2.

    Each block of the model is a unit: its parameters are gathered before it runs and freed afterwards. Processes train
    on different samples, and gradients are averaged over them. All processes get the weights of the first.
    ``fully_shard`` refuses scalar parameters, so they become vectors of one element, which broadcast alike.

    Parameters
    ----------
    module
        The model, which is changed in place; create the optimiser afterwards.
    mesh
        A one-dimensional mesh; select one dimension of a larger mesh by name, for example ``mesh["data"]``. To split
        modes over another dimension of the same mesh, call :func:`torchsonic.parallel.parallelize_modes` first.

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
        raise ValueError("the model's parameters are already sharded")
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
    """The outermost blocks: modules with submodules of their own, inside a chain or list.

    Chains themselves do not count, since networks run their layers one by one without calling the chain.
    """
    for part in module.children():
        chain = isinstance(part, CONTAINERS)
        if within and not chain and any(True for _ in part.children()):
            yield part
        else:
            yield from _units(part, within=chain)
