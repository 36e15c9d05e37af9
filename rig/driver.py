"""Running the cuda backend's launches by the installed cuda.core on a stand-in for the driver (driver.cpp).

The host's kernels run at once all that is launched. ``install`` puts the stand-in into a folder; then

    LD_LIBRARY_PATH=<folder with libcuda.so.1> python -m rig.driver <check>

runs a check whose kernels were compiled before (``compile_for``).
"""

import ctypes
import gc
import mmap
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from io import BytesIO
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision import transforms

from rig.batches import batches, by_kernels, by_torchvision

ARCH = (9, 0)
NEWER = (99, 0)  # newer than any that NVRTC knows
A_NEWER_GPU = "a newer GPU"
FINISHED_WORK, LOCKED_MEMORY = "finished work", "locked memory"


def install(folder: Path) -> None:
    """Put the stand-in into a folder."""
    from accel.backends.cuda import host

    flags = ("-std=c++17", "-O1", "-shared", "-fPIC")
    (folder / "libcuda.so.1").write_bytes(host._compile(Path(__file__).with_suffix(".cpp"), flags))


def compile_for(check: str) -> None:
    """Compile all kernels that a check runs, before it, as with the stand-in NVRTC would look for a real driver."""
    from accel.backends.cuda import compile

    for unit in compile.UNITS if check != LOCKED_MEMORY else ():
        compile.cubin(unit, compile.arch_of(*(NEWER if check == A_NEWER_GPU else ARCH)))


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
    """The part of torch.cuda that the backend's device uses."""

    Event = Event
    current = Stream(0)
    capability = ARCH
    own = threading.local()  # the streams of threads that have their own

    @staticmethod
    def device(device: torch.device) -> Any:
        return nullcontext()

    @classmethod
    def get_device_capability(cls, index: int) -> tuple[int, int]:
        assert type(index) is int
        return cls.capability

    @classmethod
    def current_stream(cls) -> Stream:
        return getattr(cls.own, "stream", cls.current)

    @staticmethod
    def mem_get_info(device: torch.device) -> tuple[int, int]:
        return 8 << 30, 16 << 30

    @staticmethod
    def memory_reserved(device: torch.device) -> int:
        return 0

    memory_allocated = memory_reserved


