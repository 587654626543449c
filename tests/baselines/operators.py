"""The operators as tests build them, and the comparison with a slow definition that each of them has to pass."""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from torchsonic.baselines import (
    FNO,
    NIFF,
    S4ND,
    SNO,
    ContinuousFNO,
    Dilated,
    DoubleAttention,
    GFNet,
    NonLocal,
    RepLK,
    SpectralCNN,
)
from torchsonic.testing import relative_error

# Options small enough for slow references.
OPERATORS: dict[str, tuple[type[nn.Module], dict]] = {
    "s4nd": (S4ND, {"num_states": 3}),
    "niff": (NIFF, {}),
    "gfnet": (GFNet, {"grid": 6}),
    "replk": (RepLK, {"kernel_size": 7, "small_kernel": 3}),
    "dilated": (Dilated, {}),
    "fno": (FNO, {"num_wavenumbers": 3}),
    "continuous_fno": (ContinuousFNO, {"hidden": (4, 3)}),
    "sno": (SNO, {"degree": 3}),
    "spectral_cnn": (SpectralCNN, {"kernel_size": 3}),
    "non_local": (NonLocal, {"hidden": 2}),
    "double_attention": (DoubleAttention, {"hidden": 2, "num_maps": 3}),
}
DEPTHWISE = ["s4nd", "niff", "gfnet", "replk"]
SIZES = [(9,), (1,), (7, 10), (6, 1), (1, 5), (4, 3, 5)]


def make_operator(name: str, channels=(3, 4), *, dtype=torch.float64, seed=0, **options) -> nn.Module:
    torch.manual_seed(seed)
    kind, defaults = OPERATORS[name]
    return kind(*channels, **{**defaults, **options}).to(dtype)


def assert_same_with_gradients(layer: nn.Module, reference: Callable[[Tensor], Tensor], x: Tensor, tolerance=1e-10):
    """Output, gradient of the input and of every parameter agree with a reference that uses the same parameters."""
    x = x.requires_grad_()
    weights = torch.randn_like(layer(x))
    names, parameters = zip(*layer.named_parameters(), strict=True)
    actual, expected = layer(x), reference(x)
    assert relative_error(actual, expected) < tolerance
    for name, a, b in zip(
        ("x", *names),
        torch.autograd.grad((actual * weights).sum(), (x, *parameters)),
        torch.autograd.grad((expected * weights).sum(), (x, *parameters)),
        strict=True,
    ):
        # Gradients that vanish by symmetry are compared on an absolute scale.
        assert (a - b).abs().max() <= tolerance * max(1.0, float(b.abs().max())), name


def average_cells(x: Tensor, stride: tuple[int, ...]) -> Tensor:
    """Means of cells of ``stride`` samples, the last ones perhaps incomplete, one by one."""
    size = x.shape[2:]
    cells = [range(-(-n // s)) for n, s in zip(size, stride, strict=True)]
    means = [
        x[(..., *[slice(i * s, (i + 1) * s) for i, s in zip(cell, stride, strict=True)])].flatten(2).mean(-1)
        for cell in itertools.product(*cells)
    ]
    return torch.stack(means, -1).reshape(*x.shape[:2], *map(len, cells))


def mix(layer: nn.Module, y: Tensor) -> Tensor:
    if layer.pointwise is None:
        return y
    return torch.einsum("kc,bc...->bk...", layer.pointwise.weight.flatten(1), y)


def dense_filter(x: Tensor, response: Tensor) -> Tensor:
    """Circular convolution by the full DFT matrix, from values ``(C, N_1 .. N_D // 2 + 1)`` on the half spectrum."""
    size = tuple(x.shape[2:])
    wavenumbers = list(itertools.product(*map(range, size)))
    half = size[-1] // 2
    columns = []
    for k in wavenumbers:
        opposite = tuple(-i % n for i, n in zip(k, size, strict=True))
        values = [response[(slice(None), *k)]] if k[-1] <= half else []
        values += [response[(slice(None), *opposite)].conj()] if opposite[-1] <= half else []
        columns.append(sum(values) / len(values))
    full = torch.stack(columns, -1)
    cycles = torch.tensor([[i / n for i, n in zip(k, size, strict=True)] for k in wavenumbers], dtype=torch.float64)
    positions = torch.tensor(wavenumbers, dtype=torch.float64)
    dft = torch.exp(-2j * math.pi * (cycles @ positions.T))
    spectrum = x.flatten(2).to(dft.dtype) @ dft.T
    y = (full * spectrum) @ dft.conj() / math.prod(size)
    assert y.imag.detach().abs().max() < 1e-12 * max(1.0, float(y.real.detach().abs().max()))
    return y.real.reshape(x.shape)


def dense_mix(x: Tensor, symbol: Callable[[tuple[int, ...]], Tensor]) -> Tensor:
    """Fourier series with a matrix ``symbol(k) (K, C)`` for each signed wavenumber of the grid, term by term.

    A wavenumber of Nyquist has no sign: both are asked for and averaged. The series of a real field is real if
    ``symbol(-k)`` is the conjugate of ``symbol(k)``, which is demanded.
    """
    size = tuple(x.shape[2:])
    places = torch.tensor(list(itertools.product(*map(range, size))), dtype=torch.float64)
    samples = x.flatten(2).to(torch.complex128)
    total = 0
    for k in itertools.product(*[range(-((n - 1) // 2), n // 2 + 1) for n in size]):
        signs = [(i, -i) if 2 * i == n else (i,) for i, n in zip(k, size, strict=True)]
        matrices = [symbol(signed) for signed in itertools.product(*signs)]
        cycles = torch.tensor([i / n for i, n in zip(k, size, strict=True)], dtype=torch.float64)
        wave = torch.exp(2j * math.pi * (places @ cycles))
        coefficient = samples @ wave.conj() / math.prod(size)
        mixed = torch.einsum("kc,bc->bk", sum(matrices) / len(matrices), coefficient)
        total = total + mixed[..., None] * wave
    assert total.imag.detach().abs().max() < 1e-10 * max(1.0, float(total.real.detach().abs().max()))
    return total.real.reshape(*total.shape[:2], *size)
