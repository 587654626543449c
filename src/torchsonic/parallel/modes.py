"""Mode parallelism: each process computes some of the modes of a layer.

    y = sum_m C_m F^-1[ g_m T_m F[B_m x] ] + bias

is a sum over modes, and each response and gain depends on one mode. So the rows of B, the parameters of T and the
columns of C are split among the processes, and every process sums over its own modes. One all-reduce of ``y`` forward
and one of the gradient of ``x`` backward give the result of a single device. Memory for coefficients and responses,
which dominates with many modes or large volumes, is divided by the number of processes; ``x`` and ``y`` are whole on
each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.distributed.tensor.parallel.style import ParallelStyle
from torch.distributed.tensor.placement_types import Placement

from torchsonic.arguments import check_samples
from torchsonic.nn import SonicConvNd, sonic_layers
from torchsonic.nn.parameters import is_sharded
from torchsonic.parallel.collectives import agree, check_mesh, read_by_all, sum_over_processes

# One number for all modes, and one for each output channel; everything else has a row, or a column, for each mode.
WHOLE = ("oscillation_limit", "bias")
# What looks at all modes, so that every process of the group has to ask for it.
ABOUT_ALL_MODES = ("cutoff", "kernel", "mode_kernels", "modes", "response")


class ModeParallel(ParallelStyle):
    """Split the modes of a Sonic layer over a mesh; for the plans of ``parallelize_module``.

    All parameters of the layer become DTensors: ``mix_in`` and those of the responses are sharded along their first
    axis, ``mix_out`` along its second; the limit of the oscillations and the bias are replicated. Input and output are
    plain tensors, the same on every process, and equal to those of one device up to rounding. If the mesh does not
    divide the number of modes, they are split like :func:`torch.chunk` does.

    Examples
    --------
    A plan refers to layers by their path in the model, here the operators of all blocks of a SonicNet:

        mesh = init_device_mesh("cuda", (4,))
        parallelize_module(model, mesh, {"blocks.*.operator": ModeParallel()})
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if not isinstance(module, SonicConvNd):
            raise TypeError(
                f"ModeParallel is for Sonic layers, got {type(module).__name__}; name the layer in the plan"
            )
        check_mesh(device_mesh)
        _check_whole(module)
        module.own_modes = _own_modes(module.num_modes, device_mesh)
        for name, parameter in list(module.named_parameters(recurse=False)):
            shared = distribute_tensor(
                parameter.detach(), device_mesh, [_placement(name)], src_data_rank=self.src_data_rank
            )
            module.register_parameter(name, nn.Parameter(shared, requires_grad=parameter.requires_grad))
        module.__class__ = _shared_class(type(module))
        return module


