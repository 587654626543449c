"""Answers to the page's requests, independent of HTTP.

Pictures are sent as bytes that the page colours itself: a browser draws them faster than we could encode them.
"""

from __future__ import annotations

import base64
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from torchsonic.explorer import filters
from torchsonic.explorer.checkpoint import Checkpoint, Layer
from torchsonic.explorer.images import (
    DETAIL,
    FIELD_MM,
    MAX_BYTES,
    MAX_MEGAPIXELS,
    REFERENCE,
    SAMPLES,
    Uploads,
    sample_field,
)
from torchsonic.explorer.knobs import KNOBS, ModeValues, RefusedError, read_count, read_number
from torchsonic.explorer.turning import SCENES, turn_scene
from torchsonic.functional import ModeOperator, resample
from torchsonic.lab.data.synthetic.shapes import KINDS

FEWEST, MOST = 48, 512
NYQUIST = math.pi * REFERENCE[0] / FIELD_MM
SHEET_PAGE = 36
MANY_MODES = 12


class Session:
    """One explorer: its checkpoint, if any, and uploads. Threads may share it; pictures are computed one at a time."""

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        self.checkpoint = checkpoint
        self.uploads = Uploads()
        self._computing = threading.Lock()
        self._last_subject: filters.Subject | None = None
        self._last_filter: tuple[Any, Any, Any] = (None, None, None)  # key, operator, its kernel on the reference grid

    def start(self) -> dict[str, Any]:
        """What the page is built from."""
        layers = [] if self.checkpoint is None else self.checkpoint.layers
        return {
            "knobs": [asdict(knob) for knob in KNOBS],
            "samples": [{"name": name, "label": label} for name, (label, _) in SAMPLES.items()],
            "checkpoint": None if self.checkpoint is None else self.checkpoint.title,
            "layers": [{**layer.summary(), "pages": math.ceil(layer.num_modes / SHEET_PAGE)} for layer in layers],
            "bank": filters.BANK_SIZE,
            "field": FIELD_MM,
            "reference": REFERENCE,
            "detail": DETAIL,
            "sides": [FEWEST, MOST],
            "scenes": SCENES,
            "kinds": KINDS,
            "uploads": {"bytes": MAX_BYTES, "megapixels": MAX_MEGAPIXELS},
        }

    @torch.no_grad()
    def view(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """All pictures for one setting of the page."""
        values = ModeValues.read(request.get("values"))
        key, make = self._filter(request, values)
        subject = self._subject(request.get("image"))
        size = (self._side(request, "rows"), self._side(request, "columns"))
        highest = read_number(request.get("highest"), "Frequency range", 0.01, NYQUIST)
        reach = round(read_number(request.get("reach"), "Kernel range", 8, FIELD_MM / 2))
        with self._computing:
            if key != self._last_filter[0]:  # another grid or image needs no new kernel
                operator = make()
                self._last_filter = key, operator, filters.reference_kernel(operator)
            answer = self._draw(subject, size, highest, reach)
            if request.get("show_input", True):  # a page that has it already saves the time
                sampled = resample(subject.field[None, None], size)[0, 0]
                answer["input"] = {
                    "reference": brightness_picture(subject.field),
                    "sampled": brightness_picture(sampled),
                }
        answer["meaning"] = values.describe()
        return answer

    def _draw(self, subject: filters.Subject, size: tuple[int, int], highest: float, reach: int) -> dict[str, Any]:
        (kind, *_), operator, kernel = self._last_filter
        count = 192 if operator.modes.scale.numel() <= MANY_MODES else 96
        magnitude = filters.mode_magnitude if kind == "mode" else filters.symbol_magnitude
        middle = REFERENCE[0] // 2
        window = slice(middle - reach, middle + reach)
        result = filters.compare_operators(subject, operator, size, kernel)
        # The fit of nine taps to long modes has little power; each operator's pair has a colour scale of its own.
        pairs = {}
        for name in ("sonic", "conv", "gfnet"):
            outcome = getattr(result, name)
            bound = robust_bound(outcome.reference)
            pairs[name] = {"sampled": signed_picture(outcome.sampled, bound), "difference": outcome.difference}
            if name != "gfnet":  # SONIC's mask makes it SONIC on the reference grid: one picture serves both
                pairs[name]["reference"] = signed_picture(outcome.reference, bound)
        return {
            "response": magnitude_picture(magnitude(operator, highest, count)),
            "kernel": signed_picture(kernel[window, window], root=True),
            **pairs,
            "fit": result.fit,
            "lost": result.lost,
        }

    def upload(self, data: bytes) -> dict[str, Any]:
        """Keep an image; returns the name by which the page asks for it."""
        return {"image": self.uploads.add(data)}

    @torch.no_grad()
    def sheet(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """A page of a layer's modes, strongest first: pictures and values."""
        layer = self._layer(request.get("layer"))
        pages = math.ceil(layer.num_modes / SHEET_PAGE)
        page = read_count(request.get("page"), "Page", 0, pages - 1)
        indices = list(layer.order[page * SHEET_PAGE : (page + 1) * SHEET_PAGE])
        with self._computing:
            kernels = layer.thumbnails(indices)
        total = float(layer.strength.square().sum().clamp_min(1e-20))
        modes = []
        for index, kernel in zip(indices, kernels, strict=True):
            values = layer.values(index)
            notes = {"values": asdict(values), "meaning": values.describe()}
            share = float(layer.strength[index].square()) / total
            modes.append({"mode": index, **notes, "share": share, **signed_picture(kernel, root=True)})
        return {"layer": layer.name, "page": page, "pages": pages, "modes": modes}

    @torch.no_grad()
    def turn(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """A scene and the answers of two networks, upright and turned."""
        scene = read_count(request.get("scene"), "Scene", 0, SCENES - 1)
        degrees = read_number(request.get("angle"), "Angle", -180.0, 180.0)
        with self._computing:
            upright, turned, answers = turn_scene(scene, degrees)
        found: dict[str, Any] = {
            "image": {"upright": brightness_picture(upright), "turned": brightness_picture(turned)}
        }
        for name, answer in answers.items():
            pictures = {"upright": class_picture(answer.upright), "turned": class_picture(answer.turned)}
            found[name] = {**pictures, "agreement": answer.agreement}
        return found

    def _filter(self, request: Mapping[str, Any], values: ModeValues) -> tuple[Any, Callable[[], ModeOperator]]:
        """What identifies the chosen filter, and how to make it."""
        kind = request.get("filter", "mode")
        if kind in ("mode", "bank"):
            return (kind, values), lambda: (filters.mode_of if kind == "mode" else filters.bank_of)(values)
        if kind != "layer":
            raise RefusedError(f"filter must be mode, bank or layer, got {kind!r}")
        layer = self._layer(request.get("layer"))
        if not layer.exact:
            raise RefusedError(f"{layer.name} cannot be used as a filter: {layer.note}")
        start = read_count(request.get("input"), "Input channel", 0, layer.inputs - 1)
        end = read_count(request.get("output"), "Output channel", 0, layer.outputs - 1)
        return (kind, layer.name, start, end), lambda: layer.operator.between([start], [end])

    def _layer(self, index: Any) -> Layer:
        if self.checkpoint is None:
            raise RefusedError("no checkpoint is loaded; start the explorer as: torchsonic explore CHECKPOINT")
        return self.checkpoint.layers[read_count(index, "Layer", 0, len(self.checkpoint.layers) - 1)]

    def _subject(self, name: Any) -> filters.Subject:
        if not isinstance(name, str):
            raise RefusedError(f"image must be a name, got {name!r}")
        field = sample_field(name) if name in SAMPLES else self.uploads.get(name)
        last = self._last_subject  # one is kept: sliders are turned many times for each image
        if last is None or last.field is not field:
            last = self._last_subject = filters.Subject(field)
        return last

    @staticmethod
    def _side(request: Mapping[str, Any], name: str) -> int:
        return round(read_number(request.get(name), name.capitalize(), FEWEST, MOST))


def _picture(levels: Tensor, kind: str, **notes: Any) -> dict[str, Any]:
    """``levels (H, W)`` in 0..255."""
    pixels = levels.round().clamp(0, 255).to(torch.uint8).contiguous()
    rows, columns = pixels.shape
    data = base64.b64encode(pixels.numpy().tobytes()).decode("ascii")
    return {"rows": rows, "columns": columns, "map": kind, "pixels": data, **notes}


def brightness_picture(image: Tensor) -> dict[str, Any]:
    """An image with values in [0, 1], ``(H, W)``."""
    return _picture(image * 255, "grey")


def class_picture(classes: Tensor) -> dict[str, Any]:
    """Numbers of classes, ``(H, W)``."""
    return _picture(classes, "classes")


def magnitude_picture(magnitude: Tensor) -> dict[str, Any]:
    """``log(1 + |T|)`` from 0 to its largest value, noted as ``top``; the largest ``|T|`` is noted as ``peak``."""
    shown = torch.log1p(magnitude)
    top = float(shown.max().clamp_min(1e-12))
    return _picture(shown * (255 / top), "heat", top=top, peak=float(magnitude.max()))


def robust_bound(values: Tensor) -> float:
    """The magnitude that all but one value in 500 stay below: a few peaks should not darken a picture."""
    magnitudes = values[::2, ::2].abs().flatten()  # every fourth pixel tells as much
    place = max(1, int(0.998 * magnitudes.numel()))
    return max(float(magnitudes.kthvalue(place).values), 1e-12)


def signed_picture(values: Tensor, bound: float | None = None, *, root: bool = False) -> dict[str, Any]:
    """Values round zero, ``(H, W)``, from ``-bound`` to ``bound``; ``root`` draws the root of magnitudes."""
    bound = max(float(values.abs().max()), 1e-12) if bound is None else bound
    shown = (values / bound).clamp(-1, 1)
    if root:
        shown = shown.sign() * shown.abs().sqrt()
    return _picture(127.5 + 127.5 * shown, "signed", bound=bound)
