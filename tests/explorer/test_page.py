"""The page in a real browser, as people use it."""

import numpy as np
import pytest
from PIL import Image

import torchsonic
from tests.explorer.browser import Browser
from tests.explorer.images import encoded, huge_png, photograph
from tests.explorer.picture import GOLDEN, strip_of_pictures
from tests.explorer.serving import serving
from torchsonic.explorer import open_checkpoint
from torchsonic.explorer.filters import BANK_SIZE
from torchsonic.explorer.images import DETAIL, FIELD_MM, REFERENCE

KNOBS = ["orientation", "scale", "damping", "oscillation", "transverse"]
PICTURE = "document.querySelector('{}').toDataURL()"
WEAK_TEXT = """(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = (e) => {
    const colour = parse(getComputedStyle(e).backgroundColor);
    return colour.length === 3 || colour[3] > 0 ? colour : ground(e.parentElement);
  };
  const written = (e) => e.offsetParent && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  const contrast = (e) => {
    const [a, b] = [parse(getComputedStyle(e).color), ground(e)].map(light).sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  return [...document.querySelectorAll('main *, header *, footer *')]
    .filter(e => written(e) && !e.closest(':disabled') && contrast(e) < 4.5).map(e => e.outerHTML.slice(0, 80));
})()"""
RESPONSE, KERNEL = PICTURE.format("#response"), PICTURE.format("#kernel")


def sampled(operator):
    return PICTURE.format(f".operator[data-operator={operator}] canvas[data-grid=sampled]")


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("websocket", reason="websocket-client, which drives the browser, is not installed")
    running = Browser()
    yield running
    running.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    torchsonic.create_model("synthshape_sonicnet").save_pretrained(folder)
    with serving(open_checkpoint(folder)) as server:
        yield server.address


@pytest.fixture
def page(browser, address):
    browser.resize(1280, 900)
    browser.open(address)
    return browser


def drawn(page):
    return int(page.run("Number(document.body.dataset.drawn)"))


def after(page, act):
    """Do something and wait until the pictures are new."""
    before = drawn(page)
    act()
    page.until(f"document.body.dataset.drawn > {before}")


def focus(page, selector):
    page.run(f"document.querySelector({selector!r}).focus()")


def message(page):
    return page.run(
        "document.querySelector('#message').hidden ? '' : document.querySelector('#message span').textContent"
    )


def test_it_loads_without_complaints_and_asks_nobody_else(page, address):
    page.until("document.querySelectorAll('#sheet button').length > 8")
    assert page.complaints == []
    assert all(url.startswith(address) for url in page.requests), page.requests
    assert len(page.requests) >= 6
    assert message(page) == ""
    assert "SONIC" in page.run("document.body.innerText")


def test_the_pictures_look_as_they_did(page):
    """Golden pictures, averaged to 64 x 64, may differ by rounding; ``make explorer-picture`` draws new ones."""
    with Image.open(GOLDEN) as golden:
        expected = np.asarray(golden.convert("RGB"), dtype=float)
    difference = np.abs(np.asarray(strip_of_pictures(page), dtype=float) - expected)
    assert difference.mean() < 1
    assert np.quantile(difference, 0.999) < 12


def test_sonic_is_said_to_stay_and_the_others_to_change(page):
    words = page.run("[...document.querySelectorAll('.difference')].map(e => e.className + '|' + e.textContent)")
    assert words[1] == "difference same|changed by < 0.001 %"
    assert all(text.startswith("difference changed|changed by ") for text in words[2:])


@pytest.mark.parametrize("knob", KNOBS)
def test_each_slider_changes_the_pictures(page, knob):
    pictures = [RESPONSE, KERNEL, sampled("sonic")]
    before = [page.run(picture) for picture in pictures]
    shown = page.text(f"#{knob}-value")
    focus(page, f"#{knob}")
    for _ in range(5):
        after(page, lambda: page.press("ArrowRight"))
    assert all(page.run(picture) != old for picture, old in zip(pictures, before, strict=True))
    assert page.text(f"#{knob}-value") != shown
    after(page, lambda: page.click("#reset"))
    assert [page.run(picture) for picture in pictures] == before
    assert page.text(f"#{knob}-value") == shown


