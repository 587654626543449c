"""Whole experiments, from data to a report: ``python -m recipes.table2 --help`` in a checkout."""
