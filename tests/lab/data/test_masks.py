"""Pictures and masks from files; every bad file is named."""

import numpy as np
import pytest

pytest.importorskip("PIL", reason="Pillow is not installed")
pytest.importorskip("scipy", reason="SciPy is not installed")

from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from tests.lab.data.discs import draw_discs, write_discs
from torchsonic.lab.data.instances import outline, separate
from torchsonic.lab.data.masks import find_pairs, find_pictures, read_mask, read_pair, read_sizes, write_mask
from torchsonic.lab.data.volumes import Case, CaseError
from torchsonic.lab.data.volumes.survey import survey


def save_tiff(path, *, per_unit=None, unit=None, text=None, values=None, **options):
    tags = ImageFileDirectory_v2()
    if per_unit is not None:
        tags[282], tags[283] = float(per_unit[1]), float(per_unit[0])
    if unit is not None:
        tags[296] = unit
    if text is not None:
        tags[270] = text
    picture = Image.fromarray(np.zeros((4, 6), np.uint8) if values is None else values)
    picture.save(path, tiffinfo=tags, **options)
    return Case(path.stem, (path,), None)


def spoil_cut_short(root):
    path = root / "images" / "scene1.png"
    path.write_bytes(path.read_bytes()[:200])
    return path


def spoil_colours_of_print(root):
    Image.new("CMYK", (56, 48)).save(root / "images" / "scene1.tif")
    (root / "images" / "scene1.png").unlink()
    return root / "images" / "scene1.tif"


def spoil_coloured_mask(root):
    Image.new("RGB", (62, 52)).save(root / "masks" / "scene1.png")
    return root / "masks" / "scene1.png"


def spoil_size(root):
    Image.new("L", (10, 12)).save(root / "masks" / "scene1.png")
    return root / "masks" / "scene1.png"


def spoil_label(root):
    Image.fromarray(np.full((52, 62), 9, np.uint8)).save(root / "masks" / "scene1.png")
    return root / "masks" / "scene1.png"


def spoil_pages(root):
    pages = [Image.new("L", (62, 52), n) for n in range(3)]
    pages[0].save(root / "images" / "scene1.tif", save_all=True, append_images=pages[1:])
    (root / "images" / "scene1.png").unlink()
    return root / "images" / "scene1.tif"


def spoil_animation(root):
    pages = [Image.new("L", (62, 52), 40 * n) for n in range(3)]
    pages[0].save(root / "images" / "scene1.png", save_all=True, append_images=pages[1:])
    return root / "images" / "scene1.png"


def spoil_missing_mask(root):
    (root / "masks" / "scene1.png").unlink()
    return root / "masks" / "scene1.png"


def spoil_text(root):
    (root / "masks" / "scene1.png").write_text("no image")
    return root / "masks" / "scene1.png"


def spoil_nan(root):
    Image.fromarray(np.full((52, 62), np.nan, np.float32)).save(root / "images" / "scene1.tif")
    (root / "images" / "scene1.png").unlink()
    return root / "images" / "scene1.tif"


BAD = [
    (spoil_cut_short, "cannot be read"),
    (spoil_colours_of_print, "mode CMYK"),
    (spoil_coloured_mask, "is in colour, but masks have one number per pixel"),
    (spoil_size, "mask has 10 x 12 but the image 62 x 52 pixels"),
    (spoil_label, "label 9, but classes are 0 to 2"),
    (spoil_pages, "3 pages or frames"),
    (spoil_animation, "3 pages or frames"),
    (spoil_missing_mask, r"is missing, the mask of scene1\.png; add it"),
    (spoil_text, "not an image"),
    (spoil_nan, "NaN or infinite"),
]


@pytest.mark.parametrize(("spoil", "words"), BAD, ids=[spoil.__name__ for spoil, _ in BAD])
def test_a_bad_file_is_named_and_refused_or_left_out(tmp_path, spoil, words):
    path = spoil(write_discs(tmp_path, 4, classes=True))
    cases = find_pairs(tmp_path)
    with pytest.raises(CaseError, match=words) as caught:
        survey(cases, read=read_pair, num_classes=3)
    assert str(path) in str(caught.value)
    assert "scene1" in str(caught.value)
    with pytest.warns(UserWarning, match="left out: case scene1"):
        facts, _, left_out = survey(cases, read=read_pair, num_classes=3, keep_going=True)
    assert list(left_out) == ["scene1"]
    assert [fact.name for fact in facts] == ["scene0", "scene2", "scene3"]


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    (case, *_) = find_pairs(write_discs(tmp_path, 1))

    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("PIL.Image.open", refuse)
    with pytest.raises(CaseError, match=r"scene0\.png: cannot be read \(Permission denied\)"):
        read_pair(case)


