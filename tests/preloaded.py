"""What most programs of `tests.programs` import, and nothing that reads the environment or starts a thread.

But for blosc2, which acvl_utils imports: its idle threads are not there after a fork, and it works without them.
"""

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
