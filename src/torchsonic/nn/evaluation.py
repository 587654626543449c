"""Evaluation without gradients, reusing responses that earlier calls computed."""

from __future__ import annotations

import torch
from torch import Tensor

from torchsonic.engine import kernels
from torchsonic.engine.cache import CouplingCache, recording_graph
from torchsonic.engine.call import Mixing, Options, Step
from torchsonic.engine.coupling import TorchCoupling
from torchsonic.engine.plan import plan_step
from torchsonic.nn.readable_modes import ReadableModes
from torchsonic.spectral.spacing import Spacing, differs_in_batch, orientation_of, spacing_values
from torchsonic.spectral.tracing import inside_function_transform, tracing


class CachedModes(ReadableModes):
    """Modes whose responses on the last few grids are cached in evaluation mode until the parameters change."""

    mode_chunk: int | None

    def __init__(self) -> None:
        super().__init__()
        self._cache = CouplingCache()

    def _may_cache(self, given: Spacing) -> bool:
        return not (
            self.training
            or self.mode_chunk is not None  # memory matters more than time
            or torch.is_grad_enabled()
            or tracing()
            or inside_function_transform()
            or recording_graph(self._device)
            or differs_in_batch(given)
            or any(p.is_inference() for p in self.mode_parameters())
        )

    def _evaluate(self, mixing: Mixing, options: Options, given: Spacing, steps: Tensor) -> Tensor:
        """The output without gradient, from the responses of an earlier call if they are still valid."""
        x, step = mixing.x, Step.of(mixing, options)
        plan, turn = plan_step(step), orientation_of(given)

        def make() -> TorchCoupling:
            shape = self._shape(plan.band.size_in, steps, x.dtype, turn)
            return TorchCoupling(shape, steps, plan.band, options.symmetry, options.limits)

        settings = (self.reference_spacing, self.variant, self.gain, self.limits)
        told = (spacing_values(given, self.num_axes), None if turn is None else tuple(turn.flatten().tolist()))
        key = (plan.band, *told, *settings, x.dtype, x.device)
        coupling = self._cache.get(key, self.mode_parameters(), make)
        with kernels.prepared(x, step):
            return kernels.order_of(plan).forward(mixing, lambda samples, modes: coupling, plan)[0]

    def clear_cache(self) -> None:
        """Drop the cached responses; needed only after writing to ``parameter.data`` on an accelerator."""
        self._cache.clear()

    def train(self, mode: bool = True):
        self._cache.clear()
        return super().train(mode)

    def _load_from_state_dict(self, *args, **kwargs) -> None:
        self._cache.clear()
        super()._load_from_state_dict(*args, **kwargs)

    def _apply(self, fn, recurse=True):
        self._cache.clear()
        return super()._apply(fn, recurse)
