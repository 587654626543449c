"""Saving and loading whole models without pickle.

A saved model is a folder of two files: ``model.safetensors`` with the weights and ``config.json`` with the class, its
constructor's arguments and the version that wrote it. Loading builds a new model, compares every name and shape first,
and only then copies: a bad file changes nothing. Nothing read from a file is executed; the class must be known already.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

__all__ = ["CONFIG_NAME", "WEIGHTS_NAME", "PretrainedError", "PretrainedModel", "from_pretrained"]

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
FORMAT = 1
MAX_CONFIG_BYTES = 1 << 20

M = TypeVar("M", bound="PretrainedModel")


class PretrainedError(ValueError):
    """A saved model that cannot be read; the message says which file, why, and what to do."""


class PretrainedModel(nn.Module):
    """A module that remembers its constructor's arguments, so that it can be saved and built again.

    Subclasses take keyword arguments that JSON can hold: numbers, strings, booleans, ``None``, lists and dictionaries
    of these.
    """

    known: ClassVar[dict[str, type[PretrainedModel]]] = {}
    arguments: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        PretrainedModel.known[cls.__name__] = cls

    def __new__(cls, *args: Any, **kwargs: Any):
        # Copies and unpickling call this without arguments and fill in the attributes themselves.
        model = super().__new__(cls)
        bound = inspect.signature(cls.__init__).bind_partial(model, *args, **kwargs)
        model.__dict__["arguments"] = dict(list(bound.arguments.items())[1:])
        return model

    def save_pretrained(self, folder: str | os.PathLike) -> Path:
        """Write ``model.safetensors`` and ``config.json``; each file appears whole or not at all.

        Returns
        -------
        Path
            The folder.

        Examples
        --------
        >>> import tempfile
        >>> model = torchsonic.create_model("synthshape_sonicnet")
        >>> folder = model.save_pretrained(tempfile.mkdtemp())
        >>> type(torchsonic.from_pretrained(folder)).__name__
        'SynthShapeNet'
        """
        from torchsonic import __version__

        folder = Path(folder)
        config = {"format": FORMAT, "torchsonic": __version__, "class": type(self).__name__}
        config["arguments"] = {name: _plain(name, value) for name, value in self.arguments.items()}
        # One tensor under two names would be refused; a loaded copy of each is the same model.
        state = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in self.state_dict().items()}
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as scratch:
            weights = Path(scratch) / WEIGHTS_NAME
            save_file(state, weights, metadata={"format": "pt"})
            config["sha256"] = _digest(weights)
            text = Path(scratch) / CONFIG_NAME
            text.write_text(json.dumps(config, indent=2) + "\n")
            for path in (weights, text):
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
                os.replace(path, folder / path.name)
        return folder

    @classmethod
    def from_pretrained(
        cls: type[M],
        source: str | os.PathLike,
        *,
        revision: str | None = None,
        token: str | None = None,
        device: torch.device | str = "cpu",
        verify: bool = True,
    ) -> M:
        """Build a saved model from a folder, or from ``owner/name`` on the Hugging Face Hub; it is in evaluation mode.

        Parameters
        ----------
        source
            Folder or repository.
        revision, token
            Of the repository.
        device
            Where the weights go.
        verify
            Check that the weights are those the configuration was saved with; ``False`` accepts replaced weights of
            the same names and shapes.
        """
        folder = _locate(source, revision, token)
        config = _read_config(folder / CONFIG_NAME)
        build = PretrainedModel.known.get(config["class"])
        if build is None or not issubclass(build, cls):
            wanted = "a torchsonic model" if cls is PretrainedModel else cls.__name__
            raise PretrainedError(f"{folder / CONFIG_NAME} describes a {config['class']!r}, not {wanted}")
        state = _read_weights(folder / WEIGHTS_NAME, config.get("sha256") if verify else None)
        try:
            with torch.random.fork_rng(devices=[]):  # the first, discarded weights must not move the user's seed
                model = build(**config["arguments"])
        except (TypeError, ValueError) as error:
            raise PretrainedError(
                f"{folder / CONFIG_NAME}: {build.__name__} refuses the arguments saved by torchsonic "
                f"{config['torchsonic']}: {error}"
            ) from error
        _check_names_and_shapes(model.state_dict(), state, folder / WEIGHTS_NAME)
        _keep_dtypes(model, state)
        model.load_state_dict(state)
        return model.to(device).eval()  # type: ignore[return-value]

    def push_to_hub(self, repo_id: str, *, private: bool = False, token: str | None = None, message: str = "") -> str:
        """Upload the saved model to the Hugging Face Hub; returns the address of the commit."""
        hub = _import_hub()
        api = hub.HfApi(token=token)
        api.create_repo(repo_id, private=private, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            commit = api.upload_folder(
                repo_id=repo_id, folder_path=folder, commit_message=message or f"Upload {type(self).__name__}"
            )
        return str(commit)


def from_pretrained(source: str | os.PathLike, **options: Any) -> PretrainedModel:
    """Build any saved torchsonic model; see :meth:`PretrainedModel.from_pretrained`."""
    return PretrainedModel.from_pretrained(source, **options)


def _plain(name: str, value: Any) -> Any:
    """An argument as JSON holds it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(name, item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(name, item) for key, item in value.items()}
    raise TypeError(f"argument {name}={value!r} of type {type(value).__name__} cannot be saved as JSON")


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _import_hub():
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError('the Hub needs huggingface_hub; run: pip install "torchsonic[hub]"') from error
    return huggingface_hub


