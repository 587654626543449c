"""Tell a network how the axes of its input lie in space.

Sonic layers handle any orientation exactly. Other parts of a network are tied to the axes of the array: strides, small
kernels, pooling, reference grids. So the orientation is split (:mod:`torchsonic.spectral.orientation`): the axes are
permuted and flipped to come as close as possible to those of training, the layers are told the remaining rotation, and
the result is brought back to the axes of the input. All 48 ways to store a volume look the same to the network.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from torchsonic.arguments import check_samples
from torchsonic.nn.network_spacing import set_spacing, spaced_layers
from torchsonic.nn.physical_layer import TOLD_TWICE, SpacedLayer, refuse_tracing
from torchsonic.nn.rearranged import (
    Run,
    Storages,
    oriented_axes,
    reordered,
    restored,
    run_oriented,
    run_rearranged,
)
from torchsonic.spectral.orientation import Matrix, split_orientation
from torchsonic.spectral.spacing import Sampling, Spacing, check_count


def set_orientation(model: nn.Module, orientation: Matrix | None) -> nn.Module:
    """Tell a model the orientation of its *input*; for containers that pass on only ``x``.

    Parameters
    ----------
    orientation
        Directions of the array's axes, the columns of an orthogonal matrix ``(D, D)``, or ``(B, D, D)`` with one for
        each sample of the batches to come; ``None`` for the identity.

    Returns
    -------
    nn.Module
        The model. It rearranges its input and output; its layers assume the remaining rotation.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torchsonic.SonicConv2d(4, 1)).eval()
    >>> x = torch.randn(1, 1, 12, 16)
    >>> y = model(x)
    >>> turned = torchsonic.set_orientation(model, [[0.0, -1.0], [1.0, 0.0]])  # the first axis runs along the second
    >>> torch.allclose(turned(x.mT.flip(3)), y.mT.flip(3), atol=1e-5)
    True
    """
    num_axes = oriented_axes(model, "set_orientation was called")
    if isinstance(model, SpacedLayer):
        model.set_orientation(orientation)
        return model
    storages, rest = (None, None) if orientation is None else split_orientation(orientation, num_axes)
    for module in model.modules():
        _rearrange_by(module, storages if module is model else None)
        if isinstance(module, SpacedLayer):
            module.set_orientation(rest)
    told = getattr(model, "told_spacing", None)
    return model if told is None else set_spacing(model, told)  # along the axes that layers see now


def _rearrange_by(module: nn.Module, storages: Storages | None) -> None:
    """Make a module rearrange its input and output from now on; networks do so themselves."""
    module.storages = storages  # type: ignore[assignment]
    if isinstance(module, OrientedNetwork):
        return
    for hooks, hook in ((module._forward_pre_hooks, _rearrange), (module._forward_hooks, _restore)):
        for key in [key for key, known in hooks.items() if known is hook]:
            del hooks[key]
            module._forward_pre_hooks_with_kwargs.pop(key, None)
    if storages is not None:
        module.register_forward_pre_hook(_rearrange, with_kwargs=True)
        module.register_forward_hook(_restore)


def _rearrange(
    module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Bring the first argument of a module, and a spacing if it is given one, to the axes of training."""
    name, axes = type(module).__name__, len(module.storages[0].order)
    if not arguments:
        raise TypeError(f"pass the input of this {name} by position, model(x), since it was told an orientation")
    x, *others = arguments
    if isinstance(x, Proxy):
        refuse_tracing(module)
    if not isinstance(x, Tensor) or x.dim() != axes + 2:
        given = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise ValueError(
            f"this {name}, which was told an orientation, expects (batch, channel, {axes} axes), got {given}"
        )
    names = _names_behind_input(module, len(others))
    _refuse_second_orientation(module, x, {**dict(zip(names, others, strict=True)), **keywords})
    check_count("orientation", len(module.storages), x.shape[0])

    def turned(name: str, value: Any) -> Any:
        return reordered(value, module.storages) if name == "spacing" else value

    others = [turned(name, value) for name, value in zip(names, others, strict=True)]
    keywords = {name: turned(name, value) for name, value in keywords.items()}
    return (_gathered(module, x), *others), keywords


def _names_behind_input(module: nn.Module, count: int) -> list[str]:
    """Names of the arguments that a call passes by position behind the input; one of them may be a spacing."""
    if count == 0 or (count == 1 and getattr(module, "takes_spacing", False)):
        return ["spacing"][:count]
    parameters = inspect.signature(module.forward).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind <= parameter.POSITIONAL_OR_KEYWORD]
    if len(names) <= count:
        raise TypeError(
            f"this {type(module).__name__} was told an orientation, and its forward has no name for an argument behind "
            "the input, which may be a spacing along axes to be rearranged; pass it by name, spacing="
        )
    return names[1 : count + 1]


