"""Cost and accuracy of models, as functions of modules, tensors and numbers."""

from torchsonic.lab.metrics.cost import count_flops, count_parameters
from torchsonic.lab.metrics.paper import PaperCost, paper_cost, paper_results

__all__ = ["PaperCost", "count_flops", "count_parameters", "paper_cost", "paper_results"]