def _locate(source: str | os.PathLike, revision: str | None, token: str | None) -> Path:
    """The folder with both files, downloaded if ``source`` is no folder but looks like a repository."""
    folder = Path(source)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise PretrainedError(f"{folder} is a file; give the folder with {CONFIG_NAME} and {WEIGHTS_NAME}")
    name = os.fspath(source)
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name):
        raise PretrainedError(f"there is no folder {name!r}, and it is no Hub repository of the form owner/name")
    try:
        hub = _import_hub()
    except ImportError as error:
        raise PretrainedError(f"there is no folder {name!r}; as a Hub repository it needs more: {error}") from error
    try:
        paths = [
            hub.hf_hub_download(name, file, revision=revision, token=token) for file in (CONFIG_NAME, WEIGHTS_NAME)
        ]
    except (OSError, ValueError) as error:  # the Hub's own errors and those of the network are of these kinds
        raise PretrainedError(f"there is no folder {name!r}, and the Hub gave none either: {error}") from error
    return Path(paths[0]).parent


def _missing(path: Path) -> PretrainedError:
    found = sorted(p.name for p in path.parent.iterdir() if not p.name.startswith("."))
    listing = f"it holds {', '.join(found[:8])}" if found else "it is empty"
    return PretrainedError(f"{path.name} is missing in {path.parent}: {listing}; was it renamed?")


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise _missing(path)
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise PretrainedError(f"{path} is {path.stat().st_size} bytes long; this is no configuration of torchsonic")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise PretrainedError(f"{path} is no valid JSON, perhaps cut short: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("class"), str) or "torchsonic" not in config:
        raise PretrainedError(f"{path} was not written by torchsonic: it names no class and no version")
    if config.get("format") != FORMAT:
        raise PretrainedError(
            f"{path} has format {config.get('format')!r}, this version reads {FORMAT}; update torchsonic"
        )
    if not isinstance(config.get("arguments"), dict):
        raise PretrainedError(f"{path} holds no arguments of {config['class']}")
    return config


def _read_weights(path: Path, digest: str | None) -> dict[str, Tensor]:
    if not path.is_file():
        raise _missing(path)
    try:
        with safe_open(path, framework="pt") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise PretrainedError(f"{path} is no whole safetensors file ({error}); copy or download it again") from error
    if digest is not None and _digest(path) != digest:
        raise PretrainedError(
            f"{path} is not the file that {CONFIG_NAME} was saved with: damaged or replaced; "
            "copy both again, or pass verify=False if you replaced it on purpose"
        )
    return state


def _check_names_and_shapes(expected: Mapping[str, Tensor], state: Mapping[str, Tensor], path: Path) -> None:
    missing, foreign = sorted(expected.keys() - state.keys()), sorted(state.keys() - expected.keys())
    if missing or foreign:
        parts = [
            f"{title} {len(names)} ({', '.join(names[:3])}{', ..' if len(names) > 3 else ''})"
            for title, names in (("lacks", missing), ("has foreign", foreign))
            if names
        ]
        raise PretrainedError(f"{path} holds weights of another model: {' and '.join(parts)}")
    for name, value in expected.items():
        if state[name].shape != value.shape:
            got, want = tuple(state[name].shape), tuple(value.shape)
            raise PretrainedError(f"{path} holds weights of another model: {name} is {got}, expected {want}")


def _keep_dtypes(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Give parameters and buffers the dtype they were saved with, so that loading is bit-exact."""
    for module_name, module in model.named_modules():
        prefix = f"{module_name}." if module_name else ""
        for name, parameter in module.named_parameters(recurse=False):
            parameter.data = parameter.data.to(state[prefix + name].dtype)
        for name, buffer in module.named_buffers(recurse=False):
            if prefix + name in state:
                setattr(module, name, buffer.to(state[prefix + name].dtype))
