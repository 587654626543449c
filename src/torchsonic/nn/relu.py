"""ReLU that compilers for CPUs make fast code of."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["ReLU"]


class _SignedReLU(torch.autograd.Function):
    """``max(x, 0)`` whose gradient is ``sign(y) * grad``: the same number without a tensor of truth values."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        y = x.relu()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        return grad * y.sign()


class ReLU(nn.ReLU):
    """``max(x, 0)``, of any shape; compiled training on a CPU writes its gradient without a mask.

    PyTorch's compiler keeps where ``x > 0`` as truth values. Its code stores and loads these one by one on a CPU, which
    takes ten times as long as everything else in the pass. Elsewhere such a mask is what saves memory, and is kept.
    """

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        compiled = torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting()
        if compiled and x.device.type == "cpu" and torch.is_grad_enabled():
            return _SignedReLU.apply(x)  # type: ignore[return-value]
        return super().forward(x)
