"""Other libraries' doors: each file needs the library it is named after, and is imported by whoever wants it."""

TORCHVISION_REMEDY = (
    "torchvision was built for another build of torch; install both from the same index "
    "(pip install --force-reinstall torch torchvision), or uninstall torchvision if nothing needs it"
)
"""For an error such as ``operator torchvision::nms does not exist``."""
