"""The cuda backend's launches through the installed cuda.core, onto a stand-in for the driver (driver.cpp).

The host's kernels run at once what the driver is given. ``install`` puts the stand-in into a folder; then

    LD_LIBRARY_PATH=<folder with libcuda.so.1> python -m rig.driver <check>
"""

import ctypes
import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from rig.batches import batches, by_kernels, by_torchvision

ARCH = (9, 0)


def install(folder: Path) -> None:
    """Put the stand-in into a folder, and compile all kernels: NVRTC would look for a real driver."""
    from accel.backends.cuda import compile, host

    flags = ("-std=c++17", "-O1", "-shared", "-fPIC")
    (folder / "libcuda.so.1").write_bytes(host._compile(Path(__file__).with_suffix(".cpp"), flags))
    for unit in compile.UNITS:
        compile.cubin(unit, "sm_90")


class Launched(NamedTuple):
    kernel: str
    blocks: int
    items: int
    owners: int
    stream: int


class Stream:
    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle


class Event:
    def __init__(self, blocking: bool) -> None:
        assert blocking

    def record(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class Cuda:
    """Answers what the backend's device asks of torch.cuda."""

    Event = Event
    current = Stream(0)

    @staticmethod
    def device(device: torch.device) -> Any:
        return nullcontext()

    @staticmethod
    def get_device_capability(index: int) -> tuple[int, int]:
        assert type(index) is int
        return ARCH

    @classmethod
    def current_stream(cls) -> Stream:
        return cls.current

    @staticmethod
    def mem_get_info(device: torch.device) -> tuple[int, int]:
        return 8 << 30, 16 << 30

    @staticmethod
    def memory_reserved(device: torch.device) -> int:
        return 0

    memory_allocated = memory_reserved


class Torch(ModuleType):
    """torch, with that in the place of torch.cuda, and pinned memory that is not pinned."""

    cuda = Cuda

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def empty(*arguments: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        return torch.empty(*arguments, **options)


def driver_in_use() -> tuple[Any, list[Launched]]:
    """Make the backend's stand-in for a device a ``CudaDevice``; returns the driver, and what it has launched."""
    from accel.backends.cuda import device, host

    warnings.simplefilter("error")
    torch.cuda.is_available = lambda: False
    driver: Any = ctypes.CDLL("libcuda.so.1")
    launched: list[Launched] = []

    def run(name: bytes, blocks: int, items: int, owners: int, stream: int | None) -> None:
        launched.append(Launched(name.decode(), blocks, items, owners, stream or 0))
        host.function(name.decode())(blocks, items, owners)

    kind = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    driver.keep = kind(run)
    driver.fake_runner(driver.keep)
    device.torch = Torch("torch")  # type: ignore[attr-defined]
    host.HostDevice = lambda: device.CudaDevice(torch.device("cpu", 0))  # type: ignore[assignment, misc, return-value]
    return driver, launched


@contextmanager
def on_stream(driver: Any, handle: int) -> Iterator[None]:
    driver.fake_stream(ctypes.c_void_p(handle))
    before, Cuda.current = Cuda.current, Stream(handle)
    try:
        yield
    finally:
        Cuda.current = before


def raised(function: Callable[[], object]) -> str:
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("nothing was raised")


def whole_batches() -> None:
    """Decoded by accel, cropped, resized; and effects: equal to torchvision's, on whatever stream."""
    import accel

    driver, launched = driver_in_use()
    for stream in (0, 0x7F0012345678):
        with on_stream(driver, stream):
            _assert_equal("decoded")
        kernels = {each.kernel for each in launched}
        assert {"jpeg_count", "jpeg_join", "jpeg_pixels", "coefficients", "pass3"} <= kernels, kernels
        assert {each.stream for each in launched} == {stream}
        launched.clear()
    for name in ("mixed", "patches 3 False", "decoded larger", "jpeg RGB"):
        _assert_equal(name)
    assert {"effects", "patch"} <= {each.kernel for each in launched}
    assert not accel.stats()["fallbacks"], accel.stats()


def _assert_equal(name: str) -> None:
    assert torch.equal(by_kernels(batches()[name]), by_torchvision(batches()[name])), name


def every_kernel() -> None:
    """Each is found, and the driver is given what the device was given, addresses of 64 bits among it."""
    from accel.backends.cuda import compile, device, host

    _, launched = driver_in_use()
    one = device.CudaDevice(torch.device("cpu", 0))
    one.prepare()
    host.function = lambda name: lambda *arguments: None  # type: ignore[assignment, misc]
    gc.collect()
    expected = []
    for number, name in enumerate(name for names in compile.UNITS.values() for name in names):
        expected.append(Launched(name, (1 << 31) - 1 - number, 0x7FFF_FFFF_FF00 + 8 * number, 16 + 4 * number, 0))
        one.launch(*expected[-1][:-1])
    assert launched == expected


def refusals() -> None:
    """A refusal of the driver is raised, and named."""
    from cuda.core import ObjectCode

    from accel.backends.cuda import compile, device

    _, launched = driver_in_use()
    one = device.CudaDevice(torch.device("cpu", 0))
    assert "CUDA_ERROR_INVALID_VALUE" in raised(lambda: one.launch("coefficients", 1 << 31, 64, 64))
    assert "grid" in raised(lambda: one.launch("coefficients", 0, 64, 64))
    Cuda.current = Stream(0xBAD)
    assert "CUDA_ERROR_INVALID_HANDLE" in raised(lambda: one.launch("coefficients", 1, 64, 64))
    Cuda.current = Stream(0)
    code = compile.cubin("coefficients", "sm_90")
    assert "CUDA_ERROR_NOT_FOUND" in raised(
        lambda: ObjectCode.from_cubin(code, name="coefficients").get_kernel("pass1")
    )
    assert "CUDA_ERROR_INVALID_IMAGE" in raised(
        lambda: ObjectCode.from_cubin(b"not a cubin").get_kernel("coefficients")
    )
    assert not launched


CHECKS = {"whole batches": whole_batches, "every kernel": every_kernel, "refusals": refusals}

if __name__ == "__main__":
    CHECKS[sys.argv[1]]()
