"""Several devices: a layer's modes split over processes (mode parallelism), and sharded parameters (FSDP2)."""

from torchsonic.parallel.collectives import clip_gradients
from torchsonic.parallel.modes import ModeParallel, parallelize_modes
from torchsonic.parallel.parameters import shard_parameters

__all__ = ["ModeParallel", "clip_gradients", "parallelize_modes", "shard_parameters"]
