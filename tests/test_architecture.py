"""The tree says what may import what; this reads the tree."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "torchsonic"

# Each part may import itself and the parts listed; only `__main__` imports `cli`, and nobody but `cli` all of `lab`.
MATHEMATICS = {"arguments", "spectral"}
OPERATOR = {*MATHEMATICS, "engine", "functional"}
NETWORKS = {"nn", "models", "baselines", "__version__"}
DATA, METRICS, TRAINING = "lab.data", "lab.metrics", "lab.training"
ALLOWED = {
    "arguments": set(),
    "io": set(),
    "moved": set(),
    "spectral": {"arguments"},
    "engine": {*MATHEMATICS, "io"},
    "functional": {*MATHEMATICS, "engine"},
    "nn": OPERATOR,
    "testing": {*MATHEMATICS, "functional", "nn"},
    "doctor": {"spectral", "engine", "functional", "nn", "testing", "integrations"},
    "models": {*OPERATOR, "io", "nn", "__version__"},
    "baselines": {*OPERATOR, "nn", "models"},
    "parallel": {"arguments", "nn"},
    "viz": {*MATHEMATICS, "functional", "nn"},
    "integrations": {*OPERATOR, *NETWORKS, "io", DATA},
    "export": {*OPERATOR, "io", "nn", "__version__"},
    "explorer": {*NETWORKS, "functional", DATA},
    "lab": set(),
    DATA: {"io", "functional"},
    METRICS: {"functional", DATA},
    TRAINING: {"io", "engine", "functional", "nn", "parallel", DATA, METRICS},
    "lab.runs": {*OPERATOR, *NETWORKS, "io", DATA, METRICS, TRAINING},
    "lab.studies": {"io", METRICS, TRAINING, "lab.runs"},
    "lab.report": {*OPERATOR, *NETWORKS, "io", "viz", DATA, METRICS, TRAINING, "lab.runs", "lab.studies"},
    "cli": {*OPERATOR, *NETWORKS, "io", "testing", "integrations", "explorer", "export", "lab"},
    "__main__": {"cli"},
    "__init__": {"functional", "nn", "models", "baselines", "moved"},
}
CORE = {"torch", "numpy", "safetensors"}
OPTIONAL_IN = {
    "baselines": {"monai", "escnn"},
    "cli": {"tyro", "rich", "tools"},  # the last only in a checkout
    DATA: {"nibabel", "scipy", "PIL"},
    METRICS: {"monai", "picai_eval", "report_guided_annotation"},
    "lab.runs": {"lightning_fabric", "nnunetv2"},
    "lab.report": {"matplotlib", "rich", "jinja2"},  # torch requires the last
    "engine": {"pyvkfft", "pyopencl", "cupy", "triton"},  # FFT backends and GPU kernels, where they are used
    "models": {"huggingface_hub"},
    "explorer": {"PIL"},
    "export": {"onnx", "onnxruntime"},
    "integrations": {"timm", "monai", "nnunetv2"},
    TRAINING: {"lightning_fabric", "rich", "wandb"},
    "viz": {"matplotlib", "PIL"},
}


def part_of(path: Path) -> str:
    return part_named(path.relative_to(SOURCE).with_suffix("").parts)


def part_named(names) -> str:
    """The part that a module belongs to; rooms of the laboratory are parts of their own."""
    return ".".join(names[:2]) if names[0] == "lab" and names[1:2] not in ([], ("__init__",)) else names[0]


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
                target = part_named(
                    tuple(rest)
                )  # or a public name of the package, which only `cli` may take from there
                if target != part and target not in ALLOWED[part] and part != "cli":
                    wrong.append(f"{path.relative_to(ROOT)} imports {name}")
            elif top not in CORE | sys.stdlib_module_names | OPTIONAL_IN.get(part, set()) | {"torchsonic"}:
                wrong.append(f"{path.relative_to(ROOT)} needs {top}")
    assert not wrong, "\n".join(wrong)


def test_only_commands_know_the_laboratory():
    """Explorer and integrations may take its data, nobody else anything of it."""
    takers = {
        part for part, allowed in ALLOWED.items() if not part.startswith("lab") and any("lab" in a for a in allowed)
    }
    assert takers == {"cli", "explorer", "integrations"}
    assert all({a for a in ALLOWED[part] if "lab" in a} == {DATA} for part in takers - {"cli"})


def test_the_wheel_holds_no_commands_of_a_checkout():
    for path in SOURCE.rglob("*.py"):
        named = {name.split(".")[0] for name in imports_of(path)} & {"benchmarks", "tools", "tests"}
        assert not named or path == SOURCE / "cli" / "table.py", path


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
    assert not long, long


def test_functions_of_the_laboratory_stay_short():
    """Docstrings counted; constructors may have more parameters."""
    wrong = []
    for path in [*(SOURCE / "lab").rglob("*.py"), *(SOURCE / "cli").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name != "__init__":
                inputs = [a.arg for a in (*node.args.args, *node.args.kwonlyargs) if a.arg not in ("self", "cls")]
                if (node.end_lineno or 0) - node.lineno >= 60 or len(inputs) > 8:
                    wrong.append(node.name)
    # The loop is read from top to bottom; the others are scorers of reports, and one of their parts.
    assert set(wrong) <= {"fit", "score_folders", "score_runs", "score_sizes"}, wrong


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
    import torchsonic.lab.data
    import torchsonic.lab.metrics
    import torchsonic.lab.training
    import torchsonic.parallel
    import torchsonic.testing
    import torchsonic.viz

    core = (torchsonic.functional, torchsonic.nn, torchsonic.models, torchsonic.baselines)
    lab = (torchsonic.lab.data, torchsonic.lab.metrics, torchsonic.lab.training)
    others = (torchsonic.parallel, torchsonic.testing, torchsonic.viz, *lab)
    for module in (torchsonic, *core, *others):
        for name in module.__all__:
            assert hasattr(module, name), f"{module.__name__}.{name}"


def test_slow_tests_are_named_as_they_are():
    """A test that is renamed must not become a fast one unseen."""
    for line in (ROOT / "tests" / "slow.txt").read_text().splitlines():
        path, _, name = line.partition("::")
        if path.startswith("tests/"):
            place = ROOT / path
            assert place.is_dir() or f"def {name.rpartition('::')[2]}(" in place.read_text(), line