@pytest.mark.parametrize("slider", ["resolution", "anisotropy"])
def test_the_sampling_changes_the_grid_and_not_the_reference(page, slider):
    reference = PICTURE.format(".operator[data-operator=sonic] canvas[data-grid=reference]")
    before, grid = page.run(reference), page.text("#pixels")
    focus(page, f"#{slider}")
    after(page, lambda: page.press("End"))
    assert page.text("#pixels") != grid
    assert page.run(reference) == before
    shape = "(c => `${c.height} × ${c.width} pixels`)"  # noqa: RUF001
    canvas = "document.querySelector('[data-operator=gfnet] [data-grid=sampled]')"
    assert page.run(f"{shape}({canvas})") in page.text("#pixels")


def test_the_orbit_networks_answer_turns_with_the_image_and_the_convolutions_does_not(page):
    page.until("document.body.dataset.turned > 0")
    verdicts = "[...document.querySelectorAll('.agreement')].map(e => e.className)"
    assert page.run(verdicts) == ["agreement same", "agreement changed"]
    answer = PICTURE.format("[data-answer={}] [data-turn=turned]")
    before = [page.run(answer.format(name)) for name in ("image", "orbit", "conv")]
    upright = page.run(PICTURE.format("[data-answer=orbit] [data-turn=upright]"))
    count = page.run("Number(document.body.dataset.turned)")
    focus(page, "#angle")
    page.press("ArrowRight")
    page.until(f"document.body.dataset.turned > {count}")
    assert page.text("#angle-value") == "46°"
    assert page.text("[data-answer=orbit] .by") == "rotated by 46°"
    assert all(page.run(answer.format(n)) != old for n, old in zip(("image", "orbit", "conv"), before, strict=True))
    assert page.run(PICTURE.format("[data-answer=orbit] [data-turn=upright]")) == upright
    page.click("#scene")
    page.until(f"document.body.dataset.turned > {count + 1}")
    assert page.run(PICTURE.format("[data-answer=orbit] [data-turn=upright]")) != upright
    assert page.complaints == []


def test_too_coarse_a_grid_is_confessed(page):
    assert page.hidden("#lost")
    focus(page, "#resolution")
    after(page, lambda: page.press("Home"))
    assert not page.hidden("#lost")
    after(page, lambda: page.click("#reset-sampling"))
    assert page.hidden("#lost")
    assert page.text("#pixels") == "256 × 256 pixels of 1.00 × 1.00 mm"  # noqa: RUF001


def test_other_images_and_banks_change_the_pictures(page):
    seen = {page.run(sampled("sonic"))}
    for index in range(1, 5):
        choose = f"s => {{s.selectedIndex = {index}; s.dispatchEvent(new Event('change'))}}"
        after(page, lambda script=choose: page.run(f"({script})(document.querySelector('#image'))"))
        seen.add(page.run(sampled("sonic")))
    after(page, lambda: page.click("input[value=bank]"))
    seen.add(page.run(sampled("sonic")))
    assert len(seen) == 6


def test_an_upload_is_shown_and_filtered(page, tmp_path):
    (tmp_path / "mine.png").write_bytes(encoded(photograph()))
    before = [page.run(sampled(name)) for name in ("input", "sonic")]
    after(page, lambda: page.give_file("#upload", tmp_path / "mine.png"))
    assert message(page) == ""
    assert page.run("document.querySelector('#image').selectedOptions[0].textContent") == "mine.png"
    assert all(page.run(sampled(n)) != old for n, old in zip(("input", "sonic"), before, strict=True))
    assert page.complaints == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"not an image at all", "This image cannot be read"),
        (encoded(photograph(), "JPEG")[:1500], "damaged or truncated"),
        (huge_png(), "100 megapixels; at most 25 are accepted"),
        (np.zeros(21 << 20, np.uint8).tobytes(), "larger than 20 MB"),
    ],
)
def test_a_bad_upload_shows_why(page, tmp_path, data, words):
    (tmp_path / "bad.png").write_bytes(data)
    picture = page.run(sampled("sonic"))
    page.give_file("#upload", tmp_path / "bad.png")
    page.until("!document.querySelector('#message').hidden")
    assert message(page).startswith("bad.png")
    assert words in message(page)
    focus(page, "#scale")
    after(page, lambda: page.press("ArrowRight"))  # all goes on working, and the message stays to be read
    assert page.run(sampled("sonic")) != picture
    assert words in message(page)
    page.click("#message button")
    assert message(page) == ""


