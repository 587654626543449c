"""The page of ``torchsonic demo``: the first five minutes."""

from torchsonic.lab.report.demo.page import DemoConfig, run_demo

__all__ = ["DemoConfig", "run_demo"]
