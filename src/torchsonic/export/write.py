"""Programs as files, one function per format."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from pathlib import Path

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from torchsonic.export.config import ExportConfig, ExportError
from torchsonic.export.program import axis_names
from torchsonic.export.run import METADATA, first_line, require_packages

# A protocol buffer holds no more; some room is left for the graph itself.
ONNX_LIMIT = 1900 << 20
# Where PyTorch looks for a compiler if CXX names none.
COMPILERS = {"darwin": "clang++", "win32": "cl"}


def write_program(program: ExportedProgram, path: Path, config: ExportConfig, metadata: str) -> None:
    """Write a program in the configured format, together with ``metadata`` (JSON).

    The program is changed: references to source lines and to paths on this machine are removed.
    """
    _forget_sources(program)
    try:
        {"onnx": _write_onnx, "pt2": _write_pt2, "aoti": _write_aoti}[config.to](program, path, config, metadata)
    except (ExportError, ImportError, OSError):
        raise
    except Exception as error:  # each exporter and compiler has errors of its own
        raise ExportError(f"this model cannot be written with to={config.to!r}; {first_line(error)}") from error


def _forget_sources(program: ExportedProgram) -> None:
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            node.meta.pop("stack_trace", None)


def _num_bytes(program: ExportedProgram) -> int:
    tensors = [*program.state_dict.values(), *program.constants.values()]
    return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))


def _write_onnx(program: ExportedProgram, path: Path, config: ExportConfig, metadata: str) -> None:
    require_packages("onnx")
    import onnx

    if config.opset is not None and config.opset > onnx.defs.onnx_opset_version():
        raise ExportError(f"opset={config.opset} is unknown to onnx, whose latest is {onnx.defs.onnx_opset_version()}")
    if _num_bytes(program) > ONNX_LIMIT:
        raise ExportError(
            f"weights and constants take {_num_bytes(program) / 1e9:.1f} GB, but an ONNX file holds at most 2; "
            "lower constant_megabytes or size"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own, about versions and names
        onnx_program = torch.onnx.export(
            program,
            (),
            input_names=config.input_names,
            output_names=["y"],
            opset_version=config.opset,
            dynamic_shapes=axis_names(config) if config.dynamic else None,
            verbose=False,
        )
    assert onnx_program is not None
    model = onnx_program.model
    if config.opset not in (None, model.opset_imports[""]):  # PyTorch keeps its own where it cannot convert
        raise ExportError(f"opset={config.opset} does not work for this model, which needs {model.opset_imports['']}")
    for part in (model, model.graph, *model.graph.inputs, *model.graph.outputs, *model.graph.all_nodes()):
        part.metadata_props.clear()  # where in the model and its source a node came from
    model.metadata_props[METADATA] = metadata
    onnx_program.save(path, external_data=False)


def _write_pt2(program: ExportedProgram, path: Path, config: ExportConfig, metadata: str) -> None:
    torch.export.save(program, path, extra_files={f"{METADATA}.json": metadata})


def _write_aoti(program: ExportedProgram, path: Path, config: ExportConfig, metadata: str) -> None:
    compiler = os.environ.get("CXX", COMPILERS.get(sys.platform, "g++"))
    if shutil.which(compiler) is None:
        raise ExportError(
            f"to='aoti' needs a C++ compiler, but {compiler} was not found; install it, or set CXX to another"
        )
    from torch._inductor import aoti_compile_and_package

    options = {"aot_inductor.metadata": {METADATA: metadata}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own: transforms are left to PyTorch, on purpose
        aoti_compile_and_package(program, package_path=str(path), inductor_configs=options)
