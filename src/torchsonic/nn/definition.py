"""The constructor arguments that give a layer's weights their meaning, stored with them in the state dict.

With another reference spacing, boundary or gain, the same weights define a different operator. So a layer stores these
arguments as extra state and refuses weights from a layer that was built differently. The state is JSON in a tensor
of bytes, which safetensors, weights-only checkpoints and distributed checkpoints store like any other tensor.
"""

from __future__ import annotations

import json
import math
from typing import Any

import torch
from torch import Tensor, nn

from torchsonic.functional.options import warn_once

KEY = "_extra_state"  # PyTorch's name
NUM_BYTES = 512  # fixed, since distributed checkpoints are read into existing tensors


class DefinedLayer(nn.Module):
    """A layer that refuses weights that would mean something different in it."""

    def definition(self) -> dict[str, Any]:
        """The constructor arguments that the meaning of the weights depends on, ready for JSON."""
        raise NotImplementedError

    def get_extra_state(self) -> Tensor:
        text = json.dumps(self.definition()).encode().ljust(NUM_BYTES)
        return torch.tensor(list(text), dtype=torch.uint8, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        """Compare a saved definition with the layer's own, without changing anything."""
        problem = definition_problem(state, self.get_extra_state())
        if problem:
            raise ValueError(problem)

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:
        key = prefix + KEY
        if key not in state_dict:
            if any(name.startswith(prefix) for name in state_dict):
                warn_once(
                    "state dict without definition",
                    "these weights were saved by a version of torchsonic that did not store spacing, padding_mode, "
                    "variant, gain and limits; make sure the layers are built as they were then, and save again",
                )
            state_dict[key] = self.get_extra_state()
        problem = definition_problem(state_dict[key], self.get_extra_state())
        if problem:
            remedy = f"or delete {key!r} from the state dict to keep the layer's own"
            error_msgs.append(f"{prefix[:-1] or type(self).__name__}: {problem}, {remedy}")
            return
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


def is_definition(name: str) -> bool:
    """Whether an entry of a state dict is the definition of a layer."""
    return name.rpartition(".")[2] == KEY


def definition_problem(saved: Tensor, own: Tensor) -> str | None:
    """How a saved definition differs from a layer's own, and what to do; ``None`` if they agree."""
    if saved.is_meta:  # without values, as the weights are
        return None
    try:  # rounded, since state dicts may have been cast or averaged
        then = json.loads(bytes(saved.round().to(torch.uint8).tolist()))
        now = json.loads(bytes(own.tolist()))
        if isinstance(now.get("padding"), list) and then.get("padding") == [math.ceil(n) for n in now["padding"]]:
            now["padding"] = then["padding"]  # networks once rounded margins up, as layers still do on this grid
        wrong = [name for name in then if not _same(then[name], now.get(name))]
    except (AttributeError, TypeError, ValueError) as error:
        return f"its {KEY} is not the definition of a layer ({error})"
    if not wrong:
        return None
    before, after = (", ".join(f"{name}={_shown(given.get(name))}" for name in wrong) for given in (then, now))
    remedy = f"{before} to the constructor"
    if isinstance(then.get("group"), dict):  # which has no name
        remedy = "the same Group that the weights were trained with"
    return f"the weights were saved with {before}, but this layer has {after}; pass {remedy}"


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-6)
    return a == b


def _shown(value: Any) -> str:
    return repr(tuple(value) if isinstance(value, list) else value)
