"""What a release says about itself is true."""

import re
import tomllib
from pathlib import Path

import pytest

import torchsonic
from tools.try_wheel import judge
from tools.wheel_trial import DOORS, try_core
from torchsonic.integrations import TORCHVISION_REMEDY

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOR_CHECKOUTS = {"bench", "dev", "docs", "vkfft"}


def test_the_citation_has_the_version_and_the_licence():
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {torchsonic.__version__}\n" in text
    assert f"\nlicense: {PROJECT['license']}\n" in text
    for author in ("Moens", "Beets-Tan", "Pooch"):
        assert f"family-names: {author}" in text


def test_the_changelog_and_the_readme_have_the_version():
    minor = torchsonic.__version__.rpartition(".")[0]
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[0] in (
        torchsonic.__version__,
        "Unreleased",
    )
    assert f"\nVersion {minor}. " in (ROOT / "README.md").read_text()


def test_every_extra_of_users_is_tried():
    assert set(DOORS) == set(PROJECT["optional-dependencies"]) - FOR_CHECKOUTS


def test_the_core_and_every_door_open_where_all_extras_are():
    for package in (
        "tyro",
        "matplotlib",
        "PIL",
        "scipy",
        "lightning_fabric",
        "timm",
        "monai",
        "onnx",
        "huggingface_hub",
        "triton",
    ):
        pytest.importorskip(package, reason=f"{package} is not installed")
    try_core()
    for door in DOORS.values():
        door()


def test_a_shut_door_must_name_its_extra_and_an_installed_one_must_open():
    said = dict.fromkeys(["", *DOORS], "") | {"viz": 'run: pip install "torchsonic[viz]"'}
    assert judge("cli", said) == []
    assert "is installed, but fails" in judge("viz", said)[0]
    assert "names no extra" in judge("cli", said | {"hub": "ModuleNotFoundError: huggingface_hub"})[0]
    assert judge("timm", said | {"timm": f"ImportError: (nms): {TORCHVISION_REMEDY}"}) == []
    assert "the core fails" in judge("", said | {"": "AssertionError"})[0]


def test_every_extra_stands_in_the_readme():
    sentence = re.search(r"extras are (.*?)\.", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert sentence
    assert set(re.findall(r"`(\w+)`", sentence[1])) == set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize(
    "name",
    [
        "CITATION.cff",
        ".pre-commit-config.yaml",
        *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / ".github").rglob("*.yml")),
    ],
)
def test_files_for_hosts_are_yaml(name):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    assert isinstance(yaml.safe_load((ROOT / name).read_text()), dict)


def test_links_of_documents_at_the_top_lead_somewhere():
    for page in ROOT.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (ROOT / target).exists(), f"{page.name} links to {target}"
