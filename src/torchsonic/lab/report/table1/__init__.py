"""The report on a folder of runs: Table 1 beside the paper's, curves, examples; as HTML, Markdown, JSON and PNG."""

from torchsonic.lab.report.table1.collect import Column, Run, find_runs, make_columns
from torchsonic.lab.report.table1.table import Table, make_table, rank_line
from torchsonic.lab.report.table1.write import Report, make_report, write_report

__all__ = [
    "Column",
    "Report",
    "Run",
    "Table",
    "find_runs",
    "make_columns",
    "make_report",
    "make_table",
    "rank_line",
    "write_report",
]
