"""torchsonic in MONAI: networks that read the spacing and orientation of a ``MetaTensor``, and windows that keep them.

MONAI's images have an affine, whose columns correspond to the spatial axes of the tensor in order, and transforms
(``Orientationd``, ``Spacingd``, ``RandZoomd`` and so on) update it. :class:`SonicNet` reads spacing and orientation
from it, separately for each sample of a batch. ``monai.inferers.SlidingWindowInferer`` cuts windows out of plain
tensors, so the network would get neither; :class:`SlidingWindowInferer` in this module passes them on.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

try:
    import monai.inferers
    from monai.data.meta_obj import get_track_meta
    from monai.data.meta_tensor import MetaTensor
    from monai.utils.type_conversion import convert_to_tensor
except ImportError as error:
    raise ImportError('torchsonic.integrations.monai needs MONAI; run: pip install "torchsonic[medical]"') from error

from torchsonic import models
from torchsonic.integrations.monai_affine import axes_of, orientation_of, spacing_of
from torchsonic.nn.rearranged import read_affine, run_rearranged
from torchsonic.spectral.orientation import Matrix, split_orientation
from torchsonic.spectral.spacing import Sampling, Spacing, as_spacing, joint_spacing

__all__ = ["OrbitNet", "SlidingWindowInferer", "SonicNet", "SonicUNet", "orientation_of", "spacing_of"]

Segmenter = models.SonicNet | models.SonicUNet | models.OrbitNet


class SonicNet(nn.Module):
    """:class:`torchsonic.models.SonicNet` with MONAI's arguments; it reads spacing and orientation from the image.

    Parameters
    ----------
    spatial_dims, in_channels, out_channels
        As everywhere in MONAI.
    use_meta
        Read spacing and orientation from a ``MetaTensor``. With ``False``, or for a plain tensor, the network assumes
        its reference spacing unless ``forward`` is given another.
    use_orientation
        Read the orientation as well, so that the axis order of an image does not matter. ``False`` ignores it.
    options
        Options of :class:`torchsonic.models.SonicNet`: ``width``, ``depth``, ``num_modes``, ``stride``, ``norm``,
        ``spacing`` (the reference, along the tensor's axes) and so on.

    Examples
    --------
    >>> from monai.data import MetaTensor
    >>> model = SonicNet(3, 1, 4, width=8, depth=2, spacing=(1.5, 1.5, 8.0))
    >>> affine = torch.diag(torch.tensor([0.75, 0.75, 5.0, 1.0]))
    >>> logits = model(MetaTensor(torch.randn(1, 1, 20, 24, 6), affine=affine))  # uses (0.75, 0.75, 5.0)
    >>> tuple(logits.shape), logits.pixdim.tolist()
    ((1, 4, 20, 24, 6), [0.75, 0.75, 5.0])
    """

    takes_spacing: ClassVar[bool] = True
    network_type: ClassVar[type[Segmenter]] = models.SonicNet

    def __init__(
        self,
        spatial_dims: int,
        in_channels: int,
        out_channels: int,
        *,
        use_meta: bool = True,
        use_orientation: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        network = self.network_type(in_channels, out_channels, spatial_dims=spatial_dims, **options)
        self._wrap(network, use_meta, use_orientation)

    def _wrap(self, network: Segmenter, use_meta: bool, use_orientation: bool) -> None:
        self.network, self.use_meta, self.use_orientation = network, use_meta, use_meta and use_orientation
        self.spatial_dims = network.num_axes
        self._heard: set[str] = set()
        self._axes: set[str] = set()

    def forward(
        self,
        x: Tensor,
        spacing: Spacing | None = None,
        *,
        orientation: Matrix | None = None,
        affine: Matrix | None = None,
    ) -> Tensor:
        """Logits ``(B, out_channels, *size)``, a ``MetaTensor`` if ``x`` is one.

        Parameters
        ----------
        x
            ``(B, in_channels, *size)``.
        spacing
            A number, one per axis, or ``(B, D)``; takes precedence over the image's.
        orientation
            ``(D, D)`` or ``(B, D, D)``; takes precedence over the image's.
        affine
            Instead of both: ``(D + 1, D + 1)``, or one per sample.
        """
        spacing, orientation = self.read_sampling(x, spacing, orientation, affine)
        if not isinstance(x, MetaTensor):
            return self.network(x, spacing, orientation=orientation)
        logits = self.network(x.as_tensor(), spacing, orientation=orientation)
        return MetaTensor(logits).copy_meta_from(x, copy_attr=False) if get_track_meta() else logits

    def read_sampling(
        self, x: Tensor, spacing: Spacing | None, orientation: Matrix | None, affine: Matrix | None
    ) -> tuple[Spacing | None, Matrix | None]:
        """The spacing and orientation to use for ``x``: those passed, otherwise those of the image."""
        if affine is not None:
            return read_affine(affine, self.spatial_dims, spacing, orientation)
        if not isinstance(x, MetaTensor):
            self._warn_of_lost(spacing=spacing, orientation=orientation)
            return spacing, orientation
        if spacing is None and self.use_meta:
            spacing = joint_spacing(spacing_of(x, self.spatial_dims))  # type: ignore[arg-type]
            self._heard.add("spacing")
        if orientation is None and self.use_orientation:
            orientation = orientation_of(x, self.spatial_dims)
            straight = torch.eye(self.spatial_dims, device="cpu", dtype=torch.float64)
            if orientation is not None and not torch.allclose(orientation, straight, atol=1e-4):
                self._heard.add("orientation")
        elif orientation is None and self.use_meta and not self.training:  # where flips are meant
            self._warn_of_other_axes(axes_of(x, self.spatial_dims))
        return spacing, orientation

    def _warn_of_lost(self, **told: Any) -> None:
        """Warn, once, that a plain tensor lacks what came with images before."""
        lost = sorted(name for name in self._heard if told[name] is None)
        if lost:
            names, options = " and ".join(lost), " and ".join(f"{name}=" for name in lost)
            warnings.warn(
                f"this network got its {names} from MetaTensors before and now gets a plain tensor, so it assumes its "
                f"reference {names}; pass {options}, or use torchsonic.integrations.monai.SlidingWindowInferer",
                stacklevel=6,
            )
            self._heard -= set(lost)

    def _warn_of_other_axes(self, axes: set[str]) -> None:
        """Warn, once, if images are stored in several ways and the network is to ignore it."""
        if len(self._axes) < 2 <= len(self._axes | axes):
            warnings.warn(
                f"images have the axes {', '.join(sorted(self._axes | axes))}, which use_orientation=False ignores, so "
                "some results may be poor; bring all images to one order with Orientationd, or use the orientation",
                stacklevel=6,
            )
        self._axes |= axes

    def save_pretrained(self, folder: str | os.PathLike) -> Path:
        """Save the network without the MONAI wrapper; :func:`torchsonic.from_pretrained` loads it, too."""
        return self.network.save_pretrained(folder)

    @classmethod
    def from_pretrained(
        cls, source: str | os.PathLike, *, use_meta: bool = True, use_orientation: bool = True, **options: Any
    ) -> SonicNet:
        """Load a model saved by :meth:`save_pretrained` or by the network itself; options as in its constructor."""
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        model._wrap(cls.network_type.from_pretrained(source, **options), use_meta, use_orientation)
        return model.eval()


class SonicUNet(SonicNet):
    """:class:`torchsonic.models.SonicUNet` with MONAI's arguments; otherwise like :class:`SonicNet`, for volumes.

    Examples
    --------
    >>> model = SonicUNet(3, 1, 4, spacing=(1.5, 1.5, 8.0))
    >>> model(torch.randn(1, 1, 20, 24, 6), spacing=(1.25, 1.25, 10.0)).shape
    torch.Size([1, 4, 20, 24, 6])
    """

    network_type = models.SonicUNet


class OrbitNet(SonicNet):
    """:class:`torchsonic.models.orbitnet.OrbitNet` with MONAI's arguments: logits that rotate with the image.

    Examples
    --------
    >>> model = OrbitNet(3, 1, 2, width=2, depth=1, group="C4")
    >>> model(torch.randn(1, 1, 10, 12, 6), spacing=(1.25, 1.25, 10.0)).shape
    torch.Size([1, 2, 10, 12, 6])
    """

    network_type = models.OrbitNet


class SlidingWindowInferer(monai.inferers.SlidingWindowInferer):
    """MONAI's inferer with windows that keep the spacing and orientation of their image.

    All arguments are MONAI's. For a ``MetaTensor``, every window is a ``MetaTensor`` with the affine of its image (so
    its origin is the image's, not the window's); windows of several images may share a call. ``spacing``,
    ``orientation`` or ``affine`` may be passed in the call, for example with a plain tensor, one for all images or one
    for each; every window gets those of its image.

    If the network uses the orientation, or the call passes one, images with another axis order are first brought to
    the axes of training: ``roi_size`` refers to these axes, windows cover the same anatomy, and the result has the axes
    of the image.

    Examples
    --------
    >>> from monai.data import MetaTensor
    >>> model = SonicNet(3, 1, 2, width=8, depth=1).eval()
    >>> image = MetaTensor(torch.randn(1, 1, 20, 20, 6), affine=torch.diag(torch.tensor([0.8, 0.8, 5.0, 1.0])))
    >>> with torch.no_grad():
    ...     SlidingWindowInferer((16, 16, 6), sw_batch_size=4, mode="gaussian")(image, model).shape
    torch.Size([1, 2, 20, 20, 6])
    """

    def __call__(self, inputs: Tensor, network: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Stitched outputs of all windows, as in MONAI."""
        if not len(inputs):
            raise ValueError(f"inputs {tuple(inputs.shape)} are an empty batch, which has no windows; leave it out")
        axes = inputs.dim() - 2
        spacing, orientation, affine = (kwargs.pop(name, None) for name in ("spacing", "orientation", "affine"))
        if hasattr(network, "read_sampling"):
            spacing, orientation = network.read_sampling(inputs, spacing, orientation, affine)  # type: ignore[attr-defined]
        elif affine is not None:
            spacing, orientation = read_affine(affine, axes, spacing, orientation)
        if orientation is None:
            return self._stitch(inputs, network, spacing, None, *args, **kwargs)

        def run(x: Tensor, sampling: Spacing | None) -> Any:
            straight = torch.eye(axes, device="cpu", dtype=torch.float64)[None]
            told = sampling if isinstance(sampling, Sampling) else Sampling(sampling, straight)
            return self._stitch(x, network, told.spacing, told.orientation, *args, **kwargs)

        storages, rest = split_orientation(orientation, axes, batch=len(inputs))
        if not isinstance(inputs, MetaTensor):
            return run_rearranged(run, inputs, spacing, storages, rest)
        result = run_rearranged(run, inputs.as_tensor(), spacing, storages, rest)
        return tree_map(lambda part: MetaTensor(part).copy_meta_from(inputs, copy_attr=False), result)

    def _stitch(
        self,
        inputs: Tensor,
        network: Callable[..., Any],
        spacing: Spacing | None,
        orientation: Tensor | None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """MONAI's own stitching, of windows along the axes of the array that get the sampling of their image."""
        axes, batch = inputs.dim() - 2, len(inputs)
        steps = None if spacing is None else as_spacing(spacing, axes, batch=batch, device="cpu").expand(batch, axes)
        turns = None if orientation is None else orientation.expand(batch, axes, axes)
        affine = inputs.affine if isinstance(inputs, MetaTensor) else None
        if steps is None and turns is None and affine is None:
            return super().__call__(inputs, network, *args, **kwargs)
        affine = None if affine is None else affine.expand(batch, *affine.shape[-2:])

        def predict(windows: Tensor, places: list[list[slice]], *inner: Any, **options: Any) -> Any:
            images = [place[0].start for place in places]
            if affine is not None:
                windows = MetaTensor(windows, meta={"affine": affine[images]})
                windows.is_batch = True
            if steps is not None:
                options["spacing"] = joint_spacing(steps[images])
            if turns is not None:
                options["orientation"] = turns[images]
            answer = network(windows, *((places,) if self.with_coord else ()), *inner, **options)
            return convert_to_tensor(answer, track_meta=False)

        twin = copy.copy(self)  # only the coordinates of a window say which image it is from
        twin.with_coord = True
        return monai.inferers.SlidingWindowInferer.__call__(twin, inputs, predict, *args, **kwargs)
