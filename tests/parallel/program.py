"""What two processes find out together, as a program that torchrun starts; the first writes it down as JSON.

One launch serves all tests: starting two interpreters takes longer than all they have to do.
"""

import contextlib
import copy
import json
import re
import shutil
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module

import torchsonic
from tests.parallel.training import CONFIG, make_model, make_task
from torchsonic.export import ExportConfig, export_model
from torchsonic.lab.metrics.cost import peak_bytes
from torchsonic.lab.training import CheckpointError, TrainingConfig, fit, make_fabric
from torchsonic.models import SonicNet
from torchsonic.nn import SonicBlock
from torchsonic.nn.parameters import is_sharded
from torchsonic.parallel import ModeParallel, clip_gradients, parallelize_modes, shard_parameters

LAYERS = {
    "two axes": lambda: torchsonic.SonicConv2d(3, 5, num_modes=8),
    "uneven shares": lambda: torchsonic.SonicConv2d(3, 5, num_modes=7, bias=False),
    "volume": lambda: torchsonic.SonicConv3d(
        3, 4, num_modes=6, stride=2, padding_mode="zeros", spacing=(1.0, 0.5, 0.5)
    ),
    "paper": lambda: torchsonic.SonicConv2d(3, 4, num_modes=6, variant="paper", input_noise=0.1, mode_dropout=0.3),
    "gain dc, in chunks": lambda: torchsonic.SonicConv2d(
        3, 4, num_modes=6, gain="dc", execution={"mode_chunk": 2, "recompute": True}
    ),
    "free and limited": lambda: torchsonic.SonicConv2d(
        3, 4, num_modes=6, gain="free", limits={"band_order": 2, "magnitude": 0.8, "soft": True}, mode_dropout=0.3
    ),
    "block": lambda: SonicBlock(3, 8, num_modes=6, form="pre", norm="none", local_kernel=3),
    "network": lambda: SonicNet(3, 2, width=8, depth=2, num_modes=6),
    "network of volumes": lambda: SonicNet(3, 2, spatial_dims=3, width=4, depth=2, num_modes=4),
}
MIXED = torch.tensor([[1.0, 0.5, 0.5], [2.0, 1.0, 1.0]])


def relative(found, expected):
    """Largest difference over the largest number."""
    found = found.full_tensor() if isinstance(found, DTensor) else found
    whole, expected = found.detach(), expected.detach()
    return float((whole.reshape(expected.shape) - expected).abs().max() / expected.abs().max().clamp_min(1e-30))


def gradients(module, x, *arguments):
    """Output, and gradients of input and parameters; random numbers begin anew."""
    torch.manual_seed(1)
    x = x.clone().requires_grad_()
    y = module(x, *arguments)
    (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
    return {"y": y.detach(), "x": x.grad, **{name: p.grad for name, p in module.named_parameters()}}


def compare(build, mesh, dtype=torch.float64, share=parallelize_modes):
    torch.manual_seed(0)
    whole = build().to(dtype)
    volume = any(layer.num_axes == 3 for layer in whole.modules() if isinstance(layer, torchsonic.nn.SonicConvNd))
    x = torch.randn(2, 3, *((6, 8, 7) if volume else (12, 11)), dtype=dtype)
    shared = share(copy.deepcopy(whole), mesh)
    arguments = (MIXED,) if volume else ()
    expected, found = gradients(whole, x, *arguments), gradients(shared, x, *arguments)
    assert expected.keys() == found.keys()
    assert all(isinstance(p.grad, DTensor) for name, p in shared.named_parameters() if "mix_in" in name)
    return {name: relative(found[name], expected[name]) for name in expected}


def in_a_plan(model, mesh):
    return parallelize_module(model, mesh, {"blocks.*.operator": ModeParallel()})


def evaluation(mesh):
    """The cache of responses, in evaluation."""
    torch.manual_seed(0)
    whole = torchsonic.SonicConv2d(3, 4, num_modes=6).eval()
    shared = parallelize_modes(copy.deepcopy(whole), mesh)
    x = torch.randn(1, 3, 16, 16)
    with torch.no_grad():
        first, kept = shared(x), list(shared._cache._store.entries.values())
        again, still = shared(x), list(shared._cache._store.entries.values())
        for layer in (whole, shared):
            layer.raw_scale.mul_(1.5)
        moved = shared(x)
        return {
            "same entry": len(kept) == 1 and kept[0] is still[0] and torch.equal(first, again),
            "modes kept": kept[0]._responses[0].shape[1],
            "changed": relative(moved, whole(x)),
        }


def about_all_modes(mesh):
    torch.manual_seed(0)
    whole = torchsonic.SonicConv2d(3, 4, num_modes=7)
    shared = parallelize_modes(copy.deepcopy(whole), mesh)
    pairs = [*zip(shared.modes(), whole.modes(), strict=True), (shared.kernel(8), whole.kernel(8))]
    omega = torch.randn(5, 2)
    pairs += [(shared.mode_kernels(8), whole.mode_kernels(8)), (shared.response(omega), whole.response(omega))]
    return {"error": max(relative(found, expected) for found, expected in pairs), "repr": repr(shared)}


def steps(mesh):
    """Three steps of an optimiser, gradients clipped, and both ways of saving what comes out."""
    results, models, norms = {}, [], []
    folder = Path(sys.argv[1])
    for shared in (False, True):
        torch.manual_seed(0 if dist.get_rank() == 0 else 5)  # all get the first process's weights
        model = SonicNet(3, 2, width=8, depth=2, num_modes=5)
        if shared:
            model = parallelize_modes(model, mesh)
        else:
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, 0)
        optimiser = torch.optim.AdamW(torchsonic.parameter_groups(model, lr=1e-2))
        torch.manual_seed(2)
        for _ in range(3):
            optimiser.zero_grad()
            model(torch.randn(2, 3, 10, 12)).square().mean().backward()
            norms.append(clip_gradients(model.parameters(), 1e-2))
            optimiser.step()
        models.append(model)
    whole, shared = models
    results["norm"] = max(relative(found, expected) for found, expected in zip(norms[3:], norms[:3], strict=True))
    expected = whole.state_dict()
    results["weights"] = max(relative(value, expected[name]) for name, value in shared.state_dict().items())
    checkpoint.save({"model": shared.state_dict()}, checkpoint_id=folder / "dcp")
    torch.manual_seed(7)
    other = parallelize_modes(SonicNet(3, 2, width=8, depth=2, num_modes=5), mesh)
    state = {"model": other.state_dict()}
    checkpoint.load(state, checkpoint_id=folder / "dcp")
    other.load_state_dict(state["model"])
    results["checkpoint"] = max(relative(value, expected[name]) for name, value in other.state_dict().items())
    shared.save_pretrained(folder / "shared")
    loaded = torchsonic.from_pretrained(folder / "shared").state_dict()
    results["saved"] = max(relative(loaded[name], expected[name]) for name in expected)
    return results


