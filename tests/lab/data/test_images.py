"""Files become bytes of three colours, views show what they say, and bad files have names."""

import errno
import math
import pickle
import shutil

import numpy as np
import pytest

pytest.importorskip("PIL", reason="Pillow is not installed")
from PIL import Image, ImageEnhance

from tests.lab.data.pictures import CLASSES, make_picture, write_pictures
from torchsonic.lab.data.images.changes import Box, ImageChanges, View, centre_box, colour_map, crop_box, view_image
from torchsonic.lab.data.images.files import ImageError, check_header, read_image
from torchsonic.lab.data.images.folder import find_files, find_images, leave_out_bad
from torchsonic.lab.data.images.store import ImageStore

COLOURS = make_picture(0, 0)


def save(path, picture, **options):
    picture.save(path, **options)
    return path


def test_every_kind_of_file_becomes_its_colours(tmp_path):
    picture = Image.fromarray(COLOURS)
    grey = np.repeat(np.asarray(picture.convert("L"))[..., None], 3, axis=2)
    exact = {
        "rgb.png": (picture, COLOURS),
        "grey.png": (picture.convert("L"), grey),
        "palette.png": (picture.convert("P"), np.asarray(picture.convert("P").convert("RGB"))),
        "cmyk.tif": (picture.convert("CMYK"), np.asarray(picture.convert("CMYK").convert("RGB"))),
        "bits.png": (picture.convert("1"), np.asarray(picture.convert("1").convert("RGB"))),
    }
    for name, (saved, expected) in exact.items():
        np.testing.assert_array_equal(read_image(save(tmp_path / name, saved)), expected, err_msg=name)
    deep = np.asarray(picture.convert("L")).astype(np.uint16) * 257
    np.testing.assert_array_equal(read_image(save(tmp_path / "deep.png", Image.fromarray(deep))), grey)
    dark = read_image(save(tmp_path / "dark.png", Image.fromarray(np.full((8, 8), 200, np.uint16))))
    assert (dark == 0).all(), "200 of 65,535 is black"
    (tmp_path / "deep.pgm").write_bytes(b"P5 8 8 65535\n" + deep[:8, :8].astype(">u2").tobytes())
    np.testing.assert_array_equal(read_image(tmp_path / "deep.pgm"), grey[:8, :8])
    cmyk = read_image(save(tmp_path / "cmyk.jpg", picture.convert("CMYK"), quality=95)).astype(int)
    assert np.abs(cmyk - COLOURS).mean() < 25  # lossy twice, but neither inverted nor turned


def test_transparent_pixels_show_white(tmp_path):
    layer = np.dstack([COLOURS, np.full(COLOURS.shape[:2], 255, np.uint8)])
    layer[:10, :, 3] = 0
    read = read_image(save(tmp_path / "clear.png", Image.fromarray(layer)))
    assert (read[:10] == 255).all()
    np.testing.assert_array_equal(read[10:], COLOURS[10:])
    flat = np.full((8, 8, 3), (10, 20, 30), np.uint8)
    flat[0] = (40, 50, 60)
    read = read_image(save(tmp_path / "one.png", Image.fromarray(flat), transparency=(40, 50, 60)))
    assert (read[0] == 255).all(), "one colour of many can be clear"
    np.testing.assert_array_equal(read[1:], flat[1:])
    palette = Image.fromarray(COLOURS).convert("P")
    read = read_image(save(tmp_path / "clear.gif", palette, transparency=int(np.asarray(palette)[0, 0])))
    assert (read[0, 0] == 255).all()


def test_what_the_camera_noted_is_carried_out(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees to the right
    path = save(tmp_path / "turned.png", Image.fromarray(COLOURS), exif=exif)
    np.testing.assert_array_equal(read_image(path), np.rot90(COLOURS, -1))


def test_a_large_file_is_reduced_to_the_side_asked_for(tmp_path):
    smooth = Image.fromarray(COLOURS).resize((640, 480), Image.Resampling.BICUBIC)
    path = save(tmp_path / "large.jpg", smooth, quality=95)
    read = read_image(path, side=100)
    assert read.shape == (100, 133, 3)
    expected = np.asarray(smooth.resize((133, 100), Image.Resampling.BICUBIC)).astype(int)
    assert np.abs(read - expected).mean() < 2
    assert read_image(path, side=1000).shape == (480, 640, 3)


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "floats", "missing"])
def test_a_bad_file_is_named(tmp_path, damage):
    path = tmp_path / "bad.png"
    if damage == "floats":
        path = save(tmp_path / "bad.tif", Image.fromarray(COLOURS[..., 0].astype(np.float32)))
    elif damage != "missing":
        save(path, Image.fromarray(COLOURS))
        whole = path.read_bytes()
        path.write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "text": b"no picture"}[damage])
    with pytest.raises(ImageError, match=path.name) as caught:
        read_image(path)
    again = pickle.loads(pickle.dumps(caught.value))  # from a process that prepares data
    assert str(again) == str(caught.value)
    assert again.path == path


