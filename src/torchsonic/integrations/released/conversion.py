"""Convert a whole file of released weights: our layers, the other tensors, and a report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save, save_file
from torch import Tensor

from torchsonic.integrations.released.generations import ConversionError, ReleasedLayer, find_layers
from torchsonic.integrations.released.layers import Choices, ConvertedLayer, convert_layer
from torchsonic.integrations.released.reading import read_tensors
from torchsonic.models.sonic_layers import SonicLayers

OTHER_NAME, REPORT_NAME = "other.safetensors", "conversion.json"
LONE_NAME = "sonic"
SHOWN = 20
# What holds for every file; what holds for one generation alone stands under its name.
ASSUMED = {
    "all": (
        "x is the last array axis, y the one before, z the first",
        "the half spectrum is used as it is (our variant 'paper'); circular boundary (pad_linear=False)",
        "mode dropout is not in the file and is off",
        "directions that were fixed can be learned in our layer",
    ),
    "rms": (
        "the RMS runs over the whole half spectrum (block_h=None)",
        "at another spacing than it was built with, the released code also divides s by their ratio; ours does not",
    ),
    "dc": ("the magnitude is clipped at 5", "all samples of a batch have one spacing; in ours each may have its own"),
    "free": ("the magnitude is limited softly at 50",),
}


@dataclass(frozen=True)
class Conversion:
    """The result of :func:`convert_file`.

    Attributes
    ----------
    source, sha256
        Name and digest of the file.
    layers
        Our layers, under their original names.
    converted
        Arguments, generation and remarks of each layer, by name.
    others
        Tensors that belong to no Sonic layer; they are kept but not mapped.
    """

    source: str
    sha256: str
    layers: SonicLayers
    converted: Mapping[str, ConvertedLayer]
    others: Mapping[str, Tensor]
    choices: Choices

    def report(self) -> dict:
        """Everything that was mapped, assumed and not mapped, as plain data."""
        generations = sorted({layer.generation for layer in self.converted.values()})
        return {
            "source": self.source,
            "sha256": self.sha256,
            "layers": {
                name: {"generation": layer.generation, "arguments": layer.arguments, "remarks": layer.remarks}
                for name, layer in self.converted.items()
            },
            "assumed": [text for part in ("all", *generations) for text in ASSUMED[part]] + self._chosen(),
            "not_mapped": {name: list(value.shape) for name, value in self.others.items()},
        }

    def _chosen(self) -> list[str]:
        arguments = [layer.arguments for layer in self.converted.values()]
        ways = {given["standardise"] or "none" for given in arguments}
        texts = [f"input normalised to mean 0 and variance 1 per {way}" for way in sorted(ways - {"none"})]
        texts += ["input not standardised"] if "none" in ways else []
        orders = [given["limits"]["band_order"] for given in arguments if "band_order" in given.get("limits", {})]
        if orders:
            texts.append(f"Butterworth order {orders[0]}, cutoff relative to the coarsest axis")
        return [*texts, f"built with spacing {', '.join(f'{step:g}' for step in self.choices.spacing)}"]

    def text(self) -> str:
        """The report in lines."""
        report = self.report()
        lines = [f"{len(self.converted)} Sonic layer(s) of {self.source}:"]
        for name, layer in self.converted.items():
            given = layer.arguments
            lines.append(
                f"  {name}: generation {layer.generation}, {given['spatial_dims']}-D, {given['in_channels']} -> "
                f"{given['out_channels']} channels, {given['num_modes']} modes"
            )
            lines += [f"    differs: {remark}" for remark in layer.remarks]
        lines += ["assumed, since the file does not say:", *[f"  {text}" for text in report["assumed"]]]
        if self.others:
            lines.append(f"not mapped, copied to {OTHER_NAME}:")
            lines += [f"  {name} {tuple(shape)}" for name, shape in list(report["not_mapped"].items())[:SHOWN]]
            lines += [f"  and {len(self.others) - SHOWN} more, in {REPORT_NAME}"] if len(self.others) > SHOWN else []
        else:
            lines.append("not mapped: nothing")
        return "\n".join(lines)

    def save(self, folder: Path) -> Path:
        """Write the layers for ``from_pretrained``, the other tensors, and the report."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConversionError(f"{folder} is not empty; choose a new folder")
        self.layers.save_pretrained(folder)
        if self.others:
            save_file({name: t.detach().clone().contiguous() for name, t in self.others.items()}, folder / OTHER_NAME)
        (folder / REPORT_NAME).write_text(json.dumps(self.report(), indent=2) + "\n", encoding="utf-8")
        return folder


def _unheard(converted: Mapping[str, ConvertedLayer], found: list[ReleasedLayer], choices: Choices) -> list[str]:
    """Choices that no layer of the file asks for."""
    problems = []
    limits = [layer.arguments.get("limits", {}) for layer in converted.values()]
    if choices.band_order is not None and not any("band_order" in given for given in limits):
        problems.append(f"band_order={choices.band_order} is for layers with a band limit, but there are none")
    late = [layer for layer in found if layer.family == "late"]
    if choices.missing_bandwidth is not None and all("log_bandwidth" in layer.tensors for layer in late):
        problems.append(
            f"missing_bandwidth={choices.missing_bandwidth!r} is for layers with theta_v but no log_bandwidth; there "
            "are none"
        )
    return problems


def _unstorable(others: Mapping[str, Tensor]) -> list[str]:
    """Tensors that could not be copied, found out before anything is written."""
    unknown = set()
    for dtype in {value.dtype for value in others.values()}:
        try:
            save({"": torch.empty(0, dtype=dtype)})
        except Exception:  # safetensors has errors of its own for what it does not know
            unknown.add(dtype)
    return [f"{name} is {t.dtype}, which safetensors cannot store" for name, t in others.items() if t.dtype in unknown]


def convert_file(path: Path, choices: Choices | None = None) -> Conversion:
    """Read a state dict of the released code and express its Sonic layers as ours.

    Raises
    ------
    ConversionError
        If anything about a Sonic layer is unknown, misshapen, not finite, ambiguous or not expressible in our layer;
        the message names every problem in the file.
    """
    choices = Choices() if choices is None else choices
    state = read_tensors(path)
    found, others, problems = find_layers(state)
    if not found and not problems:
        names = ", ".join(list(state)[:5])
        raise ConversionError(f"{path} contains no Sonic layer: no B_re, C_re next to vx or theta_v; it has {names}")
    converted: dict[str, ConvertedLayer] = {}
    for layer in found:
        try:
            converted[layer.name or LONE_NAME] = convert_layer(layer, choices)
        except ConversionError as error:
            problems.append(str(error))
    problems = problems or [*_unheard(converted, found, choices), *_unstorable(others)]
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise ConversionError(f"{path}: {'; '.join(problems[:SHOWN])}{more}")
    try:
        layers = SonicLayers({name: layer.arguments for name, layer in converted.items()})
    except ValueError as error:  # a name that no layer of ours can have
        raise ConversionError(f"{path}: {error}") from error
    for name, layer in converted.items():
        own = layers[name]
        parameters = dict(own.named_parameters())
        if parameters.keys() != layer.state.keys():
            raise AssertionError(f"{name}: {parameters.keys() ^ layer.state.keys()}")
        for leaf, parameter in parameters.items():
            parameter.data = layer.state[leaf].to(parameter.device)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Conversion(path.name, digest, layers.eval(), converted, others, choices)
