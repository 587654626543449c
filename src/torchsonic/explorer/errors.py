"""What the page may show a user."""

from __future__ import annotations

__all__ = ["RefusedError"]


class RefusedError(ValueError):
    """A request that cannot be answered; the message says why and what to do, the status is that of HTTP."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status
