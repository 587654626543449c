"""Exported files answer as the model does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import nn

import torchsonic
from torchsonic.export import ExportConfig, ExportError, check_file, export_model, load_exported
from torchsonic.models import SonicClassifier, SonicNet
from torchsonic.nn.residual import Shortcut
from torchsonic.testing import relative_error

TOLERANCE = 1e-4


def sonicnet(**options):
    torch.manual_seed(0)
    usual = {"width": 8, "depth": 1, "num_modes": 6, "field": 16, "padding_mode": "circular"}
    return SonicNet(2, 3, **{**usual, **options})


def classifier(**options):
    torch.manual_seed(0)
    return SonicClassifier(num_classes=5, widths=(8, 16), depths=(1, 1), **options)


MODELS = {
    "power of two": (lambda: sonicnet(depth=2), (64, 64)),
    "224": (sonicnet, (224, 224)),
    "odd": (lambda: sonicnet(padding_mode="reflect", padding=None), (45, 51)),
    "zeros": (lambda: sonicnet(padding_mode="zeros", padding=None), (31, 20)),
    "border": (lambda: sonicnet(padding_mode="zeros"), (31, 20)),
    "paper": (lambda: sonicnet(variant="paper"), (18, 21)),
    "hybrid": (lambda: sonicnet(local_kernel=3), (19, 24)),
    "volume": (lambda: sonicnet(spatial_dims=3, stride=2, form="pre", norm="channel"), (7, 12, 9)),
    "signal": (lambda: sonicnet(spatial_dims=1), (100,)),
    "classifier": (classifier, (37, 48)),
    "local stem": (lambda: classifier(stem="local", norm="batch"), (37, 48)),
    "deep stem": (lambda: classifier(stem="deep"), (30, 41)),
}
# Told to those that have parts which follow the spacing: taps of local kernels, the grid behind a stem.
TOLD = {"hybrid": (0.8, 0.8), "local stem": (0.5, 1.3), "deep stem": (1.3, 0.7)}


def export(model, folder, config, **options):
    ending = {"onnx": "onnx", "pt2": "pt2", "aoti": "pt2"}[config.to]
    return export_model(model, folder / f"model.{ending}", config, timed_seconds=0, **options)


def export_loaded(model, folder, config):
    """The file, and what it was checked with: loading takes almost as long as exporting."""
    loaded = []

    def load(path, to):
        loaded.append(load_exported(path, to))
        return loaded[0]

    with mock.patch("torchsonic.export.check.load_exported", load):
        file = export(model, folder, config)
    return file, loaded[0]


def needs_onnx(to):
    if to == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(package)


def onnx_session(path):
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("to", ["onnx", "pt2"])
@pytest.mark.parametrize("name", MODELS)
def test_fixed_sizes(name, to, tmp_path):
    needs_onnx(to)
    make, size = MODELS[name]
    model = make()
    spacing = TOLD.get(name, ())
    config = ExportConfig(to=to, size=size, spacing=spacing)
    file, exported = export_loaded(model, tmp_path, config)
    assert len(file.rows) == 1
    assert file.error < TOLERANCE
    # Not only noise as it was checked with.
    x = torch.rand(1, model.in_channels, *size) + 3
    with torch.no_grad():
        expected = model.eval()(x, **({"spacing": spacing} if spacing else {}))
    torch.testing.assert_close(exported(x), expected, rtol=0, atol=TOLERANCE * float(expected.abs().max()))


# The tracer takes long over sizes that depend on each other, so each network is traced for one format.
@pytest.mark.parametrize(
    ("make", "to"),
    [
        (sonicnet, "pt2"),
        (lambda: sonicnet(spatial_dims=1, stride=2, padding_mode="reflect", padding=None), "onnx"),
        (lambda: sonicnet(variant="paper"), "onnx"),
        (lambda: sonicnet(spatial_dims=3), "pt2"),
    ],
)
def test_dynamic_batch_and_size(make, to, tmp_path):
    needs_onnx(to)
    model = make()
    size = {1: (24,), 2: (24, 24), 3: (8, 9, 7)}[model.arguments.get("spatial_dims", 2)]
    least = 2 * max(size) // 3
    file, exported = export_loaded(model, tmp_path, ExportConfig(to=to, size=size, dynamic=("batch", "size")))
    assert len({row.shape for row in file.rows}) == 3
    if to == "onnx":
        names = [node.shape for node in onnx_session(file.path).get_inputs()]
        assert names == [["batch", 2, *[f"size_{axis}" for axis in range(len(size))]]]
    for shape in ((1, *[least] * len(size)), (3, *[least + 1] * len(size)), (2, *[n + 5 for n in size])):
        x = torch.randn(shape[0], model.in_channels, *shape[1:])
        with torch.no_grad():
            expected = model.eval()(x)
        torch.testing.assert_close(exported(x), expected, rtol=0, atol=TOLERANCE * float(expected.abs().max()))


@pytest.mark.parametrize("centred", [False, True])
def test_resampling_to_a_size_that_depends_on_the_input(centred, tmp_path):
    """As behind the strides of other networks and of orbits, with odd and even sizes."""
    needs_onnx("onnx")
    model = Shortcut(2, 2, 2, spatial_dims=1, smooth=True, centred=centred)
    model.in_channels = 2
    config = ExportConfig(to="onnx", size=(24,), dynamic=("size",))
    _, exported = export_loaded(model, tmp_path, config)
    for size in (16, 19, 22, 29):
        x = torch.randn(1, 2, size)
        torch.testing.assert_close(exported(x), model(x), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("kind", "dynamic", "to", "axes"),
    [
        ("batch", (), "pt2", 2),
        ("sample", ("batch",), "pt2", 2),
        ("sample", ("batch",), "onnx", 2),
        ("batch", ("size",), "onnx", 1),  # along two axes the tracer takes a quarter of a minute
    ],
)
def test_spacing_as_an_input(kind, dynamic, to, axes, tmp_path):
    needs_onnx(to)
    size = (15, 22)[:axes]
    model = sonicnet(spatial_dims=axes, stride=2, spacing=(2.0, 0.5)[:axes])
    config = ExportConfig(to=to, size=size, batch=2, spacing_input=kind, dynamic=dynamic)
    _, exported = export_loaded(model, tmp_path, config)
    x = torch.randn(2, 2, *size)
    spacings = torch.tensor([[1.0, 0.7], [3.0, 0.4]])[:, :axes]
    answers = []
    for spacing in (spacings,) if kind == "sample" else spacings:
        with torch.no_grad():
            expected = model.eval()(x, spacing=spacing)
        answers.append(exported(x, spacing))
        torch.testing.assert_close(answers[-1], expected, rtol=0, atol=TOLERANCE * float(expected.abs().max()))
    if kind == "batch":
        assert (answers[0] - answers[1]).abs().max() > 0.01 * answers[0].abs().max(), "the spacing changes nothing"


def test_a_classifier_takes_the_spacing_as_an_input_as_its_refusal_says(tmp_path):
    model = classifier(stem="deep", grid="input")
    config = ExportConfig(to="pt2", size=(17, 18), batch=2, spacing_input="sample")
    _, exported = export_loaded(model, tmp_path, config)
    x, spacing = torch.randn(2, 3, 17, 18), torch.tensor([[1.0, 0.7], [3.0, 0.4]])
    with torch.no_grad():
        expected = model.eval()(x, spacing=spacing)
    torch.testing.assert_close(exported(x, spacing), expected, rtol=0, atol=TOLERANCE * float(expected.abs().max()))


def test_a_program_runs_where_torchsonic_is_not(tmp_path):
    model = sonicnet()
    file = export(model, tmp_path, ExportConfig(to="pt2", size=(12, 13), dynamic=("batch",)))
    x = torch.randn(3, 2, 12, 13)
    torch.save(x, tmp_path / "x.pt")
    code = (
        "import sys, torch\n"
        "class Forbidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        assert not name.startswith('torchsonic'), name\n"
        "sys.meta_path.insert(0, Forbidden())\n"
        "program = torch.export.load('model.pt2').module()\n"
        "torch.save(program(torch.load('x.pt', weights_only=True)), 'y.pt')\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    with torch.no_grad():
        expected = model.eval()(x)
    actual = torch.load(tmp_path / "y.pt", weights_only=True)
    assert not actual.requires_grad
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE * float(expected.abs().max()))
    assert file.num_bytes == file.path.stat().st_size


@pytest.mark.slow
def test_compiled_ahead_of_time(tmp_path):
    model = sonicnet(spatial_dims=1)
    config = ExportConfig(to="aoti", size=(16,), dynamic=("batch", "size"), spacing_input="batch")
    file, exported = export_loaded(model, tmp_path, config)
    assert file.error < TOLERANCE
    assert exported.metadata["inputs"] == ["x", "spacing"]
    x, spacing = torch.randn(3, 2, 25), torch.tensor([0.7])
    with torch.no_grad():
        expected = model.eval()(x, spacing=spacing)
    torch.testing.assert_close(exported(x, spacing), expected, rtol=0, atol=TOLERANCE * float(expected.abs().max()))


@pytest.fixture(scope="module", params=["onnx", "pt2"])
def described(request, tmp_path_factory):
    needs_onnx(request.param)
    config = ExportConfig(to=request.param, size=(8, 8), spacing=(0.5, 2.0))
    return export(sonicnet(), tmp_path_factory.mktemp("described"), config, classes=["a", "b", "c"]).path, config.to


def test_files_describe_themselves(described):
    metadata = load_exported(*described).metadata
    assert metadata["version"] == torchsonic.__version__
    assert metadata["classes"] == ["a", "b", "c"]
    assert metadata["spacing"] == [0.5, 2.0]
    assert metadata["model"] == "SonicNet"
    assert json.dumps(metadata)


def test_onnx_names_its_axes(tmp_path):
    needs_onnx("onnx")
    config = ExportConfig(to="onnx", size=(12,), dynamic=("batch", "size"), spacing_input="sample")
    session = onnx_session(export(sonicnet(spatial_dims=1), tmp_path, config).path)
    assert [node.name for node in session.get_inputs()] == ["x", "spacing"]
    assert [node.shape for node in session.get_inputs()] == [["batch", 2, "size_0"], ["batch", 1]]
    assert [node.name for node in session.get_outputs()] == ["y"]


def test_a_model_keeps_its_mode_and_its_weights(tmp_path):
    model = sonicnet().train()
    model.blocks[0].eval()  # frozen
    modes = [module.training for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    export(model, tmp_path, ExportConfig(to="pt2", size=(8, 8)))
    assert model.training
    assert [module.training for module in model.modules()] == modes
    assert all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


class Drifting(nn.Module):
    """A model whose trace cannot be right: it answers differently each time."""

    def __init__(self):
        super().__init__()
        self.conv, self.calls = nn.Conv2d(2, 2, 1), 0

    def forward(self, x):
        self.calls += 1
        return self.conv(x) * self.calls


def test_a_file_that_differs_is_not_left_behind(tmp_path):
    with pytest.raises(ExportError, match="differs from the model by"):
        export(Drifting(), tmp_path, ExportConfig(to="pt2", size=(8, 8)))
    assert not list(tmp_path.iterdir())


def test_times_are_measured_when_asked(tmp_path):
    model, config = sonicnet(), ExportConfig(to="pt2", size=(8, 8))
    file = export(model, tmp_path, config)
    assert file.rows[0].ratio is None
    (row,) = check_file(model, file.path, config, timed_seconds=0.05)
    assert row.ratio is not None
    assert row.ratio > 0


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (nn.Conv2d(2, 2, 3), {"spacing": (1.0,)}, "takes no spacing"),
        (nn.Conv2d(2, 2, 3), {"spacing_input": "batch"}, "takes no spacing"),
        (sonicnet(padding_mode="zeros"), {"dynamic": ("size",)}, "padding_mode='zeros'"),
        *[
            (classifier(stem=stem), options, "grid='input' and stem='deep'")
            for stem in ("linear", "local")
            for options in ({"spacing_input": "batch"}, {"spacing": (0.5,), "dynamic": ("size",)})
        ],
        (sonicnet(local_kernel=3), {"spacing_input": "batch"}, "local branch"),
        (sonicnet().half(), {"to": "onnx"}, r"for float32, but this SonicNet contains torch.float16; call model.float"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_remedy(model, options, words, tmp_path):
    needs_onnx(options.get("to"))
    with pytest.raises(ValueError, match=words):
        export(model, tmp_path, ExportConfig(**{"to": "pt2", "size": (16, 18), **options}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"to": "tflite"}, "to must be one of"),
        ({"size": (1, 4)}, "size must be"),
        ({"size": ()}, "size must be"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"dynamic": ("channels",)}, "dynamic must be one of"),
        ({"spacing": (1.0, -2.0)}, "spacing must be positive"),
        ({"spacing": (1.0, 2.0, 3.0)}, "spacing must be 1 or 2 numbers"),
        ({"spacing": (1.0,), "spacing_input": "batch"}, "cannot be combined"),
        ({"spacing_input": "both"}, "spacing_input must be one of"),
        ({"to": "onnx", "transforms": "fft"}, "transforms='fft'"),
        ({"opset": 20}, "opset=20 is only for"),
        ({"to": "onnx", "opset": 3}, "opset must be at least 18"),
        ({"constant_megabytes": -1}, "constant_megabytes must be"),
    ],
)
def test_configurations_without_meaning_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        ExportConfig(**{"to": "pt2", "size": (8, 8), **options})


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"torchsonic\[export\]"):
        export(sonicnet(), tmp_path, ExportConfig(to="onnx", size=(8, 8)))


def test_a_missing_compiler_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ExportError, match="no-such-compiler"):
        export(sonicnet(), tmp_path, ExportConfig(to="aoti", size=(8, 8)))


def test_endings_by_which_runtimes_know_their_files_are_asked_for(tmp_path):
    for to, name in (("onnx", "net.pt2"), ("pt2", "net.onnx"), ("aoti", "net")):
        with pytest.raises(ValueError, match=rf"path must end in \.(onnx|pt2) with to='{to}', got '{name}'"):
            export_model(nn.Conv2d(2, 2, 3), tmp_path / name, ExportConfig(to=to, size=(8, 8)))


def test_a_file_that_refuses_a_size_is_not_left_behind(tmp_path, monkeypatch):
    def refuse(*inputs):
        raise AssertionError("Guard failed: x.size()[2] // 2 != 1\nand more")

    monkeypatch.setattr("torchsonic.export.check.load_exported", lambda path, to: refuse)
    with pytest.raises(
        ExportError, match=r"refuses an input \(1, 2, 3, 3\); AssertionError: Guard .* 1; .*larger size"
    ):
        export(nn.Conv2d(2, 2, 1), tmp_path, ExportConfig(to="pt2", size=(3, 3)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("to", ["onnx", "pt2"])
def test_damaged_files_are_refused_in_one_line(to, tmp_path):
    needs_onnx(to)
    path = tmp_path / f"model.{to}"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load_exported(path, to)
    path.write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(ExportError, match=f"cannot be loaded as to='{to}'") as caught:
        load_exported(path, to)
    assert "\n" not in str(caught.value)


def test_unknown_opsets_are_refused(tmp_path):
    needs_onnx("onnx")
    with pytest.raises(ExportError, match="opset=9999 is unknown to onnx"):
        export(nn.Conv2d(2, 2, 3), tmp_path, ExportConfig(to="onnx", size=(8, 8), opset=9999))


def test_files_do_not_say_where_the_source_lies(described):
    content = described[0].read_bytes()
    for place in (torchsonic.__file__, torch.__file__):
        assert os.fsencode(Path(place).parent) not in content


def test_what_a_compiler_refuses_is_told_in_one_line(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise RuntimeError("no such instruction\nand a page of code")

    monkeypatch.setattr("torch._inductor.aoti_compile_and_package", refuse)
    monkeypatch.setenv("CXX", sys.executable)  # it is there, and nobody calls it
    with pytest.raises(ExportError, match=r"^this model .* with to='aoti'; RuntimeError: no such instruction$"):
        export(nn.Conv2d(2, 2, 3), tmp_path, ExportConfig(to="aoti", size=(8, 8)))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_named_before_anything_is_traced(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*absent for net\.pt2"):
        export_model(None, tmp_path / "absent" / "net.pt2", ExportConfig(to="pt2", size=(8, 8)))


def test_files_refuse_inputs_that_they_were_not_written_for(tmp_path):
    model = sonicnet()
    config = ExportConfig(to="pt2", size=(8, 6), dynamic=("batch",), spacing_input="batch")
    exported = load_exported(export(model, tmp_path, config).path, "pt2")
    channels = exported.metadata["channels"]
    x, spacing = torch.randn(2, channels, 6, 8).mT, torch.ones(2)
    with torch.no_grad():
        assert relative_error(exported(x, spacing), model(x, spacing=spacing)) < 1e-5, "strides do not matter"
    for wrong in (x[..., :5], x[:, :-1], x[0], x.double(), x.mT):
        with pytest.raises(ValueError, match=r"^x must be float32 of shape \(any, \d, 8, 6\) for this file, got"):
            exported(wrong, spacing)
    with pytest.raises(ValueError, match=r"^spacing must be float32 of shape \(2\)"):
        exported(x, torch.ones(2, 2))
    with pytest.raises(ValueError, match="takes x and spacing, got 1 tensors"):
        exported(x)