def test_bad_images_are_left_out_with_their_names_or_refused(tmp_path):
    root = write_pictures(tmp_path)
    bad = root / "train" / "green" / "002.png"
    bad.write_bytes(bad.read_bytes()[:200])
    images = find_images(root / "train")
    assert images.classes == CLASSES
    with pytest.warns(UserWarning, match=r"left out: .*green/002\.png: cannot be read"):
        good, left_out = leave_out_bad(images)
    assert list(left_out) == [str(bad)]
    assert len(good) == len(images) - 1
    assert bad not in good.files
    assert [good.labels.count(k) for k in range(3)] == [6, 5, 6]
    with pytest.raises(ImageError, match=r"green/002\.png"):
        leave_out_bad(images, strict=True)
    assert leave_out_bad(images, check="header")[1] == {}, "its beginning is good"


def test_a_class_without_a_good_image_is_refused(tmp_path):
    root = write_pictures(tmp_path, train=1)
    (root / "train" / "red" / "000.png").write_bytes(b"no picture")
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(ValueError, match="every image of class red is unreadable"),
    ):
        leave_out_bad(find_images(root / "train"))


def test_a_class_without_a_good_image_is_explained_by_one_of_its_own(tmp_path):
    root = write_pictures(tmp_path, train=2)
    for bad in ("blue/000.png", "red/000.png", "red/001.png"):
        (root / "train" / bad).write_bytes(b"no picture")
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(ValueError, match=r"class red is unreadable; the first: .*red/000\.png"),
    ):
        leave_out_bad(find_images(root / "train"))


def test_folders_that_are_not_there_are_named(tmp_path):
    root = write_pictures(tmp_path / "data")
    with pytest.raises(ValueError, match=r"there is no folder .*valid; images belong in train/CLASS/ .* train, val"):
        find_images(root / "valid")
    (root / "val" / "violet").mkdir()
    with pytest.raises(ValueError, match="violet is a class that training does not have; it has blue, green, red"):
        find_images(root / "val", CLASSES)
    with pytest.raises(ValueError, match="violet has no image"):
        find_images(root / "val")
    with pytest.raises(ValueError, match="blue contains no folder"):
        find_images(root / "val" / "blue")


def test_classes_that_are_not_tested_are_named(tmp_path):
    root = write_pictures(tmp_path)
    shutil.rmtree(root / "val" / "green")
    with pytest.warns(UserWarning, match="val has no folder for 1 of 3 classes: green"):
        images = find_images(root / "val", CLASSES)
    assert set(images.labels) == {0, 2}
    assert images.classes == CLASSES


def test_what_is_kept_changes_nothing(tmp_path):
    images = find_images(write_pictures(tmp_path) / "train")
    none, some, all_ = (ImageStore(side=32, limit=limit) for limit in (0, 3 * 32 * 38 * 3, 1e9))
    for store in (none, some, all_):
        for path in images.files:
            store.keep(path)
    assert len(none) == 0 < len(some) < len(all_) == len(images)
    for path in images.files:
        np.testing.assert_array_equal(none[path], all_[path])
        np.testing.assert_array_equal(some[path], all_[path])


def test_a_file_that_broke_since_is_replaced_by_the_next(tmp_path):
    images = find_images(write_pictures(tmp_path) / "train")
    store = ImageStore(limit=0)
    images.files[4].write_bytes(b"broken")
    with pytest.warns(UserWarning, match="skipped"):
        place, image = store.first_good(images.files, 4)
    assert place == 5
    np.testing.assert_array_equal(image, store[images.files[5]])


def test_a_strict_store_replaces_nothing(tmp_path):
    images = find_images(write_pictures(tmp_path) / "train")
    images.files[4].write_bytes(b"broken")
    with pytest.raises(ImageError, match=images.files[4].name):
        ImageStore(limit=0, strict=True).first_good(images.files, 4)


def test_a_store_is_sent_without_what_it_keeps(tmp_path):
    """Processes that are not forked get it by pickling, which knows no locks."""
    images = find_images(write_pictures(tmp_path) / "train")
    store = ImageStore(side=32, limit=1e9, strict=True)
    for path in images.files:
        store.keep(path)
    sent = pickle.loads(pickle.dumps(store))
    assert (len(sent), sent.num_bytes, sent.side, sent.limit, sent.strict) == (0, 0, 32, 1e9, True)
    np.testing.assert_array_equal(sent[images.files[0]], store[images.files[0]])
    sent.keep(images.files[0])
    assert len(sent) == 1


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EMFILE, "too many open files")])
@pytest.mark.parametrize("read", [read_image, check_header])
def test_trouble_of_the_machine_is_not_blamed_on_an_image(tmp_path, monkeypatch, error, read):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(type(error)) as caught:
        read(tmp_path / "a.png")
    assert not isinstance(caught.value, ImageError)


