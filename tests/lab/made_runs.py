"""Folders as training leaves them behind, with numbers made up and small untrained models."""

import json
from dataclasses import asdict, replace

import torchsonic
from torchsonic.lab.data import PERTURBATIONS
from torchsonic.lab.runs.synthetic import MODELS, SyntheticConfig

ORIGIN = {
    "command": "torchsonic train",
    "commit": "0123456789abcdef",
    "dirty": False,
    "date": "2026-01-01T00:00:00+00:00",
    "seed": 0,
    "threads": 1,
    "device": "cpu",
    "cpu": "a processor",
    "busy_cores": 0.0,
    "torch": "2.13.0",
}


def make_results(config, *, dice=0.5, **changes):
    """What results.json of a run holds; every test has the same score."""
    rows = [
        {"test": name, "level": level, "dice": dice}
        for name, perturbation in PERTURBATIONS.items()
        for level in perturbation.levels
    ]
    for row in rows:
        if row["test"] == "rescaling":
            row["told"] = dice if config.model == "sonicnet" else None
    if config.task == "halligalli":
        rows = [{"test": "halligalli", "level": level, "dice": dice} for level in (0.0, 0.1)]
    return {
        "task": config.task,
        "model": config.model,
        "config": asdict(config),
        "seconds": 12.0,
        "samples_per_second": 30.0,
        "parameters": 72394,
        "flops": 670_000_000,
        "clean": dice,
        "rows": rows,
        "run": {**ORIGIN, "seed": config.training.seed},
        **changes,
    }


def make_run(root, *, task="synthshape", model="sonicnet", seed=0, steps=100, with_model=False, dice=0.5, **options):
    """Write a run and return its folder; ``run`` and other keys of the results may be given."""
    changes = {name: options.pop(name) for name in ("run", "rows", "clean", "flops") if name in options}
    config = SyntheticConfig(task=task, model=model, **options)
    config = replace(config, training=replace(config.training, seed=seed, steps=steps))
    folder = root / config.name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(asdict(config)))
    (folder / "results.json").write_text(json.dumps(make_results(config, dice=dice, **changes)))
    lines = [{"step": step, "loss": 1.0 / (step + seed), "seconds": 0.1} for step in range(1, 30)]
    text = "".join(json.dumps(line) + "\n" for line in [*lines, {"step": 29, "score": dice}])
    (folder / "log.jsonl").write_text(text + '{"step": 30, "lo')
    if with_model:
        classes = 6 if task == "synthshape" else 2
        network = torchsonic.create_model(f"synthshape_{model}", num_classes=classes, width=8, depth=1)
        network.save_pretrained(folder / "model")
    return folder


def make_all(root):
    """Two seeds of every model on both tasks, models with the first; a variant; and nothing wrong."""
    for task in ("synthshape", "halligalli"):
        for place, model in enumerate(MODELS):
            for seed in (0, 1):
                make_run(root, task=task, model=model, seed=seed, with_model=seed == 0, dice=0.9 - 0.1 * place)
    for seed in (0, 1):
        make_run(root, norm="channel", seed=seed, with_model=seed == 0)