def test_masks_without_image_are_counted(tmp_path):
    write_discs(tmp_path, 4)
    (tmp_path / "images" / "scene2.png").unlink()
    with pytest.warns(UserWarning, match="1 masks have no image and are left out: scene2"):
        assert [case.name for case in find_pairs(tmp_path)] == ["scene0", "scene1", "scene3"]


def test_empty_and_missing_folders_and_names_given_twice_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"there is no folder .*images"):
        find_pairs(tmp_path)
    (tmp_path / "images").mkdir()
    with pytest.raises(ValueError, match="contains no image"):
        find_pairs(tmp_path)
    for suffix in ("png", "tif"):
        Image.new("L", (4, 4)).save(tmp_path / "images" / f"a.{suffix}")
    with pytest.raises(ValueError, match="have the same name"):
        find_pictures(tmp_path / "images")


@pytest.mark.parametrize("most", [3, 255, 256, 65535])
def test_masks_come_back_as_they_were_written(tmp_path, most):
    mask = np.random.default_rng(0).integers(0, most, (7, 9)).astype(np.int32)
    mask[0, 0] = most
    write_mask(tmp_path / "inner" / "mask.png", mask)
    np.testing.assert_array_equal(read_mask(tmp_path / "inner" / "mask.png"), mask)
    with Image.open(tmp_path / "inner" / "mask.png") as picture:
        assert picture.mode == ("L" if most < 256 else "I;16")


def test_a_palette_counts_by_place_not_by_colour(tmp_path):
    mask = np.array([[0, 1, 2], [2, 3, 0]], np.uint8)
    picture = Image.fromarray(mask).convert("P")
    picture.putdata(mask.ravel().tolist())
    picture.putpalette([200, 10, 10, 0, 0, 0, 7, 7, 7, 9, 9, 9])
    picture.save(tmp_path / "mask.png")
    np.testing.assert_array_equal(read_mask(tmp_path / "mask.png"), mask)


def test_black_and_white_are_background_and_one_class(tmp_path):
    mask = np.array([[0, 1], [1, 0]])
    Image.fromarray((255 * mask).astype(np.uint8)).save(tmp_path / "grey.png")
    Image.fromarray(mask.astype(bool)).save(tmp_path / "bits.png")
    for name in ("grey", "bits"):
        np.testing.assert_array_equal(read_mask(tmp_path / f"{name}.png", num_classes=2), mask)


def test_sixteen_bits_keep_their_depth_and_colours_their_order(tmp_path):
    values = np.array([[0, 300], [65535, 7]], np.uint16)
    for suffix in ("png", "tif"):
        Image.fromarray(values).save(tmp_path / f"deep.{suffix}")
        volume = read_pair(Case("deep", (tmp_path / f"deep.{suffix}",), None))
        np.testing.assert_array_equal(volume.image[:, 0], np.stack([values] * 3).astype(np.float32))
    colours = np.random.default_rng(0).integers(0, 255, (3, 4, 3)).astype(np.uint8)
    Image.fromarray(colours).save(tmp_path / "colours.png")
    volume = read_pair(Case("colours", (tmp_path / "colours.png",), None))
    np.testing.assert_array_equal(volume.image[:, 0], np.moveaxis(colours, -1, 0).astype(np.float32))


@pytest.mark.parametrize(
    ("tags", "size"),
    [
        ({"per_unit": (20000, 40000), "unit": 3}, (0.5, 0.25)),
        ({"per_unit": (25400, 12700), "unit": 2}, (1.0, 2.0)),
        ({"per_unit": (4, 2), "unit": 1, "text": "ImageJ=1.53\nunit=micron\n"}, (0.25, 0.5)),
        ({"text": '<OME><Pixels PhysicalSizeX="0.3" PhysicalSizeY="0.6"/></OME>'}, (0.6, 0.3)),
    ],
)
def test_tiff_tags_tell_the_size_of_pixels(tmp_path, tags, size):
    case = save_tiff(tmp_path / "a.tif", **tags)
    assert read_pair(case, size="tags").spacing[1:] == pytest.approx(size)
    assert read_pair(case).spacing[1:] == (1.0, 1.0)


@pytest.mark.parametrize("tags", [{}, {"per_unit": (1, 1), "unit": 1}])
def test_a_picture_without_tags_among_others_is_refused(tmp_path, tags):
    with pytest.raises(CaseError, match=r"no TIFF pixel size, which other images have; .* give --spacing"):
        read_pair(save_tiff(tmp_path / "a.tif", **tags), size="tags")


