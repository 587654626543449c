"""A network of escnn's layers can be saved, and turns exactly by quarters; without escnn the error names it."""

import importlib.util

import pytest
import torch

import torchsonic
from torchsonic.baselines import SteerableCNN

HAS_ESCNN = importlib.util.find_spec("escnn") is not None


@pytest.mark.skipif(HAS_ESCNN, reason="escnn is installed")
def test_without_escnn_the_error_says_what_it_needs():
    with pytest.raises(ImportError, match="NumPy 1"):
        SteerableCNN()


@pytest.mark.skipif(not HAS_ESCNN, reason="escnn is not installed")
def test_quarter_turns_change_nothing_and_what_is_saved_is_loaded(tmp_path):
    torch.manual_seed(0)
    model = SteerableCNN(widths=(2, 3), strides=(1, 2), num_classes=4)
    x = torch.randn(2, 1, 13, 13)
    model(x).sum().backward()  # statistics of the norms
    model.eval()
    with torch.no_grad():
        logits = model(x)
        torch.testing.assert_close(model(x.rot90(1, (2, 3))), logits, rtol=1e-3, atol=1e-4)
        model.save_pretrained(tmp_path)
        assert torch.equal(torchsonic.from_pretrained(tmp_path).eval()(x), logits)