def parallelize_modes(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Split the modes of every Sonic layer of a model over the processes of a mesh.

    Input and output of the model stay as they were; every process must be given the same input. Everything else in the
    model is replicated, and all processes get the weights of the first.

    Parameters
    ----------
    module
        A layer or a model, changed in place.
    mesh
        A one-dimensional mesh; select one dimension of a larger mesh by name, for example ``mesh["modes"]``.

    Returns
    -------
    nn.Module
        The model.

    Examples
    --------
    Under ``torchrun``, with one process for each device:

        mesh = init_device_mesh("cuda", (torch.distributed.get_world_size(),))
        model = parallelize_modes(torchsonic.create_model("sonicnet3d").cuda(), mesh)
        optimiser = torch.optim.AdamW(torchsonic.parameter_groups(model, lr=1e-2))
    """
    layers = [layer for _, layer in sonic_layers(module)]
    if not layers:
        raise ValueError(f"parallelize_modes found no Sonic layer in {type(module).__name__}")
    check_mesh(mesh)
    # Before any is changed. The whole model, not its layers alone: processes hold shares of FSDP that differ in size,
    # which cannot agree.
    _check_whole(module)
    for layer in layers:
        _own_modes(layer.num_modes, mesh)
    agree(module, mesh.get_group())
    for layer in layers:
        parallelize_module(layer, mesh, ModeParallel(), src_data_rank=None)
    return module


def _check_whole(module: nn.Module) -> None:
    if is_sharded(module):
        raise ValueError("parameters are already sharded; call parallelize_modes once, and before shard_parameters")


def _placement(name: str) -> Placement:
    return Replicate() if name in WHOLE else Shard(1 if name == "mix_out" else 0)


def _own_modes(num_modes: int, mesh: DeviceMesh) -> slice:
    """The modes of this process, as DTensors are cut."""
    most = -(-num_modes // mesh.size())
    if most * (mesh.size() - 1) >= num_modes:
        raise ValueError(
            f"num_modes={num_modes} in parts of {most} leaves no mode for the last of {mesh.size()} processes; "
            "use fewer processes, or a multiple of their number as num_modes"
        )
    start = mesh.get_local_rank() * most
    return slice(start, min(start + most, num_modes))


@lru_cache
def _shared_class(layer: type[SonicConvNd]) -> type[SonicConvNd]:
    """The class of a layer whose modes are split over processes; it keeps its name."""
    gathered = {name: _with_all_modes(getattr(layer, name)) for name in ABOUT_ALL_MODES}
    return type(layer.__name__, (_SharedModes, layer), gathered)  # type: ignore[return-value]


def _with_all_modes(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that sees whole parameters; a collective operation."""

    @wraps(method)
    def call(self: SonicConvNd, *arguments: Any, **options: Any) -> Any:
        whole = {n: p.full_tensor() if isinstance(p, DTensor) else p for n, p in self._parameters.items()}
        with _parameters_replaced(self, whole):
            return method(self, *arguments, **options)

    return call


class _SharedModes:
    """What changes in a layer whose modes are split over processes."""

    def forward(self, x: Tensor, *arguments: Any, **options: Any) -> Tensor:
        assert isinstance(self, SonicConvNd)
        assert isinstance(self.mix_in, DTensor)
        check_samples(x, self.num_axes, self.in_channels, type(self).__name__, unbatched=True)
        group = self.mix_in.device_mesh.get_group()
        own = dict(_own_parameters(self, group))
        bias = own.get("bias")
        without_bias = {**own, "bias": None} if "bias" in own else own
        # The sum over processes is rounded once, behind it.
        dtype = torch.promote_types(torch.promote_types(x.dtype, self.mix_in.dtype), torch.float32)
        with _parameters_replaced(self, without_bias):
            y = super().forward(read_by_all(x.to(dtype), group), *arguments, **options)  # type: ignore[misc]
        y = sum_over_processes(y, group)
        return (y if bias is None else y.add_(bias.to(dtype).view(-1, *[1] * self.num_axes))).to(x.dtype)

    def reset_parameters(self, *arguments: Any, **options: Any) -> None:
        raise RuntimeError("reset_parameters draws all modes at once; call it before parallelize_modes")

    def extra_repr(self) -> str:
        assert isinstance(self, SonicConvNd)
        text = super().extra_repr()  # type: ignore[misc]
        return f"{text}, own_modes={self.own_modes.start}:{self.own_modes.stop}"


def _own_parameters(layer: SonicConvNd, group: dist.ProcessGroup) -> Iterator[tuple[str, Tensor | None]]:
    """Plain tensors of this process's modes, with gradients that reach the parameters."""
    for name, parameter in layer._parameters.items():
        if not isinstance(parameter, DTensor):
            yield name, parameter
        elif not torch.is_grad_enabled():
            yield name, parameter._local_tensor  # the same object each time, by which the evaluation cache knows it
        elif name == "oscillation_limit":
            yield name, read_by_all(parameter.to_local(), group)
        else:
            yield name, parameter.to_local()


@contextmanager
def _parameters_replaced(layer: nn.Module, tensors: Mapping[str, Any]) -> Iterator[None]:
    """Let a layer compute with other tensors than its parameters for a while."""
    stored = dict(layer._parameters)
    layer._parameters.update(tensors)
    try:
        yield
    finally:
        layer._parameters.update(stored)
