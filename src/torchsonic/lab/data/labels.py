"""What a label may be beside a class."""

from __future__ import annotations

IGNORE = -100
"""Label of pixels that no loss and no metric looks at."""
