"""Integrations with other libraries. Each module needs the library it is named after; import it to use it."""

TORCHVISION_REMEDY = (
    "torchvision does not match this build of torch; install both from the same index "
    "(pip install --force-reinstall torch torchvision), or uninstall torchvision if nothing needs it"
)
"""For an error such as ``operator torchvision::nms does not exist``."""
