"""A document says the same as HTML, Markdown and on a console, and what it says is never markup."""

import csv
import io
import json
import math
import re

import pytest

from torchsonic.lab.report import (
    Cell,
    Code,
    Column,
    Document,
    Figure,
    Group,
    Items,
    Prose,
    Section,
    Table,
    print_document,
    to_html,
    to_markdown,
    write_document,
)
from torchsonic.lab.report.document import MINUS, NONE

SCRIPT = "<script>alert(1)</script>"
TABLE = Table(
    "Scores",
    ["", Column("Dice", "RV"), Column("NSD", "RV"), "time, s"],
    [
        Group("ours"),
        ["net", Cell("0.91", "0.90 to 0.92", "best"), Cell(f"{MINUS}0.10", mark="much worse"), NONE],
        [Cell("other", link="case0"), Cell("0.80", "0.7 to 0.9"), "0.2", "1.5"],
    ],
    notes=[("Timed by ", Code("time"), ".")],
)


def make_document(**changes):
    sections = [
        Section("Main", ["A sentence.", Prose("It works.", "finding"), TABLE, Items(["one", "two"])]),
        Section("More", [Section("Case 0", [Figure("pictures/a b", "Shape", "Words", b"R", "webp")], True, "case0")]),
    ]
    defaults = {"title": "Title", "about": "About", "sections": sections, "origins": [(Code("run it"), " here")]}
    return Document(**{**defaults, "warnings": ["Beware."], "left_out": [("c9", "broken")], **changes})


def test_rows_have_a_heading_only_if_their_first_column_holds_words():
    for left, expected in ((0, '<td class="">1</td>'), (1, '<th scope="row">1</th>')):
        table = Table("Numbers", ["a", "b"], [["1", "2"]], left=left)
        assert expected in to_html(Document(title="Title", sections=[Section("Main", [table])]))


def test_a_table_shows_its_title_unless_it_is_that_of_the_section():
    for heading, caption in (("Main", "<caption>Scores"), ("Scores", '<caption class="known">Scores')):
        document = Document(title="Title", sections=[Section(heading, [TABLE])])
        assert caption in to_html(document)
        assert ("**Scores**" in to_markdown(document)) == (heading == "Main")


def test_every_form_says_everything(capsys):
    pytest.importorskip("rich", reason="rich is not installed")
    document = make_document()
    print_document(document)
    shown = capsys.readouterr()
    page, text, printed = to_html(document), to_markdown(document), shown.out + shown.err
    for words in ("0.91", "0.90 to 0.92", f"{MINUS}0.10", "1.5", "It works.", "Beware.", "c9", "broken", "RV", "NSD"):
        assert words in page, words
        assert words in text, words
        assert words in printed, words
    for words in ("Title", "About", "A sentence.", "run it", "Words", "Case 0", "two"):
        assert words in page, words
        assert words in text, words
    assert "| net | **0.91** (0.90 to 0.92) |" in text
    assert "![Shape](<pictures/a b.webp>)" in text
    assert "Beware" not in shown.out, "warnings belong to the error stream"


def test_a_console_shows_the_sections_asked_for(capsys):
    pytest.importorskip("rich", reason="rich is not installed")
    print_document(make_document(), sections=())
    shown = capsys.readouterr().out
    assert "It works." in shown
    assert "0.91" not in shown


def test_a_page_needs_nothing_but_itself():
    page = to_html(make_document())
    assert not re.search(r"https?://", page)
    assert not re.search(r"<(link|iframe|object)\b|@import|url\(", page)
    assert len(re.findall("<script", page)) == 1
    assert "default-src 'none'" in page, "a browser refuses what slips through"
    assert re.findall(r'src="([^"]*)"', page) == ["data:image/webp;base64,Ug=="]
    assert all(f'id="{target}"' in page for target in re.findall(r'href="#([^"]+)"', page))
    assert page.count("<table") == page.count("<caption>") == page.count("data-csv=") == 1


def test_what_a_document_says_is_no_markup():
    hostile = f'a|b *c* _d_ `e` [f](g) "><img src=x onerror=alert(1)> {SCRIPT}'
    table = Table(hostile, [hostile, Column(hostile, hostile)], [[hostile, Cell(hostile, hostile)]], [hostile])
    sections = [Section(hostile, [hostile, table, Figure("a", hostile, hostile, b"")])]
    document = Document(
        title=hostile,
        about=(hostile, Code(hostile)),
        sections=sections,
        warnings=[hostile],
        origins=[(Code(hostile),)],
        left_out=[(hostile, hostile)],
    )
    page = to_html(document)
    for form in ("<script>alert", "<img src=x", "onerror=alert(1)>"):
        assert form not in page
    outside_code = re.sub(r"(`+).*?\1(?!`)", "", to_markdown(document).replace("\\`", ""))
    for form in ("<script", "<img", " *c*", " _d_", " [f]"):
        assert form not in outside_code
    rows = [line for line in to_markdown(document).splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {3}, "a bar in a name makes no new cell"


def test_names_with_underscores_stay_as_they_are():
    document = Document(title="resnet50_sonic and _this_", sections=[])
    assert to_markdown(document) == "# resnet50_sonic and \\_this\\_\n"


def test_a_table_copied_as_csv_has_numbers_for_programs():
    rows = list(csv.reader(io.StringIO(TABLE.to_csv())))
    assert rows == [
        ["group", "", "RV, Dice", "RV, Dice, interval", "RV, NSD", "time, s"],
        ["ours", "net", "0.91", "0.90 to 0.92", "-0.10", ""],
        ["ours", "other", "0.80", "0.7 to 0.9", "0.2", "1.5"],
    ]
    odd = Table("t", ["a, b", 'c"d'], [["x\ny", "1,5"]])
    assert list(csv.reader(io.StringIO(odd.to_csv()))) == [["a, b", 'c"d'], ["x\ny", "1,5"]]


def test_files_hold_the_document_its_data_and_its_figures(tmp_path):
    written = write_document(make_document(data={"score": math.nan, "size": (1, 2)}), tmp_path / "new")
    names = ["report.html", "report.md", "report.json", "pictures/a b.webp"]
    assert [path.relative_to(tmp_path / "new").as_posix() for path in written] == names
    assert json.loads((tmp_path / "new" / "report.json").read_text()) == {"score": None, "size": [1, 2]}
    assert (tmp_path / "new" / "pictures" / "a b.webp").read_bytes() == b"R"
