"""Compares the Triton kernels, run by Triton's interpreter, with the operator's definition; for test_triton.py."""

import itertools

import torch

import torchsonic
from torchsonic.engine.call import Operands, Options, run_plain
from torchsonic.functional import ModeShape, ResponseLimits, spectral_conv

LIMITS = (ResponseLimits(), ResponseLimits(2), ResponseLimits(0, 1.2), ResponseLimits(1, 1.2, True))
SIZES = (((6,), (6,)), ((5, 6), (5, 6)), ((4, 6), (3, 8)), ((4, 3, 6), (4, 3, 6)))
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def operands_of(size, limits, per_sample, dtype):
    num_axes, modes, rows = len(size), 2, 3 if per_sample else 1

    def positive(*shape):
        return (torch.rand(shape, dtype=dtype) + 0.3).requires_grad_()

    direction = torch.nn.functional.normalize(torch.randn(1, modes, num_axes, dtype=dtype), dim=-1).requires_grad_()
    numbers = [positive(1, modes) for _ in range(5)]
    cutoff = positive(1, modes) if limits.band_order else None
    x = torch.randn(3, 2, *size, dtype=dtype, requires_grad=True)
    mix_in, mix_out = (torch.randn(s, dtype=dtype, requires_grad=True) for s in ((modes, 2, 2), (3, modes, 2)))
    spacing = torch.rand(rows, num_axes, dtype=torch.float64) + 0.5
    return Operands(x, mix_in, mix_out, direction, *numbers, cutoff, None, spacing)


def compare(size, out_size, limits, *, per_sample, order, symmetry, dtype):
    operands = operands_of(size, limits, per_sample, dtype)
    shape = ModeShape(*operands[3:10])
    options = {"output_size": out_size, "execution": {"order": order}, "symmetry": symmetry, "limits": limits}
    y = spectral_conv(*operands[:3], shape, spacing=operands.spacing, **options)
    expected = run_plain(
        operands,
        Options(out_size, order=order, symmetry=symmetry)._replace(
            **dict(zip(("band_order", "magnitude_limit", "soft_limit"), limits, strict=True))
        ),
    )
    inputs = [t for t in operands[:-1] if t is not None]
    grad = torch.randn_like(y)
    found = (y, *torch.autograd.grad(y, inputs, grad))
    wanted = (expected, *torch.autograd.grad(expected, inputs, grad))
    for a, b in zip(found, wanted, strict=True):
        error = (a - b).abs().max() / b.abs().max().clamp_min(1e-3)
        assert error < TOLERANCE[dtype], (size, out_size, limits, per_sample, order, symmetry, dtype, error.item())


def main():
    torch.manual_seed(0)
    torchsonic.set_coupling("triton")
    count = 0
    ways = (("modes", "real"), ("channels", "real"), ("channels", "half"))
    for (size, out_size), limits, per_sample, (order, symmetry) in itertools.product(SIZES, LIMITS, (0, 1), ways):
        dtype = torch.float32 if limits == ResponseLimits() and not per_sample else torch.float64
        for kind in {dtype, torch.float64}:
            compare(size, out_size, limits, per_sample=per_sample, order=order, symmetry=symmetry, dtype=kind)
            count += 1
    print(f"{count} cases agree")


if __name__ == "__main__":
    main()
