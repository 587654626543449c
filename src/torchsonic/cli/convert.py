"""``torchsonic convert``: weights of the authors' released code as our layers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from torchsonic.cli.command import UserError

__all__ = ["Convert"]


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Read the Sonic layers of a state dict of the released code, and say what was mapped and what was not."""

    positional: ClassVar[tuple[str, ...]] = ("file",)

    file: Path
    """Weights: .safetensors, or what torch.save wrote; nothing in it is executed."""
    out: Path
    """New folder, for torchsonic.from_pretrained."""
    generation: Literal["rms", "dc", "free"] | None = None
    """Needed for 2-D layers with vx and vy, whose names two generations share."""
    spacing: tuple[float, ...] = (1.0,)
    """Spacing the layers were built with: one number, or one per axis in array order (dz dy dx)."""
    standardise: Literal["channel", "sample", "none"] | None = None
    """What the input was standardised over; by default as in the generation."""
    band_order: int | None = None
    """Butterworth order of layers with log_bandwidth; 4 if not given."""
    missing_bandwidth: Literal["none", "half"] | None = None
    """Needed for layers with theta_v but no log_bandwidth: no band limit, or half the Nyquist frequency."""

    def run(self) -> None:
        from torchsonic.integrations.released import Choices, convert_file

        try:
            choices = Choices(
                generation=self.generation,
                spacing=self.spacing,
                standardise=self.standardise,
                band_order=self.band_order,
                missing_bandwidth=self.missing_bandwidth,
            )
            conversion = convert_file(self.file, choices)
            conversion.save(self.out)
        except ValueError as error:
            raise UserError(str(error)) from error
        except OSError as error:
            raise UserError(f"cannot write {self.out}: {error.strerror}") from error
        print(conversion.text())
        print("written:", self.out)
