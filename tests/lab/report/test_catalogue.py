"""The table of models, and the document that holds it."""

from pathlib import Path

import pytest

import torchsonic
from torchsonic.lab.metrics import PaperCost, count_parameters
from torchsonic.lab.report.catalogue import BEGIN, END, HEADERS, CatalogueRow, catalogue_table, marked_table, put_table

DOCUMENT = Path(__file__).parents[3] / "docs" / "models.md"
ROW = CatalogueRow("some_model", "segmentation", (3, 64, 64), 72_390, 669_974_528, PaperCost(0.072, 0.012))


def test_the_document_lists_every_model_with_its_parameters():
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    listed = {cells[0]: cells for line in lines if len(cells := [cell.strip() for cell in line.split("|")[1:-1]]) == 7}
    names = torchsonic.list_models()
    assert sorted(set(listed) - {HEADERS[0], "---"}) == names, "run: torchsonic models --out docs/models.md"
    for name in names:
        parameters = count_parameters(torchsonic.create_model(name))
        assert listed[name][3] == f"{parameters / 1e6:.3f}", f"{name}: run: torchsonic models --out docs/models.md"
        assert float(listed[name][5]) > 0


def test_cells_stand_under_their_headers():
    (row,) = catalogue_table([ROW]).rows
    assert row == ["some_model", "segmentation", "3 x 64 x 64", "0.072", "0.072", "0.670", "0.012 (a)"]
    without = CatalogueRow("m", "classification", (3, 8, 8), 10**9, None, PaperCost(None, 4.57))
    (row,) = catalogue_table([without]).rows
    assert row[3:] == ["1000.000", "-", "-", "4.57"]


def test_a_table_takes_the_place_of_the_old_one_and_of_nothing_else():
    text = f"# Title\n\nbefore\n\n{BEGIN}\nold\n{END}\n\nafter\n"
    table = marked_table([ROW], "torchsonic models")
    once = put_table(text, table)
    assert once.startswith("# Title\n\nbefore\n\n")
    assert once.endswith(f"{END}\n\nafter\n")
    assert "old" not in once
    assert put_table(once, table) == once


@pytest.mark.parametrize("text", ["", BEGIN, f"{END} {BEGIN}"])
def test_a_text_without_a_place_is_refused(text):
    with pytest.raises(ValueError, match="no place for the table"):
        put_table(text, "table")
