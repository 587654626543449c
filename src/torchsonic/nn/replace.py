"""Swap the convolutions of an existing model for Sonic layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from torch import nn

from torchsonic.nn.conv import SonicConv1d, SonicConv2d, SonicConv3d, SonicConvNd
from torchsonic.spectral.boundary import PaddingMode

_LAYERS: dict[type[nn.Module], type[SonicConvNd]] = {
    nn.Conv1d: SonicConv1d,
    nn.Conv2d: SonicConv2d,
    nn.Conv3d: SonicConv3d,
}


def _is_suitable(conv: nn.Module, padding_mode: PaddingMode | None) -> bool:
    """Whether it is spatial, ungrouped, and padded so that only the stride changes the size."""
    if type(conv) not in _LAYERS:
        return False
    assert isinstance(conv, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
    same = conv.padding == "same" or all(
        2 * p == d * (k - 1)
        for p, d, k in zip(conv.padding, conv.dilation, conv.kernel_size, strict=True)  # type: ignore
    )
    known = padding_mode is not None or conv.padding_mode in get_args(PaddingMode)
    return max(conv.kernel_size) > 1 and conv.groups == 1 and same and known


def _first_conv(model: nn.Module) -> nn.Module | None:
    """The first convolution within a model, in the order of definition, suitable or not."""
    return next((m for m in model.modules() if m is not model and isinstance(m, tuple(_LAYERS))), None)


def replace_convs(
    model: nn.Module,
    num_modes: int | Callable[[str, nn.Module], int | None] | None = None,
    *,
    stem: bool = False,
    select: Callable[[str, nn.Module], bool] | None = None,
    padding_mode: PaddingMode | None = None,
    **options: Any,
) -> nn.Module:
    """Replace every suitable ``nn.Conv1d/2d/3d`` with a Sonic layer of the same channels, stride, bias and dtype.

    A convolution is suitable if it is ungrouped, has a kernel larger than one pixel, and its padding keeps the size.
    Others (1x1, depthwise, valid, transposed) stay, and so does the stem. The new layers are untrained, so the model
    needs training. :func:`replaced_convs` lists what was replaced.

    Parameters
    ----------
    model
        The model, which is changed in place.
    num_modes
        Modes of each layer, or a function of the layer's name and the convolution; ``None`` is the layers' default.
    stem
        Whether to replace the model's first convolution as well. It sees the image itself and detects edges better as
        it is; as a Sonic layer with a stride it would keep only coarse waves. The first convolution is the one defined
        first, not necessarily the one called first. To keep a different one, pass ``stem=True`` and use ``select``.
    select
        Additional condition on name and convolution, for example ``lambda name, conv: name != "encoder.first"``.
    padding_mode
        Boundary of the new layers; by default that of each convolution. A margin of zeros as wide as the image costs
        several times as much as ``"circular"`` or a narrow margin such as ``padding=16``.
    options
        Passed to the layers, for example ``padding``, ``variant`` or ``field``.

    Returns
    -------
    nn.Module
        The model, or a new layer if ``model`` itself was a convolution.

    Examples
    --------
    >>> convs = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.Conv2d(8, 2, 1)]
    >>> model = torchsonic.replace_convs(torch.nn.Sequential(*convs), num_modes=4)
    >>> [type(m).__name__ for m in model]
    ['Conv2d', 'SonicConv2d', 'Conv2d']
    """
    if any(getattr(module, "storages", None) is not None for module in model.modules()):
        raise ValueError(
            f"this {type(model).__name__} was told an orientation, which new layers would not know; call "
            "set_orientation(model, None) first, and tell it again afterwards"
        )
    first = None if stem else _first_conv(model)
    shared: dict[int, SonicConvNd] = {}

    def build(name: str, conv: Any) -> SonicConvNd:
        if id(conv) in shared:  # one convolution used in two places stays one layer
            return shared[id(conv)]
        layer = _LAYERS[type(conv)](
            conv.in_channels,
            conv.out_channels,
            num_modes=num_modes(name, conv) if callable(num_modes) else num_modes,
            stride=conv.stride,
            bias=conv.bias is not None,
            padding_mode=padding_mode or conv.padding_mode,
            device=conv.weight.device,
            dtype=conv.weight.dtype,
            **options,
        )
        layer.replaced = repr(conv)
        shared[id(conv)] = layer.train(conv.training)
        return layer

    def wanted(name: str, module: nn.Module) -> bool:
        return module is not first and _is_suitable(module, padding_mode) and (select is None or select(name, module))

    if wanted("", model):
        return build("", model)
    for name, parent in list(model.named_modules()):
        # Not named_children, which leaves out the second name of a shared module.
        for child_name, child in list(parent._modules.items()):
            path = f"{name}.{child_name}" if name else child_name
            if child is not None and wanted(path, child):
                setattr(parent, child_name, build(path, child))
    if not shared:
        raise ValueError(
            f"replace_convs found no suitable convolution in {type(model).__name__}: "
            "it needs groups=1, a kernel larger than 1 and padding that keeps the size"
            + (", and only stem=True replaces the first one" if first is not None else "")
        )
    return model


def replaced_convs(model: nn.Module) -> dict[str, str]:
    """What :func:`replace_convs` did to a model: for each name, the convolution and what replaced it.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1))
    >>> torchsonic.nn.replaced_convs(torchsonic.replace_convs(model, num_modes=4, stem=True))
    {'0': "Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1)) -> SonicConv2d, 4 modes, 'zeros'"}
    """

    def described(layer: SonicConvNd) -> str:
        margin = "" if layer.padding is None else f", padding {layer.padding}"
        return f"{layer.replaced} -> {type(layer).__name__}, {layer.num_modes} modes, {layer.padding_mode!r}{margin}"

    named = ((name, layer) for name, layer in model.named_modules() if isinstance(layer, SonicConvNd))
    return {name: described(layer) for name, layer in named if layer.replaced is not None}