def _refuse_second_orientation(module: nn.Module, x: Tensor, told: dict[str, Any]) -> None:
    """Refuse an orientation in a call of a module that rearranges its input: its parts would apply it once more."""
    given = [f"{name}=" for name in ("orientation", "affine") if told.get(name) is not None]
    given += [f"{name}=" for name, value in told.items() if isinstance(value, Sampling)]
    if hasattr(x, "affine") and getattr(module, "use_meta", True):  # of MONAI's tensors, which a part may read
        given.append(f"the affine of a {type(x).__name__} (x.as_tensor() has none)")
    if given:
        raise ValueError(
            f"this {type(module).__name__} was told its orientation by set_orientation; call set_orientation(model, "
            f"None) before you pass one in a call, here {given[0]}"
        )


def _gathered(module: Any, x: Tensor) -> Tensor:
    """The samples in the axes of training, if they have one size there."""
    if len(module.storages) == 1:
        return module.storages[0].apply(x)
    samples = [storage.apply(x[i : i + 1]) for i, storage in enumerate(module.storages)]
    if len({sample.shape for sample in samples}) > 1:
        raise ValueError(
            f"samples of size {tuple(x.shape[2:])} have different orientations, and no common size in the axes of "
            f"training; call this {type(module).__name__} once per orientation, or cut patches of equal length along "
            "every axis"
        )
    return torch.cat(samples)


def _restore(module: Any, arguments: tuple[Any, ...], result: Any) -> Any:
    """Bring the result of a module back to the axes of its input."""
    return restored(result, module.storages)


class OrientedNetwork(nn.Module):
    """Base class of networks that take the orientation of their input, or its affine matrix.

    Subclasses implement ``_forward(x, spacing)`` in the axes of training.
    """

    storages: Storages | None = None  # of input that is told none; see set_orientation

    def forward(
        self,
        x: Tensor,
        spacing: Spacing | None = None,
        *,
        orientation: Matrix | None = None,
        affine: Matrix | None = None,
    ) -> Any:
        """Apply the network to ``x (B, C, *size)``.

        Parameters
        ----------
        spacing
            Physical step along the axes of ``x``: a number, one per axis, or ``(B, D)``. Defaults to the reference.
        orientation
            Directions of the array's axes, as the columns of an orthogonal matrix ``(D, D)`` or ``(B, D, D)``. Defaults
            to the identity, or to what :func:`torchsonic.set_orientation` has set.
        affine
            Instead of both: the matrix ``(D + 1, D + 1)``, or one per sample, that maps indices of ``x`` to positions,
            as in NIfTI files, MONAI and ITK.
        """
        return self._oriented(self._forward, x, spacing, orientation=orientation, affine=affine)

    def _forward(self, x: Tensor, spacing: Spacing | None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must implement _forward, or forward")

    def _oriented(
        self, run: Run, x: Tensor, spacing: Spacing | None, *, orientation: Matrix | None, affine: Matrix | None
    ) -> Any:
        """The result of a method of this network, in the axes of training; see :func:`run_rearranged`."""
        if getattr(x, "dtype", None) is torch.float64:  # as nibabel and NumPy give; norms would say it less plainly
            kinds = {weights.dtype for weights in self.parameters()}
            if kinds and torch.float64 not in kinds:
                raise TypeError(
                    f"{type(self).__name__} has weights of {min(map(str, kinds))}, but x is torch.float64; pass "
                    "x.float(), or convert the network with double()"
                )
        if orientation is None and affine is None:
            return run(x, spacing) if self.storages is None else self._as_told(self.storages, run, x, spacing)
        return run_oriented(self, run, x, spacing, orientation=orientation, affine=affine)

    def _as_told(self, storages: Storages, run: Run, x: Tensor, spacing: Spacing | None) -> Any:
        """The result for an orientation that :func:`set_orientation` has told."""
        check_samples(x, len(storages[0].order), None, type(self).__name__)
        if isinstance(spacing, Sampling):
            raise ValueError(TOLD_TWICE)
        rest = None
        if len(storages) > 1:  # layers know remainders and spacings of the whole batch, but run on groups of samples
            rest = next((layer._orientation for _, layer in spaced_layers(self)), None)
            spacing = getattr(self, "told_spacing", None) if spacing is None else spacing
        return run_rearranged(run, x, spacing, storages, rest)
