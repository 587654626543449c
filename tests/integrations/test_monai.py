"""SonicNet in MONAI hears the spacing of every image, wherever the image comes from."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import torchsonic

monai = pytest.importorskip("monai", reason="MONAI is not installed")
from monai.data import DataLoader, Dataset, MetaTensor, decollate_batch, list_data_collate  # noqa: E402
from monai.inferers import SlidingWindowInferer as PlainInferer  # noqa: E402
from monai.transforms import Orientationd, RandZoomd  # noqa: E402

from tests import programs  # noqa: E402
from tests.integrations.absent import import_without  # noqa: E402
from torchsonic.integrations.monai import (  # noqa: E402
    OrbitNet,
    SlidingWindowInferer,
    SonicNet,
    SonicUNet,
    orientation_of,
    spacing_of,
)
from torchsonic.testing import relative_error  # noqa: E402
from torchsonic.testing.orientation import all_storages  # noqa: E402

BUNDLE = Path(__file__).parents[2] / "recipes" / "monai_bundle"
SIZE = (10, 12, 6)
FIRST, SECOND = (0.8, 1.1, 5.0), (1.4, 1.2, 9.0)


def turn(angle):
    turned = torch.eye(3, dtype=torch.float64)
    turned[0, 0] = turned[1, 1] = np.cos(angle)
    turned[0, 1], turned[1, 0] = -np.sin(angle), np.sin(angle)
    return turned


def affine(spacing, angle=0.0):
    made = torch.eye(4, dtype=torch.float64)
    made[:3, :3] = turn(angle) @ torch.diag(torch.tensor(spacing, dtype=torch.float64))
    made[:3, 3] = torch.tensor([-20.0, 7.0, 3.0])
    return made


def image(spacing, angle=0.0, size=SIZE):
    return MetaTensor(torch.randn(1, *size), affine=affine(spacing, angle))


def make(**options):
    torch.manual_seed(1)
    usual = {"width": 8, "depth": 2, "spacing": (1.0, 1.0, 6.0)}
    return SonicNet(3, 1, 3, **{**usual, **options}).eval()


@pytest.fixture
def batch():
    samples = [{"image": image(FIRST), "name": "a"}, {"image": image(SECOND, angle=0.4), "name": "b"}]
    return list_data_collate(samples)["image"]


def test_each_sample_of_a_batch_has_its_own_spacing(batch):
    expected = torch.tensor([FIRST, SECOND], dtype=torch.float64)
    torch.testing.assert_close(spacing_of(batch), expected)
    model, plain = make(), batch.as_tensor()
    with torch.no_grad():
        heard, told = model(batch), model(plain, expected, orientation=orientation_of(batch))
        untold = model(batch, spacing=(1.0, 1.0, 6.0))
    torch.testing.assert_close(heard.as_tensor(), told)
    assert not torch.allclose(heard.as_tensor(), untold.as_tensor(), rtol=1e-2)


@pytest.mark.parametrize("loader", [DataLoader, torch.utils.data.DataLoader])
def test_loaders_pass_the_spacing_on(loader):
    data = [{"image": image(FIRST)}, {"image": image(SECOND)}, {"image": image(FIRST)}]
    first, last = list(loader(Dataset(data), batch_size=2))
    torch.testing.assert_close(spacing_of(first["image"]), torch.tensor([FIRST, SECOND], dtype=torch.float64))
    torch.testing.assert_close(spacing_of(last["image"]), torch.tensor([FIRST], dtype=torch.float64))


def test_transforms_move_the_spacing_with_the_axes():
    turned = Orientationd("image", axcodes="SRA", labels=None)({"image": image(FIRST)})["image"]
    assert tuple(turned.shape[1:]) == (SIZE[2], SIZE[0], SIZE[1])
    expected = torch.tensor([[FIRST[2], FIRST[0], FIRST[1]]], dtype=torch.float64)
    torch.testing.assert_close(spacing_of(turned[None]), expected)
    zoomed = RandZoomd("image", prob=1.0, min_zoom=2.0, max_zoom=2.0, keep_size=False)({"image": image(FIRST)})["image"]
    torch.testing.assert_close(
        spacing_of(zoomed[None]), torch.tensor([FIRST], dtype=torch.float64) / 2, rtol=0.1, atol=0
    )


def test_plain_tensors_and_use_meta_off_assume_the_reference(batch):
    model, deaf = make(), make(use_meta=False)
    with torch.no_grad():
        reference = model(batch.as_tensor())
        assert type(reference) is torch.Tensor
        torch.testing.assert_close(deaf(batch).as_tensor(), reference)
        told = deaf(batch, spacing=(2.0, 2.0, 5.0)).as_tensor()
    assert not torch.allclose(told, reference, rtol=1e-2)


def test_logits_keep_what_the_image_knows(batch):
    with torch.no_grad():
        logits = make()(batch)
    assert isinstance(logits, MetaTensor)
    for one, spacing in zip(decollate_batch(logits), (FIRST, SECOND), strict=True):
        assert one.pixdim.tolist() == pytest.approx(spacing)
        torch.testing.assert_close(one.affine[:3, 3], torch.tensor([-20.0, 7.0, 3.0], dtype=torch.float64))


def test_gradients_are_those_of_plain_tensors(batch):
    gradients = []
    told = {"spacing": spacing_of(batch), "orientation": orientation_of(batch)}
    for x, said in ((batch, {}), (batch.as_tensor(), told)):
        model, leaf = make(), x.clone().requires_grad_()
        model(leaf, **said).square().sum().backward()
        gradients.append([torch.as_tensor(leaf.grad).as_subclass(torch.Tensor), *[p.grad for p in model.parameters()]])
    for ours, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, plain)


def test_images_of_two_axes_use_the_first_two_of_the_affine():
    model = SonicNet(2, 1, 2, width=8, depth=1).eval()
    x = MetaTensor(torch.randn(1, 1, 12, 14), affine=affine(FIRST))
    with torch.no_grad():
        torch.testing.assert_close(model(x).as_tensor(), model(x.as_tensor(), spacing=FIRST[:2]))


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (torch.diag(torch.tensor([1.0, 0.0, 1.0, 1.0])), "gives the spacing"),
        (torch.diag(torch.tensor([1.0, float("nan"), 1.0, 1.0])), "gives the spacing"),
        (torch.eye(3), "does not fit 2 samples of 3 spatial axes"),
        (torch.eye(4).expand(3, 4, 4), "does not fit 2 samples of 3 spatial axes"),
    ],
)
def test_affines_that_give_no_spacing_are_named(matrix, words):
    x = MetaTensor(torch.randn(2, 1, *SIZE))
    x.meta["affine"] = matrix
    with pytest.raises(ValueError, match=words):
        make()(x)


@pytest.mark.parametrize("sw_batch_size", [1, 3, 5])
@pytest.mark.parametrize("options", [{}, {"buffer_steps": 1, "buffer_dim": 0}, {"cache_roi_weight_map": True}])
def test_windows_keep_the_spacing_of_their_image(batch, sw_batch_size, options):
    model = make()
    shared = {"roi_size": (8, 8, 6), "overlap": 0.5, "mode": "gaussian"}
    with torch.no_grad():
        stitched = SlidingWindowInferer(sw_batch_size=sw_batch_size, **shared, **options)(batch, model)
        alone = [
            PlainInferer(**shared)(batch.as_tensor()[place][None], model, spacing=spacing, orientation=turn(angle))
            for place, (spacing, angle) in enumerate(((FIRST, 0.0), (SECOND, 0.4)))
        ]
    assert isinstance(stitched, MetaTensor)
    torch.testing.assert_close(spacing_of(stitched), spacing_of(batch))
    torch.testing.assert_close(stitched.as_tensor(), torch.cat(alone))


def test_windows_of_plain_tensors_are_told_the_spacing_of_the_call(batch):
    model, steps = make(use_orientation=False), spacing_of(batch)
    inferer = SlidingWindowInferer(roi_size=(8, 8, 6), sw_batch_size=3, mode="gaussian")
    with torch.no_grad():
        told = inferer(batch.as_tensor(), model, spacing=steps)
        torch.testing.assert_close(told, inferer(batch, model).as_tensor())
        torch.testing.assert_close(told[:1], inferer(batch.as_tensor()[:1], model, spacing=FIRST))
    with pytest.raises(ValueError, match="3 rows for a batch of 2 samples"):
        inferer(batch.as_tensor(), model, spacing=torch.ones(3, 3))


def test_networks_that_know_no_spacing_give_what_monai_gives(batch):
    network = torch.nn.Conv3d(1, 2, 3, padding=1)
    shared = {"roi_size": (8, 8, 6), "sw_batch_size": 2}
    with torch.no_grad():
        ours = SlidingWindowInferer(**shared)(batch, network)
        torch.testing.assert_close(ours.as_tensor(), PlainInferer(**shared)(batch, network).as_tensor())


def test_coordinates_of_windows_reach_a_network_that_wants_them(batch):
    seen = []

    def network(windows, places):
        seen.extend(place[0].start for place in places)
        assert spacing_of(windows).shape == (len(places), 3)
        return windows

    SlidingWindowInferer(roi_size=(8, 8, 6), sw_batch_size=3, with_coord=True)(batch, network)
    assert set(seen) == {0, 1}


def test_monais_own_windows_are_noticed(batch):
    model, inferer = make(), PlainInferer(roi_size=(8, 8, 6), sw_batch_size=2)
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model(batch)
        inferer(batch, model)
    said = [str(warning.message) for warning in caught if "plain tensor" in str(warning.message)]
    assert "orientation and spacing" in said[0]
    assert len(said) == 1
    assert "torchsonic.integrations.monai.SlidingWindowInferer" in said[0]


def warnings_of(call, *arguments, **options):
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*arguments, **options)
    return [text for warning in caught if "network" in (text := str(warning.message)) or "axes" in text]


def test_a_lost_orientation_is_noticed_once_if_there_was_one(batch):
    model = make()
    straight, oblique = batch[:1], batch[1:]
    assert not warnings_of(model, straight)
    assert not warnings_of(model, straight.as_tensor(), spacing=FIRST)
    assert not warnings_of(model, oblique)
    (said,) = warnings_of(model, straight.as_tensor(), spacing=FIRST)
    assert "got its orientation from MetaTensors" in said
    assert "pass orientation=" in said
    assert not warnings_of(model, straight.as_tensor(), spacing=FIRST)


def test_a_network_that_ignores_the_orientation_notices_other_axes(batch):
    model, first = make(use_orientation=False), batch[:1]
    other = MetaTensor(first.as_tensor(), affine=first.affine[0] @ torch.diag(torch.tensor([-1.0, -1, 1, 1])).double())
    assert not warnings_of(model, first)
    assert not warnings_of(model.train(), other), "flips are augmentation"
    (said,) = warnings_of(model.eval(), other)
    assert "images have the axes LPS, RAS, which use_orientation=False ignores" in said
    assert not warnings_of(model, other)


def test_saved_models_are_torchsonics(tmp_path, batch):
    model = make(norm="channel")
    model.save_pretrained(tmp_path)
    loaded, plain = SonicNet.from_pretrained(tmp_path), torchsonic.from_pretrained(tmp_path)
    assert type(plain) is torchsonic.models.SonicNet
    again = make(norm="channel")
    again.load_state_dict(model.state_dict())
    with torch.no_grad():
        expected = model(batch)
        torch.testing.assert_close(loaded(batch), expected)
        torch.testing.assert_close(again(batch), expected)
        torch.testing.assert_close(plain(batch.as_tensor(), affine=batch.affine), expected.as_tensor())
    assert SonicNet.from_pretrained(tmp_path, use_meta=False).use_meta is False


def test_the_network_for_volumes_hears_the_spacing_too(tmp_path, batch):
    model = SonicUNet(3, 1, 2, widths=(8, 8), num_modes=(4, 4), spacing=(1.0, 1.0, 6.0)).eval()
    loaded = SonicUNet.from_pretrained(model.save_pretrained(tmp_path))
    with torch.no_grad():
        expected = model.network(batch.as_tensor(), spacing_of(batch), orientation=orientation_of(batch))
        torch.testing.assert_close(model(batch).as_tensor(), expected)
        torch.testing.assert_close(loaded(batch).as_tensor(), expected)


def test_options_that_do_not_exist_are_refused():
    with pytest.raises(TypeError, match="channels"):
        SonicNet(3, 1, 2, channels=(8, 16))


def write_case(folder, name, spacing, size, seed):
    import nibabel

    generator = np.random.default_rng(seed)
    label = np.zeros(size, dtype=np.uint8)
    label[4:12, 5:13, 1:4] = 1
    label[13:17, 5:13, 1:4] = 2
    picture = label + 0.2 * generator.standard_normal(size)
    for kind, array in (("images", picture.astype(np.float32)), ("labels", label)):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        # Stored from left to right and from front to back, so that reading it turns axes round.
        flipped = np.diag([-spacing[0], -spacing[1], spacing[2], 1.0])
        nibabel.save(nibabel.Nifti1Image(array, flipped), folder / kind / f"{name}.nii.gz")


def run_bundle(log, *arguments):
    assert programs.run(["-m", "monai.bundle", "run", *arguments], log=log) == 0, log.read_text()[-3000:]


def test_the_bundle_trains_and_predicts(tmp_path):
    pytest.importorskip("ignite", reason="pytorch-ignite is not installed")
    pytest.importorskip("fire", reason="fire is not installed")
    import nibabel

    data = tmp_path / "data"
    for place, spacing in enumerate([(1.5, 1.5, 8.0), (0.9, 1.2, 5.0), (1.2, 1.2, 10.0)]):
        write_case(data, f"case{place}", spacing, (20 + 2 * place, 18, 5 + place), seed=place)
    configs, shared = BUNDLE / "configs", ["--bundle_root", str(tmp_path), "--patch", "[16, 16, 4]"]
    shared += ["--meta_file", str(configs / "metadata.json"), "--out_channels", "3"]
    train = ["--config_file", str(configs / "train.json"), "--data_dir", str(data), "--epochs", "1"]
    run_bundle(tmp_path / "log", *train, "--val_interval", "1", "--folds", "3", *shared)
    assert {path.name for path in (tmp_path / "models").iterdir()} == {"model.pt", "model_final.pt"}
    config = ["--config_file", str(configs / "inference.json"), "--data_dir", str(data / "images")]
    run_bundle(tmp_path / "log", *config, *shared)
    for path in sorted((data / "images").iterdir()):
        source, written = nibabel.load(path), nibabel.load(tmp_path / "predictions" / path.name)
        assert written.shape == source.shape
        np.testing.assert_allclose(written.affine, source.affine, atol=1e-5)
        assert set(np.unique(np.asarray(written.dataobj))) <= {0, 1, 2}


def test_both_bundle_configurations_describe_one_network():
    train, inference = (json.loads((BUNDLE / "configs" / f"{n}.json").read_text()) for n in ("train", "inference"))
    for key in ("network_def", "in_channels", "out_channels", "reference_spacing", "patch"):
        assert train[key] == inference[key], key
    network = SonicUNet(
        **{
            name: value
            for name, value in train["network_def"].items()
            if not str(value).startswith("@") and name != "_target_"
        },
        in_channels=train["in_channels"],
        out_channels=train["out_channels"],
    )
    data = json.loads((BUNDLE / "configs" / "metadata.json").read_text())["network_data_format"]
    with torch.no_grad():
        logits = network(torch.randn(1, data["inputs"]["image"]["num_channels"], 8, 8, 4))
    assert logits.shape[1] == data["outputs"]["pred"]["num_channels"] == len(data["outputs"]["pred"]["channel_def"])


def test_without_monai_the_error_names_the_extra(monkeypatch):
    said = import_without("monai", "torchsonic.integrations.monai", monkeypatch)
    assert 'pip install "torchsonic[medical]"' in said


def in_storage(image, storage):
    """An image in another order of axes, with the affine that says so."""
    affine = image.affine.clone()
    affine[:3, :3] = affine[:3, :3] @ storage.matrix()
    return MetaTensor(storage.apply(image.as_tensor()), affine=affine)


@pytest.mark.parametrize("kind", [SonicNet, SonicUNet, OrbitNet])
def test_images_in_any_order_of_axes_are_one(kind):
    sizes = {"widths": (4, 4), "num_modes": (4, 4)} if kind is SonicUNet else {"width": 2, "depth": 2, "num_modes": 2}
    model = kind(3, 1, 2, spacing=(1.0, 1.0, 3.0), **sizes, **({"group": "C4"} if kind is OrbitNet else {})).eval()
    given = MetaTensor(torch.randn(1, 1, 12, 10, 5), affine=torch.diag(torch.tensor([0.8, 0.9, 3.0, 1.0])).double())
    inferer = SlidingWindowInferer((8, 8, 4), overlap=0.5, mode="gaussian")
    with torch.no_grad():
        whole, windows = model(given).as_tensor(), inferer(given, model).as_tensor()
        for storage in list(all_storages(3))[::7]:
            stored = in_storage(given, storage)
            found = model(stored)
            assert relative_error(found.as_tensor(), storage.apply(whole)) < 1e-4
            torch.testing.assert_close(found.affine, stored.affine)
            found = inferer(stored, model)
            assert relative_error(found.as_tensor(), storage.apply(windows)) < 1e-4
            torch.testing.assert_close(found.affine, stored.affine)
        model.use_orientation = False
        assert relative_error(model(stored).as_tensor(), storage.apply(whole)) > 1e-3


@pytest.fixture
def mixed():
    """Two images of one size whose axes lie differently, so that their sizes in the axes of training differ."""
    turned = affine(SECOND, 0.4)
    turned[:3, :3] = turned[:3, :3] @ torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]]).double()
    given = MetaTensor(torch.randn(2, 1, *SIZE), meta={"affine": torch.stack([affine(FIRST), turned])})
    given.is_batch = True
    return given


def apart(call, given):
    """Results for the images of a batch one by one."""
    images = [MetaTensor(given.as_tensor()[i][None], affine=given.affine[i]) for i in range(len(given))]
    return torch.cat([call(image).as_tensor() for image in images])


def test_a_batch_of_several_axis_orders_gives_what_its_images_give(mixed):
    model, inferer = make(), SlidingWindowInferer((8, 6, 4), sw_batch_size=3, overlap=0.5, mode="gaussian")
    with torch.no_grad():
        for call in (model, lambda x: inferer(x, model)):
            found = call(mixed)
            assert relative_error(found.as_tensor(), apart(call, mixed)) < 1e-5
            torch.testing.assert_close(found.affine, mixed.affine)
            torch.testing.assert_close(call(mixed[:1]).as_tensor(), found.as_tensor()[:1])


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_plain_tensor_with_its_sampling_gives_what_a_metatensor_gives(mixed, wrapped):
    model, inferer = make(), SlidingWindowInferer((8, 6, 4), sw_batch_size=3, overlap=0.5, mode="gaussian")
    plain, told = mixed.as_tensor(), {"spacing": spacing_of(mixed), "orientation": orientation_of(mixed)}
    network = model if wrapped else model.network
    with torch.no_grad():
        whole, windows = model(mixed).as_tensor(), inferer(mixed, model).as_tensor()
        for said in (told, {"affine": mixed.affine}):
            assert relative_error(network(plain, **said), whole) < 1e-5
            assert relative_error(inferer(plain, network, **said), windows) < 1e-5
        first = {"spacing": FIRST, "orientation": torch.eye(3)}
        assert relative_error(inferer(plain[:1], network, **first), windows[:1]) < 1e-5
    with pytest.raises(ValueError, match="either affine or the other two"):
        model(plain, spacing=FIRST, affine=mixed.affine)


def test_an_empty_batch_stays_empty_and_has_no_windows(mixed):
    model, empty = make(), MetaTensor(torch.zeros(0, 1, *SIZE), affine=affine(FIRST))
    assert model(empty).shape == (0, 3, *SIZE)
    with pytest.raises(ValueError, match="empty batch, which has no windows"):
        SlidingWindowInferer((8, 8, 4))(empty, model)


def test_a_sheared_image_is_refused_and_a_slice_has_no_orientation():
    affine = torch.eye(4, dtype=torch.float64)
    affine[0, 1] = 0.3
    with pytest.raises(ValueError, match=r"the affine of the MetaTensor is sheared.*use_orientation=False"):
        SonicNet(3, 1, 2, width=2, depth=1)(MetaTensor(torch.randn(1, 1, 6, 6, 4), affine=affine))
    upright = torch.eye(4, dtype=torch.float64)[:, [0, 2, 1, 3]]  # its rows run upwards
    assert orientation_of(MetaTensor(torch.randn(1, 1, 6, 6), affine=upright), 2) is None
    assert orientation_of(MetaTensor(torch.randn(1, 1, 6, 6), affine=-torch.eye(4)), 2).shape == (1, 2, 2)


@pytest.mark.parametrize("name", ["sonicunet3d", "sonicnet3d.light", "orbitnet3d"])
def test_a_network_that_would_ignore_the_affine_refuses_a_metatensor(name):
    model = torchsonic.create_model(name, in_channels=1, num_classes=2).eval()
    x = image(FIRST)[None]
    with (
        torch.no_grad(),
        pytest.raises(TypeError, match="the input is a MetaTensor, whose affine would be ignored; use"),
    ):
        model(x)
    with torch.no_grad():
        assert model(x.as_tensor(), affine=x.affine).shape == (1, 2, *SIZE)


def test_the_affine_of_an_image_is_refused_if_an_orientation_was_told_before():
    model, x = torchsonic.set_orientation(make(), turn(0.4)), image(FIRST)[None]
    with pytest.raises(ValueError, match=r"was told its orientation .* here the affine of a MetaTensor \(x.as_tensor"):
        model(x)
    with pytest.raises(ValueError, match=r"was told its orientation .* here affine="):
        model(x.as_tensor(), affine=x.affine)
    deaf = torchsonic.set_orientation(make(use_meta=False), turn(0.4))
    with torch.no_grad():
        torch.testing.assert_close(deaf(x).as_tensor(), model(x.as_tensor()))