class Torch(ModuleType):
    """torch, with ``Cuda`` in place of torch.cuda, and pinned memory that is not pinned."""

    cuda = Cuda

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def empty(*arguments: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        return torch.empty(*arguments, **options)


def driver_in_use(launched: list[Launched] | None = None) -> tuple[Any, list[Launched]]:
    """Make the backend's host device a ``CudaDevice``; return the driver, and the list of its launches."""
    launched = [] if launched is None else launched
    from accel.backends.cuda import device, host

    warnings.simplefilter("error")
    torch.cuda.is_available = lambda: False
    driver: Any = ctypes.CDLL("libcuda.so.1")

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
    """Check that decoded, cropped and resized batches, and effects, equal torchvision's, on any stream."""
    import accel

    driver, launched = driver_in_use()
    for stream in (0, 0x7F0012345678):
        with on_stream(driver, stream):
            _assert_equal("decoded")
        kernels = {each.kernel for each in launched}
        assert {"jpeg_count", "jpeg_join", "jpeg_pixels", "coefficients", "pass3"} <= kernels, kernels
        assert {each.stream for each in launched} == {stream}
        launched.clear()
    for name in ("mixed", "patches 3 False", "decoded larger"):
        _assert_equal(name)
    assert {"effects", "patch"} <= {each.kernel for each in launched}
    assert not accel.stats()["fallbacks"], accel.stats()


def _assert_equal(name: str) -> None:
    assert torch.equal(by_kernels(batches()[name]), by_torchvision(batches()[name])), name


class Queued(NamedTuple):
    """Queued work, with its stream and thread."""

    stream: int
    thread: str
    what: str


class Side(ModuleType):
    """The part of torch.cuda that ``accel.runtime.streams`` uses, with a stream for each thread."""

    def __init__(self, driver: Any) -> None:
        super().__init__("side")
        self._driver, self._handles = driver, count(0x7F00, 0x10)

    def Stream(self, device: torch.device) -> Any:
        made = Stream(next(self._handles))
        self._driver.fake_stream(ctypes.c_void_p(made.cuda_stream))
        return made

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        Cuda.own.stream = stream
        yield

    def current_stream(self, device: torch.device) -> Any:
        return Cuda.current_stream()


class Copies(TorchDispatchMode):
    """A mode that records the copies queued in this thread."""

    def __init__(self, queued: list[Queued]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._queued = queued

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function._schema.name == "aten::copy_":
            self._queued.append(Queued(Cuda.current_stream().cuda_stream, threading.current_thread().name, "copy"))
        return function(*args, **(kwargs or {}))


def copies_overlap() -> None:
    """Check that a batch's files are copied while the batch before is decoded, without waiting for it."""
    import accel
    from accel.runtime import streams

    queued: list[Queued] = []
    decoding, both = threading.Event(), threading.Event()

    class Order(list[Launched]):
        def append(self, each: Launched) -> None:
            queued.append(Queued(each.stream, threading.current_thread().name, each.kernel))

    def decoded(self: Event) -> None:
        """Wait with the first batch's pixels until the second one is decoded, too."""
        both.set() if decoding.is_set() else decoding.set()
        assert both.wait(20), "the second batch waits for the first"

    side = Side(driver_in_use(Order())[0])
    streams._module = lambda device: side
    Stream.record_event = lambda self: None  # type: ignore[attr-defined]
    Stream.wait_event = lambda self, event: None  # type: ignore[attr-defined]
    torch.Tensor.record_stream = lambda self, s: None  # type: ignore[method-assign]
    Cuda.device = staticmethod(lambda device: Copies(queued))  # type: ignore[method-assign]
    with accel.image_backend("cuda", device="cpu"):
        accel.submit(batches()["decoded"]()).result()  # the decoder is tried
        queued.clear()
        Event.synchronize = decoded  # type: ignore[method-assign]
        first = accel.submit(batches()["decoded"]())
        assert decoding.wait(20)
        for future in (accel.submit(batches()["decoded"]()), first):
            future.result()
    files = next(number for number, each in enumerate(queued) if each.thread != queued[0].thread)
    assert queued[files].what == "copy"
    before = {each.what for each in queued[:files]}
    assert {"copy", "jpeg_count", "jpeg_pixels"} <= before, before
    assert queued[files].stream not in {each.stream for each in queued[:files]}, "it is queued behind the first batch"


def launches_alone(device: Any, launches: Sequence[tuple[int, ...]]) -> Any:
    """Work with launches only, without copies."""
    memory = torch.empty(1, dtype=torch.uint8)
    calls = np.array([(0,) * 4, *launches, *[(0,) * 4] * device.ROOM], np.uint64)
    return device.Work(memory, calls, 1)


def every_kernel() -> None:
    """Check that every kernel is found, and that the driver gets the device's arguments, with 64-bit addresses."""
    from accel.backends.cuda import compile, device, host
    from accel.backends.cuda.driver import functions

    driver, launched = driver_in_use()
    one = device.CudaDevice(torch.device("cpu", 0))
    one.prepare()
    host.function = lambda name: lambda *arguments: None  # type: ignore[assignment, misc]
    gc.collect()
    expected, listed = [], []
    for number, name in enumerate(compile.KERNELS):
        expected.append(Launched(name, (1 << 31) - 1 - number, 0x7FFF_FFFF_FF00 + 8 * number, 16 + 4 * number, 0))
        listed.append((number, *expected[-1][1:-1]))
        one.launch(*expected[-1][:-1])
    assert launched == expected
    launched.clear()
    assert functions() is not None
    for handle in (0, 0x7F0012345678):  # all in one call
        with on_stream(driver, handle):
            one.submit(launches_alone(device, listed))
        assert launched == [each._replace(stream=handle) for each in expected]
        launched.clear()


def a_newer_gpu() -> None:
    """Check that the driver gets PTX, which is reported, and the error if it is too old for that."""
    import accel
    from accel.backends.cuda import compile, device

    driver, launched = driver_in_use()
    warnings.simplefilter("default")
    Cuda.capability = NEWER
    driver.fake_newest_ptx(ctypes.c_double(7.0))
    said = raised(lambda: device.CudaDevice(torch.device("cpu", 0)).prepare())
    assert "the driver refuses" in said, said
    assert "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" in said, said
    driver.fake_newest_ptx(ctypes.c_double(99.0))
    _assert_equal("decoded")
    assert {"jpeg_synchronise", "pass3"} <= {each.kernel for each in launched}
    assert all("does not know sm_990" in reason for reason in accel.stats()["fallbacks"]), accel.stats()
    Cuda.capability = (5, 0)
    assert "sm_50" in raised(lambda: compile.arch_of(*Cuda.capability))
    assert "sm_50" in raised(lambda: device.CudaDevice(torch.device("cpu", 0)).prepare())


def refusals() -> None:
    """Check that a refusal by the driver is raised, with its name."""
    from cuda.core import ObjectCode

    from accel.backends.cuda import compile, device, host

    _, launched = driver_in_use()
    one = device.CudaDevice(torch.device("cpu", 0))
    assert "CUDA_ERROR_INVALID_VALUE" in raised(lambda: one.launch("coefficients", 1 << 31, 64, 64))
    assert "grid" in raised(lambda: one.launch("coefficients", 0, 64, 64))
    number = compile.KERNELS.index("coefficients")
    both = launches_alone(device, [(number, blocks, 64, 64) for blocks in (1, 1 << 31, 1)])
    host.function = lambda name: lambda *arguments: None  # type: ignore[assignment, misc]
    assert "CUDA_ERROR_INVALID_VALUE" in raised(lambda: one.submit(both))
    assert [each.blocks for each in launched] == [1]
    launched.clear()
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


def finished_work() -> None:
    """Check that finished work of a worker goes to the driver in one call, and the error if it refuses a copy."""
    import accel
    from accel.processes import sent_files
    from accel.recipes.arrived import Arrived
    from accel.recipes.rows import Form, Rows, Slot, Structure
    from accel.runtime import compute

    forms = Form("crop", (Slot(0), 2, 20, 22)), Form("resize", (9, 11, 2)), Form("to_tensor", (torch.float32,))
    files, structure = [_jpeg(seed) for seed in range(3)], Structure.of(*forms)

    def rows() -> Rows:
        opened = [transforms.functional.pil_to_tensor(Image.open(BytesIO(data))) for data in files]
        return Rows([image.lazy.recipes[0].source for image in opened], structure, np.arange(3)[:, None])

    with accel.image_backend("cpu"):
        expected = compute.tensors(list(rows()))
    driver, launched = driver_in_use()
    driver.fake_moves.argtypes = [ctypes.c_size_t]
    with accel.image_backend("cuda", device="cpu"):
        packed = sent_files.pack(rows())
        assert packed is not None
        sent = sent_files.unpack(packed)
        assert isinstance(sent, Arrived)

        def made() -> torch.Tensor:
            return compute.tensors_on(torch.device("cpu"), sent)

        assert torch.equal(made(), expected)
        assert {"jpeg_coefficients", "jpeg_pixels", "coefficients", "pass3"} <= {each.kernel for each in launched}
        driver.fake_moves(3)  # the last one tells of the pictures
        with Moves() as moves:
            assert torch.equal(made(), expected)
        assert not moves.seen
        for accepted in range(3):
            driver.fake_moves(accepted)
            assert "refuses to copy between cpu:0 and the host (error 801)" in raised(made)


class Moves(TorchDispatchMode):
    """A mode that records torch's copies and fills."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function._schema.name in ("aten::copy_", "aten::zero_", "aten::fill_"):
            self.seen.append(function._schema.name)
        return function(*args, **(kwargs or {}))


def _jpeg(seed: int) -> bytes:
    content = BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (36, 40, 3), np.uint8)
    Image.fromarray(pixels).save(content, "JPEG")
    return content.getvalue()


def locked_memory() -> None:
    """Check that the driver locks and unlocks memory, and that refusals are reported."""
    import accel
    from accel.backends.cuda import device
    from accel.system.page_locks import Block

    driver, _ = driver_in_use()
    one = device.CudaDevice(torch.device("cpu", 0))
    pages = mmap.mmap(-1, 3 << 12)
    address = np.frombuffer(pages, np.uint8).ctypes.data
    for may in (1, 0):
        driver.fake_locks(may)
        block = Block(address, 2 << 12)
        assert [block.locked("cuda", one.lock) for _ in range(2)] == 2 * [bool(may)]
        assert driver.fake_locked() == may
        block.end()
        assert driver.fake_locked() == 0
    (reason,) = accel.stats()["fallbacks"]
    assert "does not lock the workers' memory (error 801)" in reason, reason


CHECKS = {
    "whole batches": whole_batches,
    "every kernel": every_kernel,
    A_NEWER_GPU: a_newer_gpu,
    "refusals": refusals,
    "copies overlap": copies_overlap,
    FINISHED_WORK: finished_work,
    LOCKED_MEMORY: locked_memory,
}

if __name__ == "__main__":
    CHECKS[sys.argv[1]]()