def memory(mesh):
    torch.manual_seed(0)
    whole = torchsonic.SonicConv3d(2, 2, num_modes=32)
    shared = parallelize_modes(copy.deepcopy(whole), mesh)
    x = torch.randn(1, 2, 16, 16, 16, requires_grad=True)
    peaks = []
    for layer in (whole, shared):
        layer(x).sum().backward()
        peaks.append(peak_bytes(lambda layer=layer: layer(x).sum().backward(), x.device))
    return {"ratio": peaks[1] / peaks[0]}


def refusals(mesh):
    layer = parallelize_modes(torchsonic.SonicConv2d(2, 2, num_modes=4), mesh)
    plane = init_device_mesh("cpu", (2, 1), mesh_dim_names=("data", "modes"))
    attempts = {
        "too few modes": lambda: parallelize_modes(torchsonic.SonicConv2d(2, 2, num_modes=1), mesh),
        "no layer": lambda: parallelize_modes(nn.Linear(2, 2), mesh),
        "another layer": lambda: parallelize_module(nn.Linear(2, 2), mesh, ModeParallel()),
        "twice": lambda: parallelize_modes(layer, mesh),
        "drawing": lambda: layer.reset_parameters(),
        "second derivative": lambda: second_derivative(layer),
        "twice in a plan": lambda: parallelize_module(layer, mesh, ModeParallel()),
        "modes last": lambda: parallelize_modes(
            shard_parameters(torchsonic.SonicConv2d(2, 2, num_modes=4), mesh), mesh
        ),
        "two dimensions": lambda: parallelize_modes(torchsonic.SonicConv2d(2, 2, num_modes=4), plane),
        "two dimensions, sharded": lambda: shard_parameters(nn.Linear(2, 2), plane),
        "no mesh": lambda: parallelize_modes(torchsonic.SonicConv2d(2, 2, num_modes=4), "cpu"),
        "export": lambda: export_model(layer, Path(sys.argv[1]) / "x.pt2", ExportConfig(to="pt2", size=(8, 8))),
        "sharded twice": lambda: shard_parameters(shard_parameters(nn.Linear(2, 2), mesh), mesh),
    }
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            found[name] = ""
        except (TypeError, ValueError, RuntimeError) as error:
            found[name] = str(error)
    return found


