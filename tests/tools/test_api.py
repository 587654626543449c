"""A public name cannot vanish unnoticed."""

from tools.api import LISTING, public_names


def test_public_names_are_those_that_are_listed():
    listed, found = LISTING.read_text().splitlines(), public_names()
    gone = [name for name in listed if name not in found]
    assert not gone, f"deprecate before you remove (CONTRIBUTING.md), or say in the changelog why not: {gone}"
    new = [name for name in found if name not in listed]
    assert not new, f"run: python -m tools.api; not listed yet: {new}"
    assert listed == found


def test_the_listing_holds_layers_models_and_commands():
    found = public_names()
    for name in ("torchsonic.SonicConv2d", "torchsonic.nn.SonicBlock", "model resnet50_sonic", "command train images"):
        assert name in found
