"""What a mesh must be for parameters or modes to be shared out over it."""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh

__all__ = ["check_mesh"]


def check_mesh(mesh: DeviceMesh) -> None:
    """Refuse what is no mesh of one dimension, before any process waits for another."""
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"mesh must be a DeviceMesh, such as init_device_mesh gives, got {mesh!r}")
    if mesh.ndim != 1:
        names = ", ".join(mesh.mesh_dim_names or ()) or "none: pass mesh_dim_names to init_device_mesh"
        raise ValueError(f"mesh must have one dimension, got {mesh.ndim}; take one of them by its name ({names})")
