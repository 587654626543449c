"""Synthetic weights of the three released generations, and their operator written out from its formulas."""

import math

import torch
import torch.nn.functional as F


def released_state(generation, axes=2, channels=3, out=4, modes=5, *, bandwidth=True, mask=False, dtype=torch.float64):
    """Random weights under the released names."""
    state = {
        "B_re": torch.randn(modes, channels),
        "B_im": torch.randn(modes, channels),
        "C_re": torch.randn(out, modes),
        "C_im": torch.randn(out, modes),
    }
    if generation == "free":
        names = ["theta_v", "alpha_raw", "beta", "log_dc_gain", "log_tau", "log_scale"]
        names += ["phi_v"] * (axes == 3) + ["log_bandwidth"] * bandwidth
        state |= {name: torch.randn(modes) for name in names}
        state["log_dc_gain"] += 3  # so that the soft limit matters
    else:
        names = [*["vx", "vy", "vz"][:axes], "alpha", "tau_raw", "scale_raw", "beta_raw"]
        state |= {name: torch.randn(modes) for name in names}
        state["rho"], state["beta_raw"] = torch.tensor(1.7), 2 * state["beta_raw"]
        state["alpha"] -= 4  # so that the hard limit matters
    if mask:
        state["Bmask"] = (torch.rand(modes, channels) > 0.4).float()
    return {name: value.to(dtype) for name, value in state.items()}


# Over what a generation standardises its input if it does so at all.
USUAL = {"rms": "channel", "dc": "sample", "free": "sample"}


def standardised(x, way):
    """Each channel of a sample, or each sample over channels and space, brought to mean 0 and variance 1."""
    if way == "none":
        return x
    rows = x.flatten(2) if way == "channel" else x.flatten(1)[:, None]
    rows = (rows - rows.mean(-1, keepdim=True)) / (rows.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    return rows.reshape(x.shape)


def released_operator(state, x, generation, steps, *, order=4, standardise=None):
    """The released forward pass, from the formulas of Appendix A; ``steps`` are ``(dx, dy[, dz])``.

    ``standardise=None`` is what the generation does by default, ``"none"`` its ``normalize_input=False``.
    """
    axes = x.dim() - 2
    dims = tuple(range(2, x.dim()))
    x = standardised(x, standardise or USUAL[generation])
    size = x.shape[2:]
    # x runs along the last array axis, then y, then z.
    lines = [
        2 * math.pi * (torch.fft.rfftfreq if d == 0 else torch.fft.fftfreq)(size[-1 - d], steps[d], dtype=torch.float64)
        for d in range(axes)
    ]
    grids = torch.meshgrid(*lines[::-1], indexing="ij")[::-1]
    omega = torch.stack(grids)
    if generation == "free":
        theta, phi = state["theta_v"], state.get("phi_v")
        v = [theta.cos(), theta.sin()]
        if phi is not None:
            v = [theta.sin() * phi.cos(), theta.sin() * phi.sin(), theta.cos()]
        s, tau = state["log_scale"].exp(), state["log_tau"].exp()
        a = torch.complex(-F.softplus(state["alpha_raw"]), state["beta"])
    else:
        v = [state[name] for name in ("vx", "vy", "vz")[:axes]]
        s, tau = F.softplus(state["scale_raw"]), F.softplus(state["tau_raw"])
        a = torch.complex(-F.softplus(state["alpha"]), state["rho"] * state["beta_raw"].tanh())
    v = torch.stack(v) / torch.stack(v).norm(dim=0)
    v = v / torch.tensor(steps, dtype=torch.float64)[:, None]
    v = v / v.norm(dim=0)
    along = torch.einsum("dm,d...->m...", v, omega)
    across = (omega.square().sum(0) - along.square()).clamp_min(0)
    column = (slice(None), *[None] * axes)
    denominator = 1j * s[column] * along - a[column] + tau[column] * across
    if generation == "free":
        if "log_bandwidth" in state:
            ratio = omega.norm(dim=0) / (math.pi / max(steps)) / state["log_bandwidth"].sigmoid()[column]
            denominator = denominator * (1 + ratio ** (2 * order))
        response = state["log_dc_gain"].exp()[column] / denominator
        response = response * 50 * (response.abs() / 50).tanh() / response.abs()
    elif generation == "dc":
        response = a.abs()[column] / denominator
        response = response * response.abs().clamp(max=5) / response.abs()
    else:
        response = 1 / denominator
        response = response / response.abs().square().mean(tuple(range(1, 1 + axes)), keepdim=True).sqrt()
    b, c = torch.complex(state["B_re"], state["B_im"]), torch.complex(state["C_re"], state["C_im"])
    if "Bmask" in state:
        b = b * state["Bmask"]
    spectrum = torch.einsum("km,m...,mc,bc...->bk...", c, response, b, torch.fft.rfftn(x, dim=dims))
    spectrum[..., 0].imag.zero_()
    if size[-1] % 2 == 0:
        spectrum[..., -1].imag.zero_()
    return torch.fft.irfftn(spectrum, s=size, dim=dims), response
