"""Trained models as files for other runtimes: ONNX, ``torch.export`` and AOTInductor."""

from torchsonic.export.check import CheckRow, check_file
from torchsonic.export.config import ExportConfig, ExportError
from torchsonic.export.model import ExportedFile, export_model
from torchsonic.export.program import trace_model
from torchsonic.export.run import load_exported

__all__ = [
    "CheckRow",
    "ExportConfig",
    "ExportError",
    "ExportedFile",
    "check_file",
    "export_model",
    "load_exported",
    "trace_model",
]
