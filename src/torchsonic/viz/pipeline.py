r"""What a layer does to an image, step by step: :math:`x`, :math:`\mathcal F[x]`, :math:`\hat H`,
:math:`\hat H \mathcal F[x]`, :math:`y`, as in the paper's figure of the block.

Everything is at the layer's reference spacing and without a margin. Images are cropped to odd sizes, so that every
frequency has its opposite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from torchsonic.nn import SonicConvNd
from torchsonic.spectral.operator import frequency_parts
from torchsonic.viz import style
from torchsonic.viz.energy import shares_of_highest
from torchsonic.viz.lattice import Lattice, central_slice, named_sonic_layers, physical_operator, reference_lattice
from torchsonic.viz.spectra import COARSE, choose_evenly, strongest_channels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 4
TITLES = (r"$x_c$", r"$|\mathcal{F}[x_c]|$", r"$|\hat H_{kc}|$", r"$|\sum_c \hat H_{kc}\,\mathcal{F}[x_c]|$", "$y_k$")


class Pipeline(NamedTuple):
    """Steps from an input channel c to an output channel k, each ``(*size)``; spectra are complex and centred.

    ``y`` and its spectrum include all input channels, but not the bias.
    """

    x: Tensor
    spectrum: Tensor
    response: Tensor
    product: Tensor
    y: Tensor
    lattice: Lattice


def layer_inputs(model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """The input of each Sonic layer of a model for the first of some images, ``(C, *size)``, by name."""
    names: dict[nn.Module, str] = {layer: name for name, layer in named_sonic_layers(model).items()}
    heard: dict[str, Tensor] = {}

    def listen(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        heard.setdefault(names[layer], given[0][0].detach().cpu())

    hooks = [layer.register_forward_pre_hook(listen) for layer in names]
    was_training = model.training
    try:
        with torch.no_grad():
            model.eval()(images)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return heard


@torch.no_grad()
def layer_pipeline(layer: SonicConvNd, x: Tensor, *, output: int | None = None, input: int | None = None) -> Pipeline:
    """The steps of a layer for an input ``(C, *size)``, standardised first if the layer does that.

    Parameters
    ----------
    output, input
        Channels k and c; by default those with the most energy.

    Examples
    --------
    >>> layer = torchsonic.SonicConv2d(2, 3, num_modes=4)
    >>> torchsonic.viz.layer_pipeline(layer, torch.randn(2, 16, 16)).y.shape
    torch.Size([15, 15])
    """
    if x.dim() != layer.num_axes + 1 or x.shape[0] != layer.in_channels or min(x.shape[1:]) < 3:
        wanted = f"({layer.in_channels}, {', '.join('N' * layer.num_axes)}), each N at least 3"
        raise ValueError(f"x must have the shape {wanted}, got {tuple(x.shape)}")
    seen = layer._standardised(x[None].double().to(layer.mix_in.device))[0].cpu()
    seen = seen[(slice(None), *[slice(n - 1 + n % 2) for n in x.shape[1:]])]
    strongest = strongest_channels(layer, reference_lattice(layer, COARSE), 1)
    k, c = strongest[0][0] if output is None else output, strongest[1][0] if input is None else input
    lattice, axes = Lattice(tuple(seen.shape[1:]), layer.reference_spacing), tuple(range(1, seen.dim()))
    spectra = torch.fft.fftshift(torch.fft.fftn(seen, dim=axes), dim=axes)
    operator = physical_operator(layer).between(range(layer.in_channels), [k])
    parts = frequency_parts(lattice.omega.flatten(0, -2), layer.num_modes * layer.in_channels)
    responses = torch.cat([operator.symbol(omega)[:, 0] for omega in parts]).T.reshape(spectra.shape)
    product = (responses * spectra).sum(0)
    y = torch.fft.ifftn(torch.fft.ifftshift(product)).real
    return Pipeline(seen[c], spectra[c], responses[c], product, y, lattice)


@style.styled
def draw_pipeline(model: nn.Module, images: Tensor, *, layers: Sequence[str] | None = None, unit: str = "px") -> Figure:
    """Draw a row for each layer: its input, its spectrum, the response, their product, and the output.

    Spectra and responses are shown over four decades below their highest value; volumes are cut through the centre.

    Parameters
    ----------
    model, images
        A network and an image ``(1, C, *size)`` for it, or a Sonic layer and its input.
    layers
        Names of Sonic layers; by default four of them, evenly chosen.

    Examples
    --------
    >>> figure = torchsonic.viz.draw_pipeline(torchsonic.SonicConv2d(3, 8), torch.randn(1, 3, 32, 32))
    """
    found, inputs = named_sonic_layers(model), layer_inputs(model, images)
    chosen = choose_evenly(list(inputs), ROWS) if layers is None else list(layers)
    for name in chosen:
        if name not in inputs:
            raise ValueError(f"layers must be from {', '.join(inputs)}, got {name!r}")
        if found[name].num_axes == 1:
            raise ValueError(f"{name} is a layer for signals; pipelines can be drawn only for images and volumes")
    pipelines = [layer_pipeline(found[name], inputs[name]) for name in chosen]
    figure = style.new_figure(10.2, 1.9 * len(chosen) + 0.9)
    figure.suptitle(r"$x \;\to\; \mathcal{F}[x] \;\to\; \hat H \mathcal{F}[x] \;\to\; y$")
    panels = figure.subplots(len(chosen), 5, squeeze=False)
    for line, steps in zip(panels, pipelines, strict=True):
        for panel, values in ((line[0], steps.x), (line[4], steps.y)):
            picture = central_slice(values)
            edges = {"lowest": float(picture.min()), "highest": float(picture.max())}
            style.show_map(panel, picture, steps.lattice.places[-2:], **edges)
        for panel, values in zip(line[1:4], (steps.spectrum, steps.response, steps.product), strict=True):
            shares = shares_of_highest(central_slice(values.abs()), values.abs())
            style.show_decades(panel, shares, steps.lattice.frequencies[-2:])
    lattice = pipelines[-1].lattice
    for place, (panel, title) in enumerate(zip(panels[0], TITLES, strict=True)):
        panel.set_title(title, pad=4)
        axes = lattice.frequencies if 0 < place < 4 else lattice.places
        style.frame_axes(panels[-1, place], axes[-2:], style.AXIS_NAMES[2], unit, frequency=0 < place < 4)
        panels[-1, place].set_ylabel("")
    for line, name in zip(panels, chosen, strict=True):
        line[0].set_ylabel(name, fontsize=7.5)
    return figure
