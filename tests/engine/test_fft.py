"""Both backends give the same transforms and gradients; what VkFFT cannot do, PyTorch does, and says so once."""

import builtins
import os
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.func import grad

import torchsonic
from tests.layers import make_layer
from torchsonic.engine import fft
from torchsonic.engine.vkfft import RefusalError, make_engine
from torchsonic.functional import resample
from torchsonic.testing import relative_error

SIZES = [(8,), (9,), (6, 8), (5, 7), (4, 6, 10), (3, 5, 9)]
PRIMES = [(17,), (64, 31)]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


class StandIn:
    """An engine that works like VkFFT's but refuses what it is told to, and insists on real signals' spectra."""

    def __init__(self, refused=()):
        self.refused, self.calls = refused, 0

    def _check(self, size):
        self.calls += 1
        if tuple(size) in self.refused:
            raise RefusalError(f"size {tuple(size)}")

    def forward(self, x):
        self._check(x.shape[1:])
        return torch.fft.rfftn(x, dim=tuple(range(1, x.dim())))

    def complex(self, z, *, inverse):
        self._check(z.shape[1:])
        axes = tuple(range(1, z.dim()))
        return torch.fft.ifftn(z, dim=axes, norm="forward") if inverse else torch.fft.fftn(z, dim=axes)

    def inverse(self, spectrum, size):
        self._check(size)
        for index in (0, *([-1] if size[-1] % 2 == 0 else [])):
            plane = spectrum[..., index]
            axes = tuple(range(1, plane.dim()))
            mirrored = plane.flip(axes).roll((1,) * len(axes), axes) if axes else plane
            torch.testing.assert_close(plane, mirrored.conj().resolve_conj())
        return torch.fft.irfftn(spectrum, s=size, dim=tuple(range(1, spectrum.dim())), norm="forward")


@pytest.fixture
def stand_in(monkeypatch):
    engine = StandIn()
    monkeypatch.setattr(fft, "_engines", {"cpu": engine})
    with torchsonic.use_fft_backend("vkfft"):
        yield engine


def have_vkfft():
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of packages that are not ours
            # One transform: an OpenCL compiler that is older than the processor may refuse all.
            make_engine(torch.device("cpu")).forward(torch.zeros(1, 8))
    except RefusalError as reason:
        return str(reason)
    return None


@pytest.fixture(scope="module")
def vkfft():
    reason = have_vkfft()
    if reason is not None:
        if os.environ.get("TORCHSONIC_NEEDS_VKFFT"):
            pytest.fail(f"TORCHSONIC_NEEDS_VKFFT is set and VkFFT cannot run here: {reason}")
        pytest.skip(f"VkFFT cannot run here: {reason}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = make_engine(torch.device("cpu"))
    previous = dict(fft._engines)
    fft._engines["cpu"] = engine
    yield engine
    fft._engines.clear()
    fft._engines.update(previous)


def results(layer, x, **options):
    t = x.clone().requires_grad_()
    y = layer(t, **options)
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(0)).to(y)
    return [y, *torch.autograd.grad(y, [t, *layer.parameters()], weight)]


LAYERS = [
    {},
    {"execution": {"order": "channels", "mode_chunk": 2}},
    {"execution": {"order": "modes"}},
    {"stride": 2},
    {"padding_mode": "zeros"},
    {"padding_mode": "reflect"},
    {"variant": "paper", "field": 8},
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_layers_give_the_same_with_another_engine(stand_in, options, size):
    layer = make_layer(len(size), **options)
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    actual = results(layer, x)
    assert stand_in.calls >= 4
    with torchsonic.use_fft_backend("torch"):
        expected = results(layer, x)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [(4,), (5,), (3, 4), (4, 3), (2, 3, 4)])
