"""The paper's taxonomy of operators with a large receptive field, measured: laws, directions, reach and costs."""

from torchsonic.lab.report.operators.contenders import CONTENDERS, Contender
from torchsonic.lab.report.operators.measure import Budget, Measured, measure_operators
from torchsonic.lab.report.operators.page import make_page

__all__ = ["CONTENDERS", "Budget", "Contender", "Measured", "make_page", "measure_operators"]
