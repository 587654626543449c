"""What most programs of `tests.programs` import, and nothing that reads the environment or starts a thread."""

import contextlib
import importlib

for name in (
    "torch.distributed",
    "torchsonic.cli",
    "lightning_fabric",
    "matplotlib.figure",
    # nnU-Net itself reads its folders from the environment as soon as it is imported; these do not.
    "SimpleITK",
    "acvl_utils.cropping_and_padding.bounding_boxes",
    "nibabel",
    "scipy.ndimage",
    "seaborn",
    "sklearn",
):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