def test_transforms_equal_those_of_torch_and_resizing_has_its_gradient(stand_in, size):
    x = torch.randn(2, *size, dtype=torch.float64, requires_grad=True)
    axes = tuple(range(1, 1 + len(size)))
    spectrum = torch.randn(2, *size[:-1], size[-1] // 2 + 1, dtype=torch.complex128)
    expected = torch.fft.irfftn(spectrum, s=size, dim=axes, norm="forward")
    torch.testing.assert_close(fft.irfftn(spectrum, size), expected)
    longer = tuple(n + 1 for n in size)
    for target in (size, longer):
        expected = torch.fft.rfftn(x.detach(), s=target, dim=axes, norm="forward")
        torch.testing.assert_close(fft.rfftn(x.detach(), target, scaled=True), expected)
    z = torch.randn(2, *size, dtype=torch.complex128)
    torch.testing.assert_close(fft.complex_fftn(z, len(size), scaled=True), torch.fft.fftn(z, dim=axes, norm="forward"))
    expected = torch.fft.ifftn(z, dim=axes, norm="forward")
    torch.testing.assert_close(fft.complex_fftn(z, len(size), inverse=True), expected)
    (gradient,) = torch.autograd.grad(resample(x[None], 6 if len(size) == 2 else 5).square().sum(), x)
    assert stand_in.calls >= 5
    with torchsonic.use_fft_backend("torch"):
        (expected,) = torch.autograd.grad(resample(x[None], 6 if len(size) == 2 else 5).square().sum(), x)
    torch.testing.assert_close(gradient, expected)


def test_compilers_and_function_transforms_get_torch(stand_in):
    layer, x = make_layer(2), torch.randn(2, 3, 4, 5, dtype=torch.float64)
    grad(lambda t: layer(t).square().sum())(x)
    assert stand_in.calls == 0
    y = layer(x.requires_grad_())
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    first.square().sum().backward()  # second derivatives mix both
    layer.zero_grad()
    assert stand_in.calls > 0
    torchsonic.functional.estimated_bytes(1, 3, 4, 5, (4, 5))  # tensors without numbers


def test_a_refused_size_falls_back_with_one_warning(stand_in):
    stand_in.refused = [(17,)]
    layer, x = make_layer(1), torch.randn(2, 3, 17, dtype=torch.float64)
    with pytest.warns(UserWarning, match=r"using torch.fft instead of VkFFT: size \(17,\)") as caught:
        actual = results(layer, x)
    assert len(caught) == 1
    calls = stand_in.calls
    results(layer, x)  # a further warning would be an error
    assert stand_in.calls == calls  # not asked again
    results(layer, x[..., :16])
    assert stand_in.calls > calls
    with torchsonic.use_fft_backend("torch"):
        expected = results(layer, x)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_missing_backend_falls_back_with_one_warning(monkeypatch):
    imported = builtins.__import__

    def without_vkfft(name, *arguments, **options):
        if name.partition(".")[0] in ("pyvkfft", "pyopencl"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return imported(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_vkfft)
    monkeypatch.setattr(fft, "_engines", {})
    layer, x = make_layer(2), torch.randn(2, 3, 4, 5, dtype=torch.float64)
    expected = results(layer, x)
    with torchsonic.use_fft_backend("vkfft"):
        with pytest.warns(UserWarning, match=r"torchsonic\[vkfft\]") as caught:
            actual = results(layer, x)
        assert len(caught) == 1
        results(layer, x)  # a further warning would be an error
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


class RacyPlan:
    """A plan like pyvkfft's for CUDA: not scaled, spoils the source of the way back, for one thread at a time."""

    def __init__(self, shape, dtype, *, ndim, inplace, norm, r2c, stream):
        assert (inplace, norm) == (False, 0)
        assert r2c == (dtype in (np.float32, np.float64))
        self.real = r2c
        self.axes, self.size, self.busy = tuple(range(1, 1 + ndim)), shape[1:], False

    def _alone(self, call):
        assert not self.busy, "two threads set one plan"
        self.busy = True
        time.sleep(0.002)
        call()
        self.busy = False

    def fft(self, source, result):
        transform = torch.fft.rfftn if self.real else torch.fft.fftn
        self._alone(lambda: result.copy_(transform(source, dim=self.axes)))

    def ifft(self, source, result):
        transform = torch.fft.irfftn if self.real else torch.fft.ifftn
        self._alone(lambda: result.copy_(transform(source, self.size, self.axes, norm="forward")))
        source.zero_()


@pytest.fixture
def cuda_engine(monkeypatch):
    """The engine for CUDA on what stands in for CuPy and pyvkfft."""
    cuda = SimpleNamespace(Device=lambda index: nullcontext(), ExternalStream=lambda stream: nullcontext())
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(asarray=lambda tensor: tensor, cuda=cuda))
    monkeypatch.setitem(sys.modules, "pyvkfft", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "pyvkfft.cuda", SimpleNamespace(VkFFTApp=RacyPlan))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=0))
    engine = make_engine(torch.device("cuda"))
    monkeypatch.setattr(fft, "_engines", {"cpu": engine})
    return engine


