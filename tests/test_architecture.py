"""The tree says what may import what; this reads the tree."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "torchsonic"

# Each part may import itself and the parts listed; nobody imports `cli`.
MATHEMATICS = {"arguments", "spectral"}
OPERATOR = {*MATHEMATICS, "engine", "functional"}
ALLOWED = {
    "arguments": set(),
    "spectral": {"arguments"},
    "engine": MATHEMATICS,
    "functional": {*MATHEMATICS, "engine"},
    "nn": OPERATOR,
    "testing": {"functional", "nn"},
    "demo": {"functional", "nn", "viz"},
    "models": {*OPERATOR, "nn", "__version__"},
    "baselines": {*OPERATOR, "nn", "models"},
    "parallel": {"arguments", "nn"},
    "files": set(),
    "loading": set(),
    "data": {"files"},
    "evaluation": {"functional", "data", "__version__"},
    "training": {"files", "loading", "engine", "functional", "nn", "data", "evaluation", "parallel"},
    "viz": {*MATHEMATICS, "functional", "nn"},
    "experiments": {
        *OPERATOR,
        "files",
        "nn",
        "models",
        "baselines",
        "data",
        "evaluation",
        "training",
        "viz",
        "demo",
        "__version__",
    },
    "integrations": {*OPERATOR, "files", "loading", "nn", "models", "baselines", "data"},
    "export": {*OPERATOR, "files", "nn", "__version__"},
    "explorer": {"functional", "nn", "models", "baselines", "data"},
    "cli": {
        *OPERATOR,
        "files",
        "nn",
        "testing",
        "demo",
        "models",
        "baselines",
        "evaluation",
        "integrations",
        "data",
        "training",
        "explorer",
        "export",
    },
    "__init__": {"functional", "nn", "models", "baselines"},
}
CORE = {"torch", "numpy", "safetensors"}
OPTIONAL_IN = {
    "baselines": {"monai"},
    "cli": {"tyro", "rich", "benchmarks"},
    "data": {"nibabel", "scipy", "PIL"},
    "demo": {"matplotlib", "rich"},
    "evaluation": {"monai", "picai_eval", "report_guided_annotation"},
    "experiments": {"files", "matplotlib"},
    "engine": {"pyvkfft", "pyopencl", "cupy"},  # the FFT backend, where it is used
    "models": {"huggingface_hub"},
    "explorer": {"PIL"},
    "export": {"onnx", "onnxruntime"},
    "integrations": {"files", "timm", "monai", "nnunetv2"},
    "training": {"files", "lightning_fabric", "rich", "wandb"},
    "viz": {"matplotlib", "PIL"},
}


def part_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imports_of(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} uses a relative import"
            module = node.module or ""
            yield from (f"{module}.{alias.name}" if module == "torchsonic" else module for alias in node.names)


def test_every_part_is_known():
    assert {part_of(p) for p in SOURCE.rglob("*.py")} <= set(ALLOWED)


def test_imports_point_one_way():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        part = part_of(path)
        for name in imports_of(path):
            top, *rest = name.split(".")
            if top == "torchsonic" and rest:
                target = rest[0]  # a part, or a public name of the package, which only `cli` may take from there
                if target != part and target not in ALLOWED[part] and part != "cli":
                    wrong.append(f"{path.relative_to(ROOT)} imports {name}")
            elif top not in CORE | sys.stdlib_module_names | OPTIONAL_IN.get(part, set()) | {"torchsonic"}:
                wrong.append(f"{path.relative_to(ROOT)} needs {top}")
    assert not wrong, "\n".join(wrong)


def test_importing_the_package_loads_nothing_optional():
    code = (
        "import sys, torch; before = set(sys.modules); import torchsonic; "
        "new = {m.split('.')[0] for m in set(sys.modules) - before}; "
        f"extra = new - set(sys.stdlib_module_names) - {CORE | {'torchsonic'}!r}; "
        "assert not extra, extra"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_stay_small():
    long = {p.name: n for p in SOURCE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 300}
    # The layer's whole interface and the list of laws each stand in one place.
    assert set(long) <= {"conv.py", "laws.py"}, long


def frames_to(name):
    """Functions between a layer's forward pass and a named function that it calls."""
    import traceback

    import torch

    from torchsonic import SonicConv2d
    from torchsonic.engine import transform

    found = []

    def seen(*arguments, **options):
        found.append([frame for frame in traceback.extract_stack() if "torchsonic" in frame.filename][:-1])
        return original(*arguments, **options)

    original = getattr(transform, name)
    setattr(transform, name, seen)
    try:
        order = "modes" if name == "complex_fftn" else "channels"
        SonicConv2d(2, 2, num_modes=1, execution={"order": order})(torch.randn(1, 2, 4, 4))
    finally:
        setattr(transform, name, original)
    return found[0]


def test_few_functions_lie_between_a_layer_and_its_transform():
    for name in ("rfftn", "complex_fftn"):
        frames = [frame for frame in frames_to(name) if str(SOURCE) in frame.filename]
        assert len(frames) <= 5, frames
        assert len({frame.filename for frame in frames}) <= 4, frames


def test_the_definition_of_the_operator_is_one_short_file():
    assert len((SOURCE / "spectral" / "plain.py").read_text().splitlines()) < 200


def test_public_names_exist():
    import torchsonic
    import torchsonic.evaluation
    import torchsonic.parallel
    import torchsonic.testing
    import torchsonic.viz

    core = (torchsonic.functional, torchsonic.nn, torchsonic.models, torchsonic.baselines)
    others = (torchsonic.evaluation, torchsonic.parallel, torchsonic.testing, torchsonic.viz)
    for module in (torchsonic, *core, *others):
        for name in module.__all__:
            assert hasattr(module, name), f"{module.__name__}.{name}"