def test_a_table_tells_the_size_of_pixels(tmp_path):
    table = tmp_path / "sizes.csv"
    table.write_text("image,height,width\na.tif,0.5,0.25\nb,2\n")
    assert read_sizes(table) == {"a": (0.5, 0.25), "b": (2.0, 2.0)}
    assert read_pair(save_tiff(tmp_path / "a.tif"), size=read_sizes(table)).spacing[1:] == (0.5, 0.25)
    with pytest.raises(CaseError, match="no line in the table"):
        read_pair(save_tiff(tmp_path / "c.tif"), size=read_sizes(table))
    for bad in ("a,0.5\nb,-1\n", "a,0.5\nb,x\n", "a,1\nb,1,2,3\n"):
        table.write_text(bad)
        with pytest.raises(ValueError, match=r"line 2 of .*positive numbers"):
            read_sizes(table)
    with pytest.raises(ValueError, match="cannot be read"):
        read_sizes(tmp_path / "none.csv")


def test_an_outline_is_what_is_near_background_or_another_object():
    label = draw_discs((30, 40), [(14, 12, 8.0), (15, 27, 8.0), (2, 36, 4.0)])
    expected = np.zeros_like(label)
    rows, columns = label.shape
    for y in range(rows):
        for x in range(columns):
            if label[y, x] == 0:
                continue
            near = label[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2]
            wide = label[max(0, y - 2) : y + 3, max(0, x - 2) : x + 3]
            expected[y, x] = 2 if (near == 0).any() or ((wide > 0) & (wide != label[y, x])).any() else 1
    np.testing.assert_array_equal(outline(label), expected)
    np.testing.assert_array_equal(outline(label[None]), expected[None])


def test_touching_discs_are_told_apart_and_whole():
    label = draw_discs((40, 48), [(18, 15, 10.0), (20, 33, 9.5), (35, 6, 2.0)])
    touching = label[:, :-1] * label[:, 1:]
    assert (touching == 2).any(), "two discs touch"
    classes = outline(label)
    found = separate(0.05 + 0.85 * np.eye(3)[classes].transpose(2, 0, 1))
    assert found.max() == 3
    for number in (1, 2, 3):
        values, counts = np.unique(found[label == number], return_counts=True)
        overlap, owner = counts.max(), values[counts.argmax()]
        assert overlap / (found == owner).sum() > 0.95
        assert overlap / (label == number).sum() > 0.95
    np.testing.assert_array_equal(found > 0, label > 0)


@pytest.mark.parametrize(("value", "count"), [(0, 0), (1, 1), (2, 1)])
def test_pictures_of_one_class_alone(value, count):
    found = separate(np.eye(3)[np.full((5, 6), value)].transpose(2, 0, 1))
    np.testing.assert_array_equal(found, np.full((5, 6), count))


def test_a_mask_with_losses_is_refused(tmp_path):
    Image.fromarray(np.full((8, 8), 255, np.uint8)).save(tmp_path / "mask.jpg")
    with pytest.raises(ValueError, match="JPEG file, which does not keep the numbers"):
        read_mask(tmp_path / "mask.jpg")


def test_white_of_sixteen_bits_is_one_class(tmp_path):
    Image.fromarray(np.array([[0, 65535]], np.uint16)).save(tmp_path / "mask.png")
    assert read_mask(tmp_path / "mask.png", num_classes=2).tolist() == [[0, 1]]


@pytest.mark.parametrize("mode", ["L", "I;16", "1"])
def test_connected_parts_of_white_are_the_objects(tmp_path, mode):
    white = {"L": np.uint8(255), "I;16": np.uint16(65535), "1": np.bool_(True)}[mode]
    mask = np.zeros((6, 8), white.dtype)
    mask[1:3, 1:3] = mask[4:, 5:] = white
    Image.fromarray(mask).save(tmp_path / "mask.png")
    assert read_mask(tmp_path / "mask.png").max() == 1
    with pytest.warns(UserWarning, match="black-and-white masks do not number objects"):
        objects = read_mask(tmp_path / "mask.png", instances=True)
    assert objects[1, 1] != objects[4, 5]
    assert sorted(np.unique(objects)) == [0, 1, 2]


def test_a_number_alone_in_several_parts_is_one_object_and_said_to_be(tmp_path):
    mask = np.zeros((6, 8), np.uint8)
    mask[1, 1] = mask[4, 5] = 1
    Image.fromarray(mask).save(tmp_path / "mask.png")
    with pytest.warns(UserWarning, match="one object, although it has several parts; number the objects"):
        assert read_mask(tmp_path / "mask.png", instances=True).max() == 1
