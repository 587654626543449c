"""The network in which the paper compares operators on synthetic shapes: same stem, same head, different backbones."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import Tensor, nn

from torchsonic.arguments import check_samples, choice, positive
from torchsonic.models.pretrained import PretrainedModel
from torchsonic.models.registry import BACKBONES
from torchsonic.models.sonicnet import CIRCULAR, MARGIN, border_options
from torchsonic.models.window import Projected, is_pointwise, run_in_window
from torchsonic.nn.block import SonicBlock
from torchsonic.nn.chain import SpacedSequential
from torchsonic.nn.norm import Norm, make_conv, make_norm
from torchsonic.nn.physical_layer import apply, knows_spacing, refuse_unheard
from torchsonic.spectral.boundary import PaddingMode
from torchsonic.spectral.orientation import Matrix
from torchsonic.spectral.spacing import Spacing, spacing_values
from torchsonic.spectral.window import Window, check_window, crop

# Of networks whose files do not name them; later files name all options of this backbone.
EARLIER_ORBITS = {"num_modes": 6, "group": "C8", "padding": MARGIN, "standardise": False}


class SynthShapeNet(PretrainedModel):
    r"""1x1 projection, backbone, sum of both, head: ``(B, 3, H, W)`` to logits ``(B, num_classes, H, W)``.

    .. math:: y = \mathrm{head}(z + \mathrm{backbone}(z)), \qquad z = P x

    Parameters
    ----------
    backbone
        ``sonic``, ``conv``, ``vit``, ``s4nd``, ``niff`` or ``gfnet``.
    width, depth
        Number of channels and blocks; HalliGalli has one block.
    head
        ``table``: 1x1, GroupNorm, GELU, 1x1, which gives the parameter counts of the paper's Table 1. ``text``:
        GroupNorm, GELU, 3x3, as the paper's appendix describes.
    head_norm
        Norm of the head; ``channel`` normalises each pixel separately.
    backbone_options
        Arguments of the backbone, for example ``{"norm": "channel"}`` for Sonic.

    Examples
    --------
    >>> model = torchsonic.create_model("synthshape_sonicnet")
    >>> round(sum(p.numel() for p in model.parameters()) / 1e6, 3)
    0.072
    """

    def __init__(
        self,
        backbone: str = "sonic",
        *,
        in_channels: int = 3,
        num_classes: int = 6,
        width: int = 64,
        depth: int = 4,
        head: Literal["table", "text"] = "table",
        head_norm: Norm = "group",
        backbone_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        positive(depth, "depth")
        positive(num_classes, "num_classes")
        self.in_channels = positive(in_channels, "in_channels")
        self.project = make_conv(in_channels, width, spatial_dims=2)
        build = BACKBONES[backbone]
        usual = {name: p.default for name, p in inspect.signature(build).parameters.items() if p.default is not p.empty}
        options = {**usual, **(backbone_options or {})}
        if "backbone_options" in self.arguments:  # else a subclass chooses them
            self.arguments["backbone_options"] = options
        self.backbone = build(width, depth, **options)
        self.takes_spacing = knows_spacing(self.backbone)
        if choice(head, ("table", "text"), "head") == "table":
            hidden = [make_conv(width, width, spatial_dims=2)]
            kernel = 1
        else:
            hidden, kernel = [], 3
        self.head = nn.Sequential(
            *hidden,
            make_norm(head_norm, width, 2),
            nn.GELU(),
            make_conv(width, num_classes, kernel, spatial_dims=2, bias=True),
        )

    @classmethod
    def complete_arguments(cls, arguments: dict[str, Any], format: int) -> dict[str, Any]:
        backbone = arguments.get("backbone", "sonic")
        before = CIRCULAR if (backbone, format) == ("sonic", 1) else EARLIER_ORBITS if backbone == "orbit" else {}
        if not before:
            return arguments
        return {**arguments, "backbone_options": {**before, **(arguments.get("backbone_options") or {})}}

    def forward(
        self,
        x: Tensor,
        spacing: Spacing | None = None,
        window: Window | None = None,
        *,
        orientation: Matrix | None = None,
        affine: Matrix | None = None,
    ) -> Tensor:
        """Logits of images.

        Parameters
        ----------
        x
            ``(B, in_channels, H, W)``.
        spacing
            Physical size of the pixels; only if ``takes_spacing``.
        window
            Two slices, the rows and columns for which logits are needed; other work is skipped where possible.
        orientation, affine
            Of the image, if the backbone is Sonic; see :class:`torchsonic.nn.OrientedNetwork`.

        Returns
        -------
        Tensor
            ``(B, num_classes, H, W)``, or the size of the window.
        """
        if window is not None:
            check_samples(x, 2, self.in_channels, type(self).__name__)
            check_window(window, x.shape[2:])
        straight = orientation is None and affine is None and self.storages is None
        if window is None or not straight:
            logits = super().forward(x, spacing, orientation=orientation, affine=affine)
            return logits if window is None else crop(logits, window)
        return self._forward(x, spacing, window)

    def _forward(self, x: Tensor, spacing: Spacing | None = None, window: Window | None = None) -> Tensor:
        check_samples(x, 2, self.in_channels, type(self).__name__)
        refuse_unheard(self, spacing)
        if window is not None and all(is_pointwise(part) for part in self.head):
            image = Projected(x, self.project.get_parameter("weight").flatten(1))
            return self.head(image.crop(window) + run_in_window(self.backbone, image, window, spacing))
        z = self.project(x)
        logits = self.head(z + apply(self.backbone, z, spacing))
        return logits if window is None else crop(logits, window)


def sonic_backbone(
    width: int,
    depth: int,
    *,
    num_modes: int = 64,
    padding: int | Sequence[int] | None = MARGIN,
    padding_mode: PaddingMode = "zeros",
    **options: Any,
) -> nn.Module:
    """Sonic blocks, by default ``ReLU(GroupNorm(Sonic(x)) + x)``; options as in :class:`torchsonic.nn.SonicBlock`."""
    options |= border_options(padding, padding_mode, spacing_values(options.get("spacing", 1.0), 2))
    return SpacedSequential(*[SonicBlock(width, width, num_modes=num_modes, **options) for _ in range(depth)])


BACKBONES.add("sonic", sonic_backbone)
