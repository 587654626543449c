"""A collection of Sonic layers without a network around them, saved and loaded like one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from torchsonic.functional.options import group_old
from torchsonic.models.pretrained import PretrainedModel
from torchsonic.nn.conv import SonicConvNd, make_sonic
from torchsonic.spectral.spacing import Spacing


class SonicLayers(PretrainedModel):
    """Sonic layers under the names they have in some network, for example one that ``torchsonic convert`` read.

    Parameters
    ----------
    layers
        Arguments of :func:`torchsonic.nn.make_sonic` for each name.

    Examples
    --------
    >>> arguments = {"in_channels": 3, "out_channels": 8, "num_modes": 4, "spatial_dims": 2}
    >>> layers = torchsonic.models.SonicLayers({"stem.sonic": arguments})
    >>> layers["stem.sonic"](torch.randn(1, 3, 16, 16)).shape
    torch.Size([1, 8, 16, 16])
    """

    def __init__(self, layers: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__()
        if not layers:
            raise ValueError("layers is empty")
        taken = nn.ModuleDict()
        for name in layers:
            if not name or "/" in name or hasattr(taken, name):
                raise ValueError(f"layer names must not contain '/' or clash with attributes of a module, got {name!r}")
        # Names of modules may hold no dots. Files of older versions have keywords of these.
        self.layers = nn.ModuleDict(
            {name.replace(".", "/"): make_sonic(**group_old(given, warn=False)) for name, given in layers.items()}
        )

    def __getitem__(self, name: str) -> SonicConvNd:
        key = name.replace(".", "/")
        if key not in self.layers:
            raise KeyError(f"there is no layer {name!r}; choose from {', '.join(self)}")
        layer = self.layers[key]
        assert isinstance(layer, SonicConvNd)
        return layer

    def __iter__(self) -> Iterator[str]:
        return (key.replace("/", ".") for key in self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def _forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        """Apply the layer, if there is only one."""
        if len(self) != 1:
            raise ValueError(
                f"there are {len(self)} layers; apply one of them, for example layers[{next(iter(self))!r}]"
            )
        return self[next(iter(self))](x, spacing)
