"""Networks for volumes: time and peak memory of a training step, beside nnU-Net's large network or MONAI's U-Net."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.memory import peak_bytes, storage_bytes
from benchmarks.progress import progress_bar
from benchmarks.timing import Task, measure
from torchsonic import create_model
from torchsonic.baselines import MonaiUNet
from torchsonic.functional import keep_all_pages
from torchsonic.lab.metrics import count_flops, count_parameters
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.lab.runs.volumes.plan import fine_axes, unet_strides
from torchsonic.models.sonicnet import MARGIN

__all__ = [
    "CONTENDERS",
    "DEFAULT",
    "FULL",
    "QUICK",
    "REFERENCE",
    "UNET",
    "Patch",
    "run_volumes_bench",
    "select_patches",
]

CLASSES = 4
DEFAULT, LIGHT = "sonicunet3d", "sonicnet3d.light"
REFERENCE, UNET = "nnU-Net ResEnc L", "MONAI UNet"
STEP = "train_step"
BLOCKS = (1, 3, 4, 6, 6, 6)  # of ResEnc L's stages; deeper ones have as many as the last
MOST_FEATURES = 320
LEVELS = (16, 32, 64, 128, 256)  # channels of MONAI's U-Net, as in the recipes
PAPER_BYTES = 8e9


@dataclass(frozen=True)
class Patch:
    """What a step sees."""

    size: tuple[int, int, int]
    spacing: tuple[float, float, float]
    batch: int = 1
    budget: float = 1200.0
    """Seconds; a network whose share they exceed gets fewer samples."""
    without: tuple[str, ...] = ()
    """Networks that are left out."""
    once: tuple[str, ...] = ()
    """Networks whose step takes minutes: timed once, while memory is measured."""
    reference: str = REFERENCE
    """The network to compare with."""
    goals: tuple[float, float] = (1 / 2, 1 / 3)
    """Time and memory that the default network may take, over those of the reference."""

    @property
    def name(self) -> str:
        return "x".join(map(str, self.size))


DYN_UNET = "MONAI DynUNet"  # it and ResEnc L want sizes that their strides divide
PAPER = "sonicnet3d.paper_size"  # minutes for a step; its goal is for cubes
HEARTS = Patch(
    (10, 124, 128), (10.0, 1.4, 1.4), 2, 120.0, without=(PAPER, DYN_UNET, REFERENCE), reference=UNET, goals=(1.3, 1.0)
)
FULL = (
    Patch((32, 192, 192), (3.0, 0.5, 0.5), without=(PAPER,)),
    Patch((96, 96, 96), (1.0, 1.0, 1.0), once=(PAPER,)),
    HEARTS,  # of recipes/medical/acdc.sh
)
QUICK = (Patch((16, 32, 32), (3.0, 0.5, 0.5), budget=30.0, without=(PAPER,)),)


def _sonic(preset: str, **options: Any) -> Callable[[Patch], nn.Module]:
    def build(patch: Patch) -> nn.Module:
        arguments: dict = {"in_channels": 1, "num_classes": CLASSES, "spacing": patch.spacing, **options}
        if preset == LIGHT:
            arguments["stride"] = tuple(2 if fine else 1 for fine in fine_axes(patch.spacing))
        return create_model(preset, **arguments)

    return build


def _stages(patch: Patch) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Strides, kernels and features of each stage, as nnU-Net plans them for the patch."""
    from nnunetv2.experiment_planning.experiment_planners.network_topology import get_pool_and_conv_props

    _, strides, kernels, _, _ = get_pool_and_conv_props(patch.spacing, patch.size, 4, 999999)
    strides = [list(map(int, stride)) for stride in strides]
    features = [min(32 * 2**stage, MOST_FEATURES) for stage in range(len(strides))]
    return strides, [list(map(int, kernel)) for kernel in kernels], features


def _res_enc_l(patch: Patch) -> nn.Module:
    from dynamic_network_architectures.architectures.unet import ResidualEncoderUNet

    strides, kernels, features = _stages(patch)
    stages = len(strides)
    each: Any = {"kernel_sizes": kernels, "strides": strides}  # lists for each axis, which their annotations forget
    blocks = [*BLOCKS, *[BLOCKS[-1]] * stages][:stages]
    return ResidualEncoderUNet(
        1,
        stages,
        features,
        nn.Conv3d,
        n_blocks_per_stage=blocks,
        num_classes=CLASSES,
        n_conv_per_stage_decoder=[1] * (stages - 1),
        **each,
        conv_bias=True,
        norm_op=nn.InstanceNorm3d,
        norm_op_kwargs={"eps": 1e-5, "affine": True},
        nonlin=nn.LeakyReLU,
        nonlin_kwargs={"inplace": True},
        deep_supervision=False,
    )


