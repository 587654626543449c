"""Operators are measured on the same footing: the fields are what they say, the laws find what is known of each."""

import json
import math

import pytest
import torch
from torch import nn

from torchsonic.cli import main
from torchsonic.lab.report.operators import CONTENDERS, Budget, directions, fields, laws, make_page, measure_operators
from torchsonic.lab.report.operators.page import findings, operator_table
from torchsonic.lab.report.operators.turning import turned
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.models.registry import OPERATORS

pytest.importorskip("matplotlib")

BY_NAME = {contender.name: contender for contender in CONTENDERS}
SMALL = Budget(sizes=(16,), channels=4, rounds=1, seeds=1)


def test_every_registered_operator_is_measured():
    assert {contender.operator for contender in CONTENDERS} == {*OPERATORS, "vit"}


def test_a_local_field_is_the_same_on_every_grid_and_zero_at_the_border():
    coarse, fine = (fields.local_field(size, 3, seed=1) for size in (40, 80))
    torch.testing.assert_close(fine[..., ::2, ::2], coarse, rtol=0, atol=1e-12)
    assert coarse[..., 0, :].abs().max() < 1e-12 * coarse.abs().max() + 1e-12


def test_a_turn_moves_waves_to_where_the_matrix_takes_their_wavenumbers():
    line = torch.arange(40, dtype=torch.float64) / 40
    first, second = torch.meshgrid(line, line, indexing="ij")

    def wave(k):
        return torch.cos(2 * math.pi * (k[0] * first + k[1] * second) + 0.3)

    assert (fields.TURN @ torch.tensor([3.0, 1.0]).double()).tolist() == pytest.approx([1.0, 3.0])
    torch.testing.assert_close(fields.turn_field(wave((3, 1))), wave((1, 3)))
    x = fields.lattice_field(40, 2)
    assert fields.turn_field(x).norm() == pytest.approx(x.norm().item())
    with pytest.raises(ValueError, match="size must be a multiple of 5 above 10, got 32"):
        fields.lattice_field(32, 1)


@pytest.mark.parametrize("name", BY_NAME)
def test_axes_swapped_twice_are_as_before(name):
    layer = laws.build_exactly(BY_NAME[name], 0)
    once = turned(layer, fields.SWAP)
    twice = turned(once, fields.SWAP)
    x = torch.randn(1, laws.CHANNELS, laws.SIZE, laws.SIZE, dtype=torch.float64)
    torch.testing.assert_close(twice(x), layer(x))


@pytest.mark.parametrize(
    ("name", "kept", "broken"),
    [
        ("SONIC", {"shift", "axes", "finer, told", "larger", "turned"}, {"finer, not told", "turned, not told"}),
        ("SONIC, paper's notes", set(), {"shift", "axes", "finer, told", "turned"}),
        ("3x3 convolution", {"shift", "axes", "larger"}, {"finer, not told", "turned, not told"}),
        ("FNO", {"shift", "axes", "finer, not told"}, {"larger", "turned, not told"}),
        ("continuous FNO", {"shift", "axes", "finer, told", "larger", "turned"}, set()),
        ("SNO", {"shift", "axes", "finer, told", "larger"}, {"finer, not told"}),
        ("non-local block", {"shift", "axes", "finer, not told", "larger", "turned, not told"}, set()),
        ("ViT block", {"axes"}, {"shift", "finer, not told"}),
    ],
)
def test_laws_hold_and_fail_where_they_must(name, kept, broken):
    with torch.no_grad():
        errors = laws.law_errors(BY_NAME[name], seed=3)
    assert set(errors) == set(laws.LAWS)
    assert {law for law in kept if not errors[law] < laws.EXACT} == set()
    assert {law for law in broken if not errors[law] > 0.1} == set()


class Filter(nn.Module):
    """The circular filter of a given response to wavenumbers."""

    def __init__(self, response):
        super().__init__()
        line = torch.fft.fftfreq(laws.SIZE, 1 / laws.SIZE)
        self.response = response(*torch.meshgrid(line, line, indexing="ij")).double()

    def forward(self, x):
        return torch.fft.ifft2(torch.fft.fft2(x) * self.response).real


def test_selectivity_tells_none_axes_and_any_direction_apart():
    even = directions.selectivity(Filter(lambda a, b: torch.exp(-(a**2 + b**2) / 50)))
    separable = directions.selectivity(Filter(lambda a, b: torch.exp(-(a**2) / 8)))
    diagonal = directions.selectivity(Filter(lambda a, b: torch.exp(-((a - b) ** 2) / 8)))
    assert even[0] < 0.05
    assert even[1] == pytest.approx(0, abs=1e-12)
    assert separable[0] > 0.5
    assert separable[1] == pytest.approx(0, abs=1e-12)
    assert min(diagonal) > 0.5


def test_sizes_that_an_operator_does_not_take_are_seen():
    class Fixed:
        def build(self, channels, size):
            return nn.Sequential(nn.Flatten(), nn.Linear(channels * size**2, 2))

    assert not laws.takes_other_sizes(Fixed())
    assert laws.takes_other_sizes(BY_NAME["GFNet"])


def test_the_page_says_what_was_measured():
    chosen = [BY_NAME[name] for name in ("3x3 convolution", "FNO", "SONIC")]
    measured = measure_operators(SMALL, contenders=chosen)
    lines = findings(measured)
    assert lines[0].endswith("where possible, for: SONIC.")
    assert lines[3].endswith("fail on a larger one: FNO.")
    table = operator_table(measured, SMALL)
    assert len([line for line in table.lines if isinstance(line, list)]) == 3
    page = make_page(measured, SMALL, describe_run(seed=0, device=torch.device("cpu")))
    assert page.data["operators"][2]["errors"]["shift"] < 1e-12
    assert page.data["operators"][0]["costs"][0]["parameters"] == 9 * 16
    assert len(page.figures[0].data) > 10_000


def test_the_command_writes_page_and_figure(tmp_path, monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setattr(Budget, "quick", classmethod(lambda cls: SMALL))
    assert main(["compare", "operators", "--quick", "--out", str(tmp_path)]) == 0
    assert "Of these, the following prefer directions: SONIC." in capsys.readouterr().out
    names = {"report.html", "report.md", "report.json", "taxonomy.png"}
    assert {path.name for path in tmp_path.iterdir()} == names
    data = json.loads((tmp_path / "report.json").read_text())
    assert [one["name"] for one in data["operators"]] == list(BY_NAME)