def second_derivative(layer):
    x = torch.randn(1, 2, 8, 8, requires_grad=True)
    (slope,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    slope.square().sum().backward()


def grid(data, modes):
    """Samples over one dimension of a mesh, modes over the other, against all samples on one device."""
    mesh = init_device_mesh("cpu", (data, modes), mesh_dim_names=("data", "modes"))
    torch.manual_seed(0)
    whole = SonicNet(3, 2, width=8, depth=2, num_modes=6)
    x = torch.randn(2 * data, 3, 10, 12)
    part = x.chunk(data)[mesh["data"].get_local_rank()]
    shared = shard_parameters(parallelize_modes(copy.deepcopy(whole), mesh["modes"]), mesh["data"])
    whole(x).square().mean().backward()
    shared(part).square().mean().backward()
    expected = dict(whole.named_parameters())
    return {name: relative(p.grad, expected[name].grad) for name, p in shared.named_parameters()}


def sharded_window(mesh):
    """Logits in a window, which networks compute without calling their blocks; and the saving of a sharded model."""
    torch.manual_seed(0)
    options = {"num_modes": 6, "norm": "channel"}
    whole = torchsonic.create_model(
        "synthshape_sonicnet", width=8, depth=2, head_norm="channel", backbone_options=options
    )
    expected = {name: value.clone() for name, value in whole.state_dict().items()}
    shared = shard_parameters(copy.deepcopy(whole), mesh)
    x, window = torch.randn(2, 3, 12, 12), (slice(5, 7), slice(5, 7))
    with torch.no_grad():
        error = relative(shared(x, window=window), whole(x, window=window))
    folder = Path(sys.argv[1]) / "sharded"
    shared.save_pretrained(folder)
    loaded = torchsonic.from_pretrained(folder).state_dict()
    same = all(torch.equal(loaded[name], expected[name]) for name in expected)
    return {"error": error, "saved": same, "still sharded": is_sharded(shared)}


def example():
    """The program of the documentation; it saves a model."""
    page = (Path(__file__).parents[2] / "docs" / "parallel.md").read_text()
    with contextlib.chdir(sys.argv[1]):
        exec(compile(re.search(r"```py\n(.*?)```", page, flags=re.DOTALL)[1], "parallel.md", "exec"), {})
        return {"modes": torchsonic.from_pretrained("model").blocks[0].operator.num_modes}


class Interrupted:
    """A task whose data end too early."""

    def __init__(self, task, last):
        self.task, self.last = task, last

    def __getattr__(self, name):
        return getattr(self.task, name)

    def batch(self, step, samples):
        if step >= self.last:
            raise InterruptedError
        return self.task.batch(step, samples)


def training(fabric):
    """A run with FSDP2, and one that was interrupted and went on with FSDP2, with DDP, and later on one process."""
    folder = Path(sys.argv[1])
    config = TrainingConfig(**CONFIG, strategy="fsdp")
    model = make_model()
    fit(model, make_task(), config, folder / "fsdp", fabric=fabric, show=False)
    expected = model.state_dict()
    model = make_model()
    try:
        fit(model, Interrupted(make_task(), 4), config, folder / "stopped", fabric=fabric, show=False)
    except InterruptedError:
        dist.barrier()
    if dist.get_rank() == 0:
        for name in ("ddp", "single"):
            shutil.copytree(folder / "stopped", folder / name)
    dist.barrier()
    own = folder / ("stopped" if dist.get_rank() == 0 else "unseen")
    refused = ""
    try:
        fit(make_model(), make_task(), config, own, fabric=fabric, show=False)
    except CheckpointError as error:
        refused = str(error)
    model = make_model()
    fit(model, make_task(), config, folder / "stopped", fabric=fabric, show=False)
    again = all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    model, ddp = make_model(), TrainingConfig(**CONFIG, strategy="ddp")
    other = make_fabric(ddp)
    other.launch()
    fit(model, make_task(), ddp, folder / "ddp", fabric=other, show=False)
    error = max(relative(value, expected[name]) for name, value in model.state_dict().items())
    if dist.get_rank() == 0:
        torch.save(expected, folder / "expected.pt")
    return {"same bits": again, "with ddp": error, "whole": not is_sharded(model), "refused": refused}


def main():
    torch.set_num_threads(1)
    fabric = make_fabric(TrainingConfig(**CONFIG, strategy="fsdp"))
    fabric.launch()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    results = {f"modes: {name}": compare(build, mesh) for name, build in LAYERS.items()}
    results["float32"] = compare(LAYERS["network"], mesh, torch.float32)
    results["plan"] = compare(LAYERS["network"], mesh, share=in_a_plan)
    for check in (evaluation, about_all_modes, steps, memory, refusals, sharded_window):
        results[check.__name__] = check(mesh)
    results["grid 2x1"], results["grid 1x2"] = grid(2, 1), grid(1, 2)
    results["example"] = example()
    results["training"] = training(fabric)
    if dist.get_rank() == 0:
        (Path(sys.argv[1]) / "results.json").write_text(json.dumps(results))
    dist.barrier()


if __name__ == "__main__":
    main()
