"""Memory of a training step with shared modes: ``torchrun --nproc-per-node 2 -m benchmarks.parallel_bench``.

One process of several against one alone, both in this process, so that the rest of the machine does not matter. Writes
a Markdown table to the terminal.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import torchsonic
from torchsonic.lab.metrics.cost import peak_bytes
from torchsonic.nn.conv import make_sonic
from torchsonic.parallel import parallelize_modes

# Channels, modes, size of the input.
CASES = ((16, 64, (48, 48, 48)), (64, 64, (128, 128)), (64, 256, (128, 128)), (64, 16, (128, 128)))


def measure(channels: int, modes: int, size: tuple[int, ...], mesh) -> tuple[int, int]:
    """Peak bytes of forward and backward pass above what was there before: alone, and sharing."""
    torch.manual_seed(0)
    x = torch.randn(1, channels, *size, device=mesh.device_type, requires_grad=True)
    peaks = []
    for share in (False, True):
        layer = make_sonic(channels, channels, num_modes=modes, spatial_dims=len(size)).to(x.device)
        if share:
            parallelize_modes(layer, mesh)

        def step(layer=layer) -> None:
            layer(x).sum().backward()
            x.grad = None
            layer.zero_grad()

        step()
        peaks.append(peak_bytes(step, x.device))
    return peaks[0], peaks[1]


def main() -> None:
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = init_device_mesh(device, (int(os.environ["WORLD_SIZE"]),))
    rows = [(case, measure(*case, mesh)) for case in CASES]
    if dist.get_rank() == 0:
        print(f"torchsonic {torchsonic.__version__}, torch {torch.__version__}, {mesh.size()} processes, {device}\n")
        print("| C, M, samples | x, MB | one device, MB | each process, MB | ratio |\n|---|---|---|---|---|")
        for (channels, modes, size), (alone, shared) in rows:
            whole = 4 * channels * torch.Size(size).numel()
            numbers = " | ".join(f"{n / 1e6:.0f}" for n in (whole, alone, shared))
            print(f"| {channels}, {modes}, {'x'.join(map(str, size))} | {numbers} | {shared / alone:.2f} |")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