def test_words_name_the_numbers_of_the_server(page):
    assert (
        page.text("label:has(input[value=bank])").strip()
        == f"bank of {BANK_SIZE}, rotated in steps of {360 // BANK_SIZE}°"
    )
    told = " ".join(page.text("#sampling details").replace("\N{MULTIPLICATION SIGN}", "x").split())
    assert f"field of {FIELD_MM:g} mm x {FIELD_MM:g} mm" in told
    assert f"{DETAIL} pixels per side" in told
    assert f"{REFERENCE[0]} x {REFERENCE[1]} pixels of {FIELD_MM / REFERENCE[0]:g} mm" in told


def test_everything_is_reached_by_keyboard_and_named(page):
    reached = []
    page.run("document.activeElement.blur()")
    for _ in range(75):
        page.press("Tab")
        reached.append(
            page.run("document.activeElement.id || document.activeElement.name || document.activeElement.tagName")
        )
        outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or reached[-1] in ("upload", "BODY"), f"{reached[-1]} shows no focus"
    expected = [*KNOBS, "filter", "highest", "reach", "reset", "image", "upload", "resolution", "anisotropy"]
    expected += ["reset-sampling", "angle", "scene", "layer", "later"]
    assert set(expected) <= set(reached)
    order = [reached.index(name) for name in KNOBS]
    assert order == sorted(order)
    named = "e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim()"
    nameless = f"""[...document.querySelectorAll('input, select, button, canvas[role=img]')]
        .filter(e => !e.closest('[hidden]') && !({named})).map(e => e.outerHTML)"""
    assert page.run(nameless) == []
    assert page.run("document.querySelector('#scale').getAttribute('aria-valuetext')") == "8.00 mm"


def test_a_mode_of_the_checkpoint_sets_the_sliders(page):
    page.until("document.querySelectorAll('#sheet button').length > 8")
    before = [page.run(RESPONSE), page.text("#scale-value")]
    focus(page, "#sheet button:nth-child(3)")
    after(page, lambda: page.press("Enter"))
    assert page.run("document.querySelector('#sheet button:nth-child(3)').getAttribute('aria-pressed')") == "true"
    now = [page.run(RESPONSE), page.text("#scale-value")]
    assert now[0] != before[0]
    assert now[1] != before[1]
    after(page, lambda: page.click("input[value=layer]"))
    assert page.run("document.querySelector('#scale').matches(':disabled')")
    kernel = page.run(KERNEL)
    focus(page, "#channel-out")
    page.run("(e => {e.value = 3; e.dispatchEvent(new Event('change'))})(document.querySelector('#channel-out'))")
    page.until(f"{KERNEL} !== {kernel!r}")
    first = page.run("document.querySelector('#sheet canvas').toDataURL()")
    page.run("for (let i = 0; i < 3; i++) document.querySelector('#later').click()")  # faster than the answers
    page.until(f"document.querySelector('#sheet canvas').toDataURL() !== {first!r}")
    assert (page.text("#page-number"), message(page)) == ("page 2 of 2", "")
    assert page.complaints == []