def _dyn_unet(patch: Patch) -> nn.Module:
    from monai.networks.nets.dynunet import DynUNet

    strides, kernels, features = _stages(patch)
    return DynUNet(3, 1, CLASSES, kernels, strides, strides[1:], filters=features)


def _unet(patch: Patch) -> nn.Module:
    strides = unet_strides(patch.spacing, patch.size)
    return MonaiUNet(1, CLASSES, channels=LEVELS[: len(strides) + 1], strides=strides)


CONTENDERS: dict[str, Callable[[Patch], nn.Module]] = {
    DEFAULT: _sonic(DEFAULT),
    f"{DEFAULT}, wrapping": _sonic(DEFAULT, padding_mode="circular"),
    LIGHT: _sonic(LIGHT),
    "sonicnet3d": _sonic("sonicnet3d"),
    PAPER: _sonic(PAPER),
    UNET: _unet,
    DYN_UNET: _dyn_unet,
    REFERENCE: _res_enc_l,
}


def select_patches(patches: Sequence[Patch], names: Sequence[str], without: Sequence[str]) -> list[Patch]:
    """The patches of some names, all by default, without some networks; raises ``ValueError`` for unknown ones."""
    known = {patch.name: patch for patch in patches}
    unknown = set(names) - set(known)
    if unknown:
        raise ValueError(f"--patches: there is no {min(unknown)!r}; choose from {', '.join(known)}")
    chosen = [patch for name, patch in known.items() if not names or name in names]
    compared = {DEFAULT, *[patch.reference for patch in chosen]}
    removable = [name for name in CONTENDERS if name not in compared]
    refused = set(without) - set(removable)
    if refused:
        raise ValueError(
            f"--without: {min(refused)!r} cannot be left out; these can: {', '.join(map(repr, removable))}"
        )
    return [replace(patch, without=(*patch.without, *without)) for patch in chosen]


def run_volumes_bench(patches: Sequence[Patch], *, repeats: int, seed: int = 0, device: str = "cpu") -> dict:
    """Measure a training step of all networks on each patch: forward and backward, gradients of all parameters.

    Returns
    -------
    dict
        ``run`` (provenance), ``pages_kept`` (whether freed memory was kept, as in training) and ``patches``, a record
        each.
    """
    where = torch.device(device)
    run = describe_run(seed=seed, device=where)
    with progress_bar("networks for volumes", sum(patch.budget for patch in patches)) as part:
        records = [_measure_patch(patch, repeats, seed, where, part(patch.name, patch.budget)) for patch in patches]
    return {"kind": "volumes", "run": run, "repeats": repeats, "pages_kept": keep_all_pages(), "patches": records}


class _Step:
    """A training step without the optimiser's part."""

    def __init__(self, model: nn.Module, x: Tensor) -> None:
        self.model, self.x = model, x
        self.grad_y = torch.randn(len(x), CLASSES, *x.shape[2:], device=x.device)

    def __call__(self) -> object:
        keep_all_pages()  # as the training loop does
        # U-Nets own heads for deep supervision even when it is off.
        return torch.autograd.grad(self.model(self.x), [*self.model.parameters()], self.grad_y, allow_unused=True)

    def held(self) -> int:
        """Bytes that are allocated before the step begins."""
        return storage_bytes([self.x, self.grad_y, *self.model.parameters(), *self.model.buffers()])


def _measure_patch(
    patch: Patch, repeats: int, seed: int, device: torch.device, advance: Callable[[float], None]
) -> dict:
    torch.manual_seed(seed)
    x = torch.randn(patch.batch, 1, *patch.size, device=device)
    steps = {
        name: _Step(build(patch).to(device).train(), x)
        for name, build in CONTENDERS.items()
        if name not in patch.without
    }
    tasks = [Task(name, STEP, step) for name, step in steps.items()]
    measure(
        [task for task in tasks if task.contender not in patch.once],
        repeats=repeats,
        budget=patch.budget,
        device=device,
        on_progress=lambda fraction: advance(0.8 * fraction),
    )
    networks = []
    for task in tasks:
        step = steps[task.contender]
        start = time.perf_counter()
        peak = step.held() + peak_bytes(step, device)
        if task.contender in patch.once:
            task.samples.append(time.perf_counter() - start)
        cost = {
            "parameters": count_parameters(step.model),
            "flops": count_flops(step.model.eval().to("meta"), x[:1].to("meta")),  # counts without computing
        }
        networks.append({"name": task.contender, **cost, "peak_bytes": peak, **task.summary()})
        advance(0.2 / len(tasks))
    return {
        "size": patch.size,
        "spacing": patch.spacing,
        "batch": patch.batch,
        "reference": patch.reference,
        "margin": MARGIN,
        "goals": patch.goals,
        "once": [name for name in patch.once if name in steps],
        "networks": networks,
    }
