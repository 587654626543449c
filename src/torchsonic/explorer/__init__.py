"""The web page of ``torchsonic explore``: change one mode, filter an image with it, and resample that image.

A small server of Python's standard library answers on this machine alone: a framework would do the routing, but not the
checks of host, sender and size that make up the server. The page contains no third-party code and contacts no
other host. Only uploads need a further package, Pillow.
"""

from torchsonic.explorer.checkpoint import open_checkpoint
from torchsonic.explorer.server import make_server, serve
from torchsonic.explorer.session import Session

__all__ = ["Session", "make_server", "open_checkpoint", "serve"]