@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_plans_for_cuda_get_what_they_expect(cuda_engine, options):
    layer, x = make_layer(2, **options), torch.randn(2, 3, 5, 6, dtype=torch.float64)
    expected = results(layer, x)
    with torchsonic.use_fft_backend("vkfft"):
        actual = results(layer, x)
        assert not fft._told
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_threads_take_turns_with_a_plan_for_cuda(cuda_engine):
    x = torch.randn(8, 2, 6)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(cuda_engine.forward, x))
    torch.testing.assert_close(torch.stack(found), torch.fft.rfft(x))


def test_devices_without_vkfft_are_named():
    with pytest.raises(RefusalError, match="VkFFT does not support tensors on meta"):
        make_engine(torch.device("meta"))


def test_the_choice_is_told_and_ends_with_its_block():
    assert torchsonic.fft_backend() == "torch"
    with torchsonic.use_fft_backend("vkfft"):
        assert torchsonic.fft_backend() == "vkfft"
    assert torchsonic.fft_backend() == "torch"
    with pytest.raises(ValueError, match="name must be one of torch, vkfft, got 'fftw'"):
        torchsonic.set_fft_backend("fftw")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore")  # of packages that are not ours
class TestRealVkFFT:
    # Each size is compiled by OpenCL, which takes seconds; so wide numbers at a few.
    @pytest.mark.parametrize(
        ("size", "dtype"),
        [*[(size, torch.float32) for size in (*SIZES, *PRIMES)], *[(size, torch.float64) for size in SIZES[1:3]]],
    )
    def test_transforms_equal_torchs(self, vkfft, size, dtype):
        x = torch.randn(3, *size, dtype=dtype)
        spectrum = torch.fft.rfftn(x, dim=tuple(range(1, x.dim())))
        noise = torch.randn_like(spectrum)  # of no real signal
        with torchsonic.use_fft_backend("vkfft"):
            assert relative_error(fft.rfftn(x, size), spectrum) < TOLERANCE[dtype]
            for given in (spectrum, noise):
                expected = torch.fft.irfftn(given, s=size, dim=tuple(range(1, x.dim())), norm="forward")
                assert relative_error(fft.irfftn(given, size), expected) < TOLERANCE[dtype]
            assert not fft._told  # VkFFT did it

    @pytest.mark.parametrize("options", LAYERS, ids=str)
    def test_layers_and_their_gradients_equal_torchs(self, vkfft, options):
        layer = make_layer(2, dtype=torch.float32, **options)
        x = torch.randn(2, 3, 9, 8)
        expected = results(layer, x)
        with torchsonic.use_fft_backend("vkfft"):
            actual = results(layer, x)
            assert not fft._told
        for index, (a, b) in enumerate(zip(actual, expected, strict=True)):
            assert relative_error(a, b) < (1e-5 if index == 0 else 3e-4)