def test_links_are_followed_but_not_in_circles(tmp_path):
    root = write_pictures(tmp_path / "data")
    folder = root / "train" / "red"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    save(elsewhere / "one.png", Image.fromarray(COLOURS))
    expected = [*find_files(folder), folder / "linked" / "one.png"]
    (folder / "linked").symlink_to(elsewhere)
    (folder / "up").symlink_to(root)
    (elsewhere / "round").symlink_to(folder)
    found = find_files(folder)
    assert sorted(found) == sorted(expected), "images of other classes would get this one's label"


def test_crops_have_the_area_and_shape_asked_for():
    generator = np.random.default_rng(0)
    for _ in range(300):
        box = crop_box(100, 60, (0.2, 0.5), (0.75, 4 / 3), generator)
        width, height = box.right - box.left, box.bottom - box.top
        assert min(box.left, box.top) >= 0
        assert box.right <= 100 + 1e-9
        assert box.bottom <= 60 + 1e-9
        assert 0.2 - 1e-9 <= width * height / 6000 <= 0.5 + 1e-9
        assert 0.75 - 1e-9 <= width / height <= 4 / 3 + 1e-9
    assert crop_box(300, 10, (1.0, 1.0), (1.0, 1.0), generator) == Box(145, 0, 155, 10), "none fits: the middle"


def test_all_sizes_show_the_same_square():
    yy, xx = np.mgrid[0:96, 0:160]
    smooth = np.stack([128 + 90 * np.sin(xx / 15), 128 + 90 * np.cos(yy / 11), 100 + xx / 2], axis=2).astype(np.uint8)
    view = View(centre_box(160, 96, 0.875))
    large, small = (view_image(smooth, size, view).astype(float) for size in (84, 28))
    means = large.reshape(3, 28, 3, 28, 3).mean((2, 4))
    assert np.abs(small - means).max() < 6
    assert np.abs(small - means).mean() < 1
    low = view_image(smooth, (28, 84), view).astype(float)
    assert np.abs(low - large.reshape(3, 28, 3, 84).mean(2)).max() < 6, "rows first"


def test_a_view_mirrors():
    plain = view_image(COLOURS, 24, View(Box(0, 0, 40, 40)))
    flipped = view_image(COLOURS, 24, View(Box(0, 0, 40, 40), flip=True))
    np.testing.assert_array_equal(flipped, plain[..., ::-1])


@pytest.mark.parametrize(
    ("change", "enhance"),
    [({"brightness": 0.7}, ImageEnhance.Brightness), ({"saturation": 0.4}, ImageEnhance.Color)],
)
def test_colours_change_as_pillow_changes_them(change, enhance):
    box = Box(0, 0, 48, 40)
    plain = Image.fromarray(view_image(COLOURS, 32, View(box)).transpose(1, 2, 0))
    expected = np.asarray(enhance(plain).enhance(next(iter(change.values())))).transpose(2, 0, 1).astype(int)
    assert np.abs(view_image(COLOURS, 32, View(box, **change)) - expected).max() <= 2


def test_hues_turn_about_grey_and_contrast_keeps_the_mean():
    grey = np.array([0.5, 0.5, 0.5, 1.0])
    turned = colour_map(View(Box(0, 0, 1, 1), hue=1 / 3), 0.0)
    assert turned is not None
    np.testing.assert_allclose(turned @ grey, 0.5, atol=1e-3)
    red = turned @ np.array([1.0, 0.0, 0.0, 1.0])
    assert red[0] < max(red[1:])
    flat = colour_map(View(Box(0, 0, 1, 1), contrast=0.0), 77.0)
    assert flat is not None
    np.testing.assert_allclose(flat @ np.array([10.0, 20.0, 30.0, 1.0]), 77.0)


@pytest.mark.parametrize(
    "bad",
    [
        *({"crop": (0.0, 1.0)}, {"ratio": (2.0, 1.0)}, {"flip": 1.5}, {"hue": 0.6}, {"mixup": -1.0}, {"contrast": 2.0}),
        *({"ratio": (0.5, math.inf)}, {"mixup": math.nan}, {"cutmix": math.inf}),
    ],
)
def test_bad_settings_name_themselves(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        ImageChanges(**bad)


def test_postscript_under_the_name_of_a_picture_is_not_opened(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n")
    with Image.open(path) as opened:  # Pillow would
        assert opened.format == "EPS"
    for read in (check_header, read_image):
        with pytest.raises(ImageError, match="picture"):
            read(path)
