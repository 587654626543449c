"""Spacing and orientation of MONAI's images, from their affine."""

from __future__ import annotations

import torch
from monai.data.meta_tensor import MetaTensor
from torch import Tensor

from torchsonic.lab.data.volumes.orientation import axis_codes
from torchsonic.spectral.orientation import split_affine


def spacing_of(x: Tensor, spatial_dims: int = 3) -> Tensor | None:
    """Physical spacing of each sample of a batch, from its affine.

    Parameters
    ----------
    x
        ``(B, C, *size)``. A batch that MONAI collated has one affine per sample, ``(B, 4, 4)``; otherwise one for all.
    spatial_dims
        Number of spatial axes D; an image with fewer axes than its affine uses the affine's first ones.

    Returns
    -------
    Tensor or None
        ``(B, D)``, float64, in the order of the tensor's axes; ``None`` for a plain tensor. If a file has no affine,
        MONAI uses the identity, so the spacing is 1.

    Examples
    --------
    >>> from monai.data import MetaTensor
    >>> affine = torch.diag(torch.tensor([0.8, 0.8, 5.0, 1.0]))
    >>> spacing_of(MetaTensor(torch.zeros(1, 1, 16, 16, 4), affine=affine))
    tensor([[0.8000, 0.8000, 5.0000]], dtype=torch.float64)
    """
    affine = affine_of(x, spatial_dims)
    if affine is None:
        return None
    # The length of a column is the step along an axis, however the image is turned.
    steps = torch.linalg.vector_norm(affine[:, :-1, :spatial_dims], dim=1)
    if not bool((torch.isfinite(steps) & (steps > 0)).all()):
        raise ValueError(
            f"the affine of the MetaTensor gives the spacing {steps.tolist()}; fix it or use use_meta=False"
        )
    return steps.expand(x.shape[0], -1)


def orientation_of(x: Tensor, spatial_dims: int = 3) -> Tensor | None:
    """Orientation of each sample of a batch, from its affine: ``(n, D, D)`` in float64, where n is 1 or the batch size.

    ``None`` for a plain tensor, and for an image whose affine has more axes and maps out of the first D.

    Examples
    --------
    >>> from monai.data import MetaTensor
    >>> affine = torch.diag(torch.tensor([-0.8, 0.8, 5.0, 1.0]))
    >>> orientation_of(MetaTensor(torch.zeros(1, 1, 16, 16, 4), affine=affine))[0].diag()
    tensor([-1.,  1.,  1.], dtype=torch.float64)
    """
    affine = affine_of(x, spatial_dims)
    if affine is None or bool((affine[:, spatial_dims:-1, :spatial_dims].abs() > 1e-6).any()):
        return None
    square = torch.eye(spatial_dims + 1, dtype=torch.float64).repeat(len(affine), 1, 1)
    square[:, :-1, :-1] = affine[:, :spatial_dims, :spatial_dims]
    try:
        return split_affine(square, spatial_dims)[1]
    except ValueError as error:
        problem = str(error).replace("affine", "affine of the MetaTensor", 1)
        raise ValueError(f"the {problem}, or use use_orientation=False") from error


def axes_of(x: Tensor, spatial_dims: int = 3) -> set[str]:
    """Where the axes of the samples of a ``MetaTensor`` nearly point, such as ``{"RAS", "LPS"}``."""
    affine = affine_of(x, spatial_dims)
    return set() if affine is None else {axis_codes(matrix.numpy())[:spatial_dims] for matrix in affine}


def affine_of(x: Tensor, spatial_dims: int) -> Tensor | None:
    """Affine matrices of a batch, ``(n, E + 1, E + 1)`` with E at least D; ``None`` for a plain tensor."""
    if not isinstance(x, MetaTensor):
        return None
    affine = torch.as_tensor(x.affine).as_subclass(Tensor).detach().to("cpu", torch.float64)
    affine = affine[None] if affine.dim() == 2 else affine
    batch = x.shape[0]
    if affine.dim() != 3 or affine.shape[0] not in (1, batch) or affine.shape[-1] <= spatial_dims:
        raise ValueError(
            f"the affine of the MetaTensor has shape {tuple(x.affine.shape)}, which does not fit {batch} samples of "
            f"{spatial_dims} spatial axes; collate with monai.data.list_data_collate, or pass spacing="
        )
    return affine
