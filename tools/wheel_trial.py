"""What ``tools.try_wheel`` runs in each environment: the core, then a door to every extra.

It imports nothing but the installed package, and prints what failed as JSON: a message for each door that stays shut.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Callable

__all__ = ["DOORS", "try_core"]


def try_core() -> None:
    """What works without any extra: a layer with gradients, a model saved and loaded, the first screen of help."""
    import torch

    import torchsonic
    from torchsonic.cli import main

    layer = torchsonic.SonicConv2d(3, 8, num_modes=4)
    x = torch.randn(2, 3, 12, 16, requires_grad=True)
    layer(x, spacing=(0.8, 2.5)).square().mean().backward()
    assert x.grad is not None
    assert all(parameter.grad is not None for parameter in layer.parameters())
    model = torchsonic.create_model("sonicnet2d", width=8, num_modes=4).eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = torchsonic.from_pretrained(folder).eval()
    assert torch.equal(model(x), again(x))
    assert main(["--help"]) == 0
    assert main(["--version"]) == 0


def _cli() -> None:
    from torchsonic.cli import main

    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            code = main(["models", "--help"])
        except SystemExit as end:
            code = end.code
    assert not code, said.getvalue()


def _viz() -> None:
    import torchsonic.viz

    torchsonic.viz.draw_modes(torchsonic.SonicConv2d(2, 2, num_modes=2))


def _images() -> None:
    from torchsonic.lab.data.images.files import import_pillow

    import_pillow()


def _masks() -> None:
    from torchsonic.lab.data.volumes.preparation import import_ndimage

    import_ndimage("masks")


def _app() -> None:
    from torchsonic.explorer.images import RefusedError, read_image

    try:
        read_image(b"")
    except RefusedError as error:
        if "empty" not in str(error):
            raise


def _train() -> None:
    from torchsonic.lab.training.config import TrainingConfig
    from torchsonic.lab.training.fabric import make_fabric

    make_fabric(TrainingConfig(accelerator="cpu"))


def _timm() -> None:
    import torchsonic.integrations.timm as registered

    registered.timm.create_model("sonic_tiny", num_classes=2)


def _medical() -> None:
    import numpy as np

    import torchsonic.integrations.monai
    import torchsonic.integrations.nnunet  # noqa: F401 - both ask for their packages at once
    from torchsonic.lab.metrics.detection import find_lesions

    find_lesions(np.zeros((4, 8, 8)), np.zeros((4, 8, 8)))


def _export() -> None:
    from torchsonic.export.run import require_packages

    require_packages("onnx")


def _hub() -> None:
    from torchsonic.models.model_folder import import_hub

    import_hub()


def _triton() -> None:
    import torchsonic.engine.triton_kernels  # noqa: F401 - it asks for Triton at once


DOORS: dict[str, Callable[[], None]] = {
    "cli": _cli,
    "viz": _viz,
    "images": _images,
    "masks": _masks,
    "app": _app,
    "train": _train,
    "timm": _timm,
    "medical": _medical,
    "export": _export,
    "hub": _hub,
    "triton": _triton,
}
"""What each extra opens; ``bench``, ``dev`` and ``docs`` are for checkouts, ``vkfft`` asks for a compiler."""


def _attempt(call: Callable[[], None]) -> str:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            call()
    except Exception as error:  # whatever a missing package leads to
        return f"{type(error).__name__}: {error}"[:600]
    return ""


if __name__ == "__main__":
    print(json.dumps({"": _attempt(try_core)} | {name: _attempt(door) for name, door in DOORS.items()}))
