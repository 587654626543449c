"""The report on a folder of runs: Table 1 beside the paper's, curves, examples."""

from torchsonic.lab.report.table1.collect import find_runs, make_columns
from torchsonic.lab.report.table1.page import make_page
from torchsonic.lab.report.table1.report import Report, make_report
from torchsonic.lab.report.table1.table import make_table, rank_lines

__all__ = ["Report", "find_runs", "make_columns", "make_page", "make_report", "make_table", "rank_lines"]
