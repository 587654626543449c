"""``torchsonic explore``: a web page on this machine to turn the knobs of a mode."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torchsonic.cli.command import UserError, require

__all__ = ["Explore"]


@dataclass(frozen=True, kw_only=True)
class Explore:
    """Open a web page to turn the knobs of a mode, filter images on any grid, and browse a trained model's modes."""

    positional: ClassVar[tuple[str, ...]] = ("checkpoint",)

    checkpoint: Path | None = None
    """Folder of save_pretrained, or of a run, whose modes to browse."""
    host: str = "127.0.0.1"
    """Address to listen at; with any but this machine's own, others can reach the page, which has no password."""
    port: int = 0
    """Port to listen at; 0 takes a free one."""
    browser: bool = True
    """Do not open a browser."""

    def run(self) -> None:
        require("PIL", "app")
        from torchsonic.explorer import Session, make_server, open_checkpoint, serve

        try:
            checkpoint = None if self.checkpoint is None else open_checkpoint(self.checkpoint)
            server = make_server(Session(checkpoint), host=self.host, port=self.port)
        except ValueError as error:
            raise UserError(str(error)) from error
        serve(server, browser=self.browser, say=lambda text: print(text, flush=True))
