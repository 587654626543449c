"""A page explains a saved model of any number of axes, and needs nothing else."""

import base64
import io
import json
import re
from dataclasses import asdict

import pytest
import torch

import torchsonic
from tests.lab.made_runs import make_run
from torchsonic.cli import main
from torchsonic.integrations.released.layers import OPTIONS
from torchsonic.lab.report.explain import load_subject, write_explanation
from torchsonic.lab.report.explain.page import draw_figures, make_page
from torchsonic.lab.runs.images.config import ImagesConfig
from torchsonic.lab.runs.volumes.config import VolumesConfig
from torchsonic.lab.training.checkpoint import Checkpoints
from torchsonic.models.model_folder import pretrained_folder
from torchsonic.viz.spectra import choose_evenly

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def make_model(num_axes, **options):
    torch.manual_seed(0)
    arguments = {"spatial_dims": num_axes, "width": 4, "num_modes": 4, "depth": 1, **options}
    return torchsonic.models.SonicNet(2, 3, **arguments)


def pictures(page):
    """The pictures inside a page, by the words that stand in for them."""
    from PIL import Image

    found = re.findall(r'<img alt="([^"]*)" src="data:image/(?:png|webp);base64,([^"]*)"', page)
    return {title: Image.open(io.BytesIO(base64.b64decode(data))) for title, data in found}


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_networks_of_all_dimensions_are_explained(num_axes, tmp_path, capsys):
    folder = make_model(num_axes, spacing=0.5).save_pretrained(tmp_path / "saved")
    out = tmp_path / "new" / "page.html"
    assert main(["explain", str(folder), "--out", str(out), "--unit", "mm"]) == 0
    assert f"written: {out}" in capsys.readouterr().out
    page = out.read_text()
    titles = {"Receptive field", "Spectral energy of the layers", "Directions of the modes"}
    layer = {"Modes of blocks.0.operator", "Mixed responses of blocks.0.operator"}
    assert set(pictures(page)) == titles | layer
    assert not re.search(r'(?:src|href)="(?!data:|#)', page), "the page needs another file"
    assert "mm" in page


def test_a_run_is_explained_with_its_data_and_its_history(tmp_path):
    run = make_run(tmp_path, with_model=True)
    model = torchsonic.from_pretrained(run / "model")
    for step in (0, 5, 10):
        with torch.no_grad():  # modes grow shorter, so that no two frames are equal
            for _, layer in torchsonic.nn.sonic_layers(model):
                layer.raw_damping += 0.5
        Checkpoints(run / "checkpoints").keep(step, model.state_dict())
    subject = load_subject(run)
    assert subject.images.shape[1:] == (3, 64, 64)
    assert subject.unit == "px"
    page = write_explanation(subject, tmp_path / "page.html").read_text()
    assert pictures(page)["Modes during training"].n_frames == 3
    assert "samples of SynthShape" in page
    assert load_subject(run / "model").run == run


def test_another_network_may_be_compared(tmp_path):
    run, rival = make_run(tmp_path, with_model=True), make_run(tmp_path, model="convnet", with_model=True)
    subject = load_subject(run, against=rival)
    assert type(subject.rival).__name__ == "SynthShapeNet"
    assert (subject.name, subject.rival_name) == ("sonicnet", "convnet")
    again = load_subject(run, against=run)
    assert (again.name, again.rival_name) == ("sonicnet", f"sonicnet in {run}")
    one_channel = torchsonic.models.SonicNet(1, 2, width=4, num_modes=4, depth=1).save_pretrained(tmp_path / "one")
    with pytest.raises(ValueError, match="takes 1 channels"):
        load_subject(run, against=one_channel)


@pytest.mark.parametrize("rival", ["resnet50", "vit_s16"])
def test_a_sonic_classifier_is_compared_with_any_other(rival, tmp_path):
    sonic = torchsonic.create_model("sonic_tiny", num_classes=3, widths=(8, 8), depths=(1, 1))
    options = {"width": 8} if rival == "resnet50" else {"depth": 1, "image_size": 64}
    other = torchsonic.create_model(rival, num_classes=3, **options).save_pretrained(tmp_path / "other")
    subject = load_subject(sonic.save_pretrained(tmp_path / "sonic"), against=other)
    if rival == "resnet50":
        assert next(draw_figures(subject))[1].name == "field"
    else:  # tokens have no places
        with pytest.raises(ValueError, match="needs an output with spatial axes"):
            next(draw_figures(subject))


