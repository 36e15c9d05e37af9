"""Every test leaves the process as it found it."""

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import folder

import accel
from accel import backend as registry
from accel.backends.cuda import host
from accel.backends.cuda.jpeg import requests
from accel.processes.launch import environment
from accel.runtime.memo import pace
from accel.system import counters
from accel.system.native import units
from tests.support.backends import BACKENDS, Backend
from tests.support.helpers import write_image_folder

Image.preinit()
_JPEG_OPENER = Image.OPEN["JPEG"]
_PIL_LOADER = folder.pil_loader.__code__

torch.set_num_threads(1)  # the tests' tensors are small
_FOUND = tempfile.TemporaryDirectory()
os.environ[environment.TUNE_FILE] = os.path.join(_FOUND.name, "tuned")  # no run begins with what another one found

if os.name != "nt":
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:  # as a shell has it for what it runs in the background
            signal.signal(number, handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of a GPU are skipped without one, unless it is said that there must be one."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        if os.environ.get("ACCEL_REQUIRE_GPU") == "1":
            pytest.fail("there is no CUDA device, and ACCEL_REQUIRE_GPU=1")
        pytest.skip("needs a CUDA device")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before workers start, what they all use is compiled, once; all of numba's can be by other processes."""
    if not getattr(session.config.option, "numprocesses", None) or hasattr(session.config, "workerinput"):
        return
    for name in registry.availability():
        registry.find(name)
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr(units, "_compiled_here", lambda unit, done: pytest.exit(f"no process can compile {unit.name}", 1))
        by_compiler = pool.submit(host.HostDevice().prepare) if host.unavailable() is None else None
        units.ready(units.units())
        assert by_compiler is None or by_compiler.result() is None


def pytest_collection_finish() -> None:
    """Half a million objects that stay are looked through by no collection; many tests ask for one."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _back_to_torchvision() -> Iterator[None]:
    """Every test begins without accel, and leaves settings as they were where it forgot to."""
    assert Image.OPEN["JPEG"] is _JPEG_OPENER
    assert folder.pil_loader.__code__ is _PIL_LOADER
    limit = Image.MAX_IMAGE_PIXELS
    yield
    Image.MAX_IMAGE_PIXELS = limit
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)
    accel.set_image_backend("torchvision")
    block = counters.share()
    if block is not None and np.count_nonzero(counters._names[counters._row()]) > 64:  # more than any one process has
        counters.join(block.zero_())


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache takes every file when it comes first, whatever that costs."""
    monkeypatch.setattr(pace.Pace, "choose", lambda self, regions, whole, indexed: [*range(len(regions))])


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve good JPEG files in two classes."""
    return write_image_folder(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def paths(image_folder: Path) -> list[str]:
    """Those files, in the order of their numbers."""
    return [str(path) for path in sorted(image_folder.rglob("*.jpg"), key=lambda path: path.name)]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each backend that runs here."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[pytest.param(False, id="some"), pytest.param(True, id="all", marks=pytest.mark.sweep)])
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether to try all that can be told apart: many seeds, all sizes. The sweep does."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def small_batches_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device uses and makes stream indexes however few bytes a batch has."""
    monkeypatch.setattr(requests, "INDEXED", 0)
