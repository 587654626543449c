"""Names and shapes of the three generations of the released layer.

| generation | names | gain | limits |
|---|---|---|---|
| ``rms`` | ``vx vy alpha tau_raw scale_raw beta_raw rho`` | RMS over the grid | none |
| ``dc`` | the same, and ``vz`` in 3-D | ``|T(0)| = 1`` | ``|T| <= 5``, cut |
| ``free`` | ``theta_v [phi_v] alpha_raw beta log_dc_gain log_tau log_scale [log_bandwidth]`` | learned | soft, band |

All have ``B_re B_im C_re C_im`` and may have ``Bmask``. In 2-D the first two have the same names, so a file does not
show which one it is from. The last had ``log_alpha`` before it was split into ``alpha_raw`` and ``log_dc_gain``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Generation = Literal["rms", "dc", "free"]

MIXERS = {"B_re", "B_im", "C_re", "C_im"}
EARLY = {"vx", "vy", "alpha", "tau_raw", "scale_raw", "beta_raw", "rho"}
LATE = {"theta_v", "alpha_raw", "beta", "log_dc_gain", "log_tau", "log_scale"}
LATE_FIRST = LATE - {"alpha_raw", "log_dc_gain"} | {"log_alpha"}
OPTIONAL = {"early": {"vz", "Bmask"}, "late": {"phi_v", "log_bandwidth", "Bmask"}}
# Names that no other layer of a network is likely to have; the others count only beside these.
TELLING = MIXERS | {
    "tau_raw", "scale_raw", "beta_raw", "theta_v", "log_dc_gain", "log_tau", "log_scale", "log_bandwidth", "log_alpha",
}  # fmt: skip
# Types of numbers that can be computed with; a mask may be of bools or whole ones.
REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class ConversionError(ValueError):
    """Weights that cannot be converted; the message names the keys, the reason, and what to do."""


@dataclass(frozen=True)
class ReleasedLayer:
    """The tensors of one released layer, names and shapes checked, in float64.

    Attributes
    ----------
    name
        Where it was in the network.
    family
        ``"early"`` for ``rms`` and ``dc``, ``"late"`` for ``free``.
    tensors
        Tensors by the last part of their name.
    dtype
        Their dtype in the file.
    """

    name: str
    family: Literal["early", "late"]
    tensors: Mapping[str, Tensor]
    dtype: torch.dtype

    @property
    def num_axes(self) -> int:
        return 3 if self.tensors.keys() & {"vz", "phi_v"} else 2

    @property
    def num_modes(self) -> int:
        return self.tensors["B_re"].shape[0]

    def key(self, leaf: str) -> str:
        """The full name of a tensor."""
        return f"{self.name}.{leaf}" if self.name else leaf


def find_layers(state: Mapping[str, Tensor]) -> tuple[list[ReleasedLayer], dict[str, Tensor], list[str]]:
    """Split a state dict into released layers, tensors of other layers, and problems, each of which names a key."""
    parents = {name.rpartition(".")[0] for name in state if name.rpartition(".")[2] in TELLING}
    layers, others, problems = [], {}, []
    groups: dict[str, dict[str, Tensor]] = {}
    for name, value in state.items():
        parent, _, leaf = name.rpartition(".")
        if parent in parents:
            groups.setdefault(parent, {})[leaf] = value
        else:
            others[name] = value
    for parent, tensors in groups.items():
        wrong = _check(parent, tensors)
        problems += wrong
        if not wrong:
            dtype = tensors["B_re"].dtype
            wide = {leaf: value.detach().to(torch.float64) for leaf, value in tensors.items()}
            layers.append(ReleasedLayer(parent, "early" if "vx" in wide else "late", wide, dtype))
    return layers, others, problems


def _check(parent: str, tensors: Mapping[str, Tensor]) -> list[str]:
    """What is wrong with the names, shapes and values of one layer."""

    def key(leaf: str) -> str:
        return f"{parent}.{leaf}" if parent else leaf

    names = set(tensors)
    early, late = names & (EARLY | {"vz"}), names & (LATE | LATE_FIRST | {"phi_v", "log_bandwidth"})
    if early and late:
        return [f"{key(min(early))} and {key(min(late))} belong to different generations; a layer has one"]
    if "log_alpha" in names and names & {"alpha_raw", "log_dc_gain"}:
        return [f"{key('log_alpha')} stands for alpha_raw and log_dc_gain; a layer has either"]
    required = MIXERS | (EARLY if early else LATE_FIRST if "log_alpha" in names else LATE)
    allowed = required | OPTIONAL["early" if early else "late"]
    problems = [f"{key(leaf)} is missing" for leaf in sorted(required - names)]
    problems += [f"{key(leaf)} is not a parameter of a released layer" for leaf in sorted(names - allowed)]
    if problems:
        return problems
    if tensors["B_re"].dim() != 2 or tensors["C_re"].dim() != 2:
        leaf = "B_re" if tensors["B_re"].dim() != 2 else "C_re"
        return [f"{key(leaf)} has shape {tuple(tensors[leaf].shape)}; a mixing matrix has two axes"]
    modes, channels, out = *tensors["B_re"].shape, tensors["C_re"].shape[0]
    matrices = {"B_re": (modes, channels), "B_im": (modes, channels), "Bmask": (modes, channels)}
    matrices |= {"C_re": (out, modes), "C_im": (out, modes), "rho": ()}
    for leaf, value in sorted(tensors.items()):
        wanted = matrices.get(leaf, (modes,))
        if tuple(value.shape) != wanted and not (leaf == "rho" and value.numel() == 1):
            problems.append(f"{key(leaf)} has shape {tuple(value.shape)}, expected {wanted}")
        elif value.dtype not in (REAL + WHOLE if leaf == "Bmask" else REAL):
            problems.append(f"{key(leaf)} is {value.dtype}; save it as float32")
        elif not value.isfinite().all():
            problems.append(f"{key(leaf)} has {int((~value.isfinite()).sum())} values that are not finite")
        elif value.numel() == 0:
            problems.append(f"{key(leaf)} is empty")
    return problems