@pytest.mark.parametrize("width", [320, 360, 768])
def test_a_narrow_screen_needs_no_sideways_scrolling(browser, address, width):
    browser.resize(width, 740, touch=True)
    browser.open(address)
    browser.until("document.querySelectorAll('#sheet button').length > 8")
    assert browser.run("document.documentElement.scrollWidth") <= width
    beyond = f"""[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > {width + 1}
        && getComputedStyle(e).position !== 'absolute').map(e => e.tagName + '#' + e.id)"""
    assert browser.run(beyond) == []
    small = """[...document.querySelectorAll('button, select, input[type=range], .button')].filter(e => e.offsetParent
        && e.getBoundingClientRect().height < 24).map(e => e.id)"""
    assert browser.run(small) == []
    tops = "[...document.querySelectorAll('.pair')].map(e => Math.round(e.getBoundingClientRect().top))"
    assert len(set(browser.run(tops))) == (4 if width < 640 else 1), "pictures to compare stand beside each other"
    before = browser.run(KERNEL)
    after(browser, lambda: browser.click("#scale"))
    focus(browser, "#scale")
    after(browser, lambda: browser.press("ArrowRight"))
    assert browser.run(KERNEL) != before
    if width < 640:  # the pictures stay in sight while a slider further down is turned
        browser.run("document.querySelector('#transverse').scrollIntoView({block: 'end', behavior: 'instant'})")
        assert 0 <= browser.run("document.querySelector('#kernel').getBoundingClientRect().top") < 740


@pytest.mark.parametrize("width", [320, 620])
def test_focus_is_never_hidden_behind_the_pictures(browser, address, width):
    """Going back by Shift+Tab, a browser scrolls just as far as it must."""
    browser.resize(width, 740)
    browser.open(address)
    focus(browser, "#resolution")
    rectangle = "document.{}.getBoundingClientRect()"
    seen = []
    for _ in range(12):
        browser.press("Tab", shift=True)
        seen.append(browser.run("document.activeElement.id || document.activeElement.name"))
        if browser.run("document.activeElement.closest('#knobs') !== null"):
            top = browser.run(rectangle.format("activeElement") + ".top")
            assert top >= browser.run(rectangle.format("querySelector('.figures')") + ".bottom"), seen[-1]
    assert {"transverse", "oscillation", "damping"} <= set(seen)


def test_a_layer_of_the_paper_s_variant_is_no_filter(browser, tmp_path):
    arguments = {"in_channels": 2, "out_channels": 2, "num_modes": 4, "spatial_dims": 2}
    layers = {"exact": arguments, "paper": {**arguments, "variant": "paper"}}
    folder = torchsonic.models.SonicLayers(layers).save_pretrained(tmp_path)
    browser.resize(1280, 900)
    with serving(open_checkpoint(folder)) as server:
        browser.open(server.address)
        assert browser.hidden("#layer-note")
        after(browser, lambda: browser.click("input[value=layer]"))
        choose = "(e => {e.value = 1; e.dispatchEvent(new Event('change'))})(document.querySelector('#layer'))"
        after(browser, lambda: browser.run(choose))
        assert "paper's notes" in browser.text("#layer-note")
        assert not browser.hidden("#layer-note")
        assert browser.run("document.querySelector('input[value=layer]').disabled")
        assert browser.run("document.querySelector('input[value=mode]').checked")
        assert not browser.run("document.querySelector('#scale').matches(':disabled')")
        assert message(browser) == ""
        assert browser.complaints == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground(browser, address, dark):
    browser.resize(1280, 900, dark=dark)
    browser.open(address)
    assert browser.run(WEAK_TEXT) == []


def test_only_the_newest_of_many_moves_is_sent(page):
    page.requests.clear()
    first = drawn(page)
    move = "slider.value = i - 100; slider.dispatchEvent(new Event('input'));"
    page.run(f"(slider => {{for (let i = 0; i < 200; i++) {{{move}}}}})(document.querySelector('#orientation'))")
    assert page.text("#orientation-value") == "99.0°"

    def sent():
        return sum(url.endswith("/api/view") for url in page.requests)

    calm = 0
    while calm < 3:  # until every request is answered, and no other follows
        page.run("new Promise(done => setTimeout(done, 100))")
        calm = calm + 1 if drawn(page) - first == sent() >= 1 else 0
    assert sent() <= 3
    newest = page.run(RESPONSE)
    after(page, lambda: page.run("document.querySelector('#orientation').dispatchEvent(new Event('input'))"))
    assert page.run(RESPONSE) == newest


def test_an_ended_server_is_told(browser):
    with serving() as server:
        browser.resize(1280, 900)
        browser.open(server.address)
        assert browser.run("document.querySelector('#checkpoint').hidden")
    focus(browser, "#scale")
    browser.press("ArrowRight")
    browser.until("!document.querySelector('#message').hidden")
    assert "does not answer" in message(browser)
