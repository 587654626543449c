"""What models cost and how they do: functions of modules, tensors and numbers."""

from torchsonic.evaluation.cost import count_flops, count_parameters
from torchsonic.evaluation.paper import PaperCost, paper_cost, paper_results

__all__ = ["PaperCost", "count_flops", "count_parameters", "paper_cost", "paper_results"]
