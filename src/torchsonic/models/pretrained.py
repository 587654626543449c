"""Saving and loading whole models without pickle.

A saved model is a folder of two files: ``model.safetensors`` with the weights and ``config.json`` with the class, its
constructor arguments and the version that wrote it. Loading builds a new model, compares every name and shape, and only
then copies, so a bad file changes nothing. Nothing read from a file is executed; the class must be known already.
"""

from __future__ import annotations

import difflib
import inspect
import os
import tempfile
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from torchsonic.models import model_folder
from torchsonic.models.model_folder import (
    CONFIG_NAME,
    FORMAT,
    HUB,
    WEIGHTS_NAME,
    PretrainedError,
    download,
    find_folder,
    import_hub,
    is_repository,
    list_pretrained,
)
from torchsonic.nn.definition import definition_problem, is_definition
from torchsonic.nn.network_orientation import OrientedNetwork
from torchsonic.nn.parameters import first_process_writes, own_class, whole_state
from torchsonic.spectral.groups import Group

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

M = TypeVar("M", bound="PretrainedModel")


class PretrainedModel(OrientedNetwork):
    """A module that remembers its constructor arguments, so that it can be saved and rebuilt.

    Subclasses take keyword arguments that JSON can represent: numbers, strings, booleans, ``None``, and lists and
    dictionaries of these; and groups, which :func:`torchsonic.make_group` makes again from a dictionary.
    """

    known: ClassVar[dict[str, type[PretrainedModel]]] = {}
    arguments: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        other = PretrainedModel.known.get(cls.__name__)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"a model called {cls.__name__} is defined in {other.__module__}; choose another name")
        PretrainedModel.known[cls.__name__] = cls

    def __new__(cls, *args: Any, **kwargs: Any):
        # Copies and unpickling call this without arguments and fill in the attributes themselves.
        model = super().__new__(cls)
        bound = inspect.signature(cls.__init__).bind_partial(model, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(list(bound.arguments.items())[1:])
        for parameter in bound.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments.update(arguments.pop(parameter.name, {}))
        model.__dict__["arguments"] = arguments
        return model

    @classmethod
    def complete_arguments(cls, arguments: dict[str, Any], format: int) -> dict[str, Any]:
        """Arguments of a file of some format, completed with the old value of every default that has changed since."""
        return arguments

    def save_pretrained(self, folder: str | os.PathLike) -> Path:
        """Write ``model.safetensors`` and ``config.json``; each file is written completely or not at all.

        If the model is sharded over processes, all of them must call this; the first one writes the whole model.

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
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"{folder} is a file; pass a folder for {CONFIG_NAME} and {WEIGHTS_NAME}")
        config = {"format": FORMAT, "torchsonic": __version__, "class": own_class(self).__name__}
        config["arguments"] = {name: _plain(name, value) for name, value in self.arguments.items()}
        # One tensor under two names would be refused; a loaded copy of each is the same model.
        fresh = _expected_state(own_class(self), config["arguments"])
        state = whole_state(self, fresh)
        _check_rebuilds(self, fresh, state)
        with first_process_writes(self) as first:
            if first:
                model_folder.write_model(folder, config, state)
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
        """Load a saved model, in evaluation mode.

        Parameters
        ----------
        source
            Folder of a saved model or of a finished run; the name of a network included in the package (see
            :func:`torchsonic.list_pretrained`), unless a folder of this name holds a network; or ``hub:owner/name``,
            which downloads from the Hugging Face Hub.
        revision, token
            Revision of the Hub repository, and the token to access it.
        device
            Device to put the weights on.
        verify
            Check that the weights are those the configuration was saved with; ``False`` accepts replaced weights with
            the same names and shapes.
        """
        folder = locate(source, revision=revision, token=token)
        config = model_folder.read_config(folder / CONFIG_NAME)
        build = PretrainedModel.known.get(config["class"])
        if build is None or not issubclass(build, cls):
            wanted = "a torchsonic model" if cls is PretrainedModel else cls.__name__
            raise PretrainedError(f"{folder / CONFIG_NAME} describes a {config['class']!r}, not {wanted}")
        state = model_folder.read_weights(folder / WEIGHTS_NAME, config.get("sha256") if verify else None)
        config["arguments"] = build.complete_arguments(config["arguments"], config["format"])
        try:
            expected = _expected_state(build, config["arguments"])
        except Exception as error:  # whatever a constructor makes of arguments that are not its own
            raise PretrainedError(
                f"{folder / CONFIG_NAME}: {build.__name__} does not accept the arguments saved by torchsonic "
                f"{config['torchsonic']}: {error}"
            ) from error
        # The arguments define the layers, also where an older version kept no definition beside their weights.
        state = {**{name: value for name, value in expected.items() if is_definition(name)}, **state}
        _check_names_and_shapes(expected, state, folder / WEIGHTS_NAME)
        with torch.random.fork_rng(devices=[]):
            model = build(**config["arguments"])
        _keep_dtypes(model, state)
        model.load_state_dict(state)
        return model.to(device).eval()  # type: ignore[return-value]

    def push_to_hub(self, repo_id: str, *, private: bool = False, token: str | None = None, message: str = "") -> str:
        """Upload the model to the Hugging Face Hub; returns the URL of the commit."""
        api = import_hub().HfApi(token=token)
        api.create_repo(repo_id, private=private, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            text = message or f"Upload {type(self).__name__}"
            return str(api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=text))


def from_pretrained(source: str | os.PathLike, **options: Any) -> PretrainedModel:
    """Load any saved torchsonic model; see :meth:`PretrainedModel.from_pretrained`."""
    known = inspect.signature(PretrainedModel.from_pretrained).parameters
    if unknown := next((name for name in options if name not in known), None):
        raise TypeError(
            f"from_pretrained has no argument {unknown!r}: a network is loaded as it was saved; to change one, replace "
            "layers such as its head, or build an untrained one with torchsonic.create_model"
        )
    return PretrainedModel.from_pretrained(source, **options)


def _plain(name: str, value: Any) -> Any:
    """An argument as JSON represents it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Real):  # numpy's
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, np.ndarray) or (isinstance(value, Tensor) and not value.requires_grad):
        return value.tolist()
    if isinstance(value, tuple) and hasattr(value, "_asdict"):  # a group of options, which a layer takes as a mapping
        value = value._asdict()  # type: ignore[attr-defined]
    if isinstance(value, (list, tuple)):
        return [_plain(name, item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(name, item) for key, item in value.items()}
    if isinstance(value, Group):
        return {"matrices": value.matrices.tolist(), "name": value.name}
    raise TypeError(f"argument {name}={value!r} of type {type(value).__name__} cannot be saved as JSON")


def _expected_state(build: type[PretrainedModel], arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """Names and shapes of a model's tensors, without allocating them or advancing the user's random state."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return build(**arguments).state_dict()


def _check_rebuilds(model: PretrainedModel, fresh: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Refuse to save a model that its arguments no longer describe, since it could not be loaded."""
    changed = [n for n in {**fresh, **state} if n not in fresh or n not in state or _problem(n, state[n], fresh[n])]
    if changed:
        raise ValueError(
            f"this {own_class(model).__name__} is not what its arguments build (was it pruned, merged or edited?): "
            f"{len(changed)} tensors differ, {changed[0]} first; save it before such changes"
        )


def locate(source: str | os.PathLike, *, revision: str | None = None, token: str | None = None) -> Path:
    """The folder with both files: the given one, the ``model`` folder of a run, or a download if the Hub is named."""
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"source must be a folder or the name of a packaged network, got {source!r}")
    name = os.fspath(source)
    if name.startswith(HUB):
        if not is_repository(name.removeprefix(HUB)):  # else the Hub would be asked several times
            raise PretrainedError(f"{name!r} names no repository of the Hugging Face Hub; write {HUB}owner/name")
        try:
            return download(name.removeprefix(HUB), (CONFIG_NAME, WEIGHTS_NAME), revision=revision, token=token)
        except (ImportError, OSError, ValueError) as error:  # the Hub's own errors and the network's are of these
            raise PretrainedError(f"{name} cannot be downloaded from the Hub: {error}") from error
    folder = find_folder(name)
    if folder.is_dir():
        is_run = not (folder / WEIGHTS_NAME).is_file() and (folder / "model" / CONFIG_NAME).is_file()
        if not is_run and (folder / "checkpoints").is_dir():
            raise PretrainedError(f"the training in {folder} has not finished; run its command again to continue")
        return folder / "model" if is_run else folder
    if folder.exists():
        raise PretrainedError(f"{folder} is a file; pass the folder with {CONFIG_NAME} and {WEIGHTS_NAME}")
    # Nothing is asked for over the network by mistake: the name of a folder may be confidential.
    hint = f"; for a repository on the Hugging Face Hub write {HUB}{name}" if is_repository(name) else ""
    names = list_pretrained()
    near = difflib.get_close_matches(name.lower(), names, n=1)
    known = f"did you mean {near[0]!r}?" if near else f"the trained networks in torchsonic are {', '.join(names)}"
    raise PretrainedError(f"there is no folder {name!r}{hint}; {known}")


def _check_names_and_shapes(expected: Mapping[str, Tensor], state: Mapping[str, Tensor], path: Path) -> None:
    missing, foreign = sorted(expected.keys() - state.keys()), sorted(state.keys() - expected.keys())
    if missing or foreign:
        parts = " and ".join(
            _counted(names, word) for names, word in ((missing, "missing"), (foreign, "unexpected")) if names
        )
        raise PretrainedError(f"{path} contains the weights of another model: {parts}")
    for name, value in expected.items():
        if value.is_floating_point() and state[name].dtype not in DTYPES:
            raise PretrainedError(f"{path} stores {name} as {state[name].dtype}, which weights cannot have")
        problem = _problem(name, state[name], value)
        if problem:
            raise PretrainedError(f"{path} contains the weights of another model: {problem}")


def _counted(names: Sequence[str], word: str) -> str:
    """How many tensors are missing or unexpected, and the first three."""
    number = "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"
    return f"{number} {word} ({', '.join(names[:3])}{', ..' if len(names) > 3 else ''})"


def _problem(name: str, saved: Tensor, expected: Tensor) -> str | None:
    """How a tensor, or the definition of a layer, differs from the expected one."""
    if is_definition(name):
        problem = definition_problem(saved, expected)
        return problem and f"{name}: {problem}"
    if saved.shape == expected.shape:
        return None
    return f"{name} is {tuple(saved.shape)}, expected {tuple(expected.shape)}"


def _keep_dtypes(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Give parameters and buffers the dtype they were saved with, so that loading is bit-exact."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if name in state:
            tensor.data = tensor.data.to(state[name].dtype)