@pytest.mark.parametrize("generation", ["rms", "dc", "free"])
def test_layers_without_a_network_are_explained_with_their_limits(generation, tmp_path):
    """Converted weights of the authors: the paper's variant, with the limits of their generation."""
    arguments = {"in_channels": 2, "out_channels": 3, "num_modes": 4, "spatial_dims": 2, "variant": "paper"}
    options = {**arguments, **OPTIONS[generation]}
    if generation == "free":
        options["limits"] = {**options["limits"], "band_order": 4}
    model = torchsonic.models.SonicLayers({"stem.sonic": options})
    subject = load_subject(model.save_pretrained(tmp_path / "layers"))
    page = write_explanation(subject, tmp_path / "page.html").read_text()
    assert "Receptive field" not in pictures(page)
    assert "Modes of layers.stem/sonic" in pictures(page)
    with pytest.raises(ValueError, match="layers without a network"):
        load_subject(subject.folder, against=subject.folder)
    with pytest.raises(ValueError, match="layers without a network"):
        load_subject(make_model(2).save_pretrained(tmp_path / "net"), against=subject.folder)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_models_of_other_dtypes_are_explained(dtype, tmp_path):
    subject = load_subject(make_model(1).to(dtype).save_pretrained(tmp_path / "saved"))
    assert next(draw_figures(subject))[1].name == "field"


def test_photographs_are_measured_in_pixels_and_volumes_in_mm(tmp_path):
    for num_axes, config, unit in ((2, ImagesConfig(), "px"), (3, VolumesConfig(), "mm")):
        run = tmp_path / f"run{num_axes}"
        make_model(num_axes).save_pretrained(run / "model")
        (run / "config.json").write_text(json.dumps(asdict(config), default=str))
        assert load_subject(run).unit == unit


def test_anisotropic_noise_covers_the_same_extent(tmp_path):
    subject = load_subject(make_model(3, spacing=(4.0, 1.0, 1.0)).save_pretrained(tmp_path))
    extents = [n * step for n, step in zip(subject.images.shape[2:], subject.spacing, strict=True)]
    assert max(extents) / min(extents) < 1.2
    assert subject.unit == "unit"


def test_of_many_layers_some_are_chosen_evenly(tmp_path):
    subject = load_subject(make_model(2, depth=7).save_pretrained(tmp_path))
    drawn = {layer for layer, _ in draw_figures(subject, most_layers=3) if layer}
    assert drawn == {f"blocks.{i}.operator" for i in (0, 3, 6)}
    assert choose_evenly(range(7), 9) == list(range(7))
    assert choose_evenly(range(7), 1) == [0]


def test_mistakes_end_in_one_line(tmp_path, capsys):
    conv = make_run(tmp_path, model="convnet", with_model=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    sonic = make_model(2).save_pretrained(tmp_path / "sonic")
    damaged = make_model(2).save_pretrained(tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"nothing")
    diverged = make_model(2)
    diverged.blocks[0].operator.raw_scale.data[1] = torch.nan
    diverged.save_pretrained(tmp_path / "diverged")
    other = make_run(tmp_path, with_model=True)
    Checkpoints(other / "checkpoints").keep(3, make_model(2).state_dict())
    for arguments, words in [
        ([str(conv)], "has no Sonic layer, so there are no modes to show"),
        ([str(empty)], "config.json is missing in"),
        (["no/such/folder"], "there is no folder 'no/such/folder'"),
        ([str(damaged)], "not a valid safetensors file"),
        ([str(tmp_path / "diverged")], "layer blocks.0.operator has modes that are not finite (scale, gain)"),
        ([str(other), "--out", str(tmp_path / "other.html")], "step 3 belong to another architecture"),
        ([str(sonic), "--layers", "0"], "--layers must be at least 1, got 0"),
        ([str(sonic), "--out", str(tmp_path / "sonic")], "is a folder; name an HTML file"),
        ([__file__], "test_explain.py is a file; pass the folder"),
    ]:
        assert main(["explain", *arguments]) == 1
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
    assert not (tmp_path / "explain.html").exists()


def test_the_page_on_a_packaged_network_names_it():
    page = make_page(load_subject(pretrained_folder("shapes_orbit")), [])
    assert page.title == "What shapes_orbit has learned"
    assert page.about.startswith("SynthShapeNet, packaged as shapes_orbit: ")
