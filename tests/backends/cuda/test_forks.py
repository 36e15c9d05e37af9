"""A forked child never frees what belongs to its parent's GPU (tests/support/own_process.py)."""

import gc
from multiprocessing import get_context
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T

import accel
from tests.support import own_process
from tests.support.cuda import host_only, needs_compiler
from tests.support.fake_accelerator import have_pin_thread
from tests.support.helpers import Files, assert_same
from tests.support.loaders import batch
from tests.support.processes import TIMEOUT, finished, in_child, linux, plain, started

pytestmark = [needs_compiler, host_only, linux]

SMALL = T.Compose([T.Resize((40, 48)), T.ToTensor()])


@pytest.fixture
def owned(monkeypatch: pytest.MonkeyPatch) -> None:
    have_pin_thread(monkeypatch)
    own_process.install(monkeypatch)


class Dropping(Files):
    """Drops in its workers what it was given, and has them look for garbage."""

    given: Any = None

    def __getitem__(self, index: int) -> Any:
        self.given = None
        gc.collect()
        return super().__getitem__(index)


def in_a_cycle() -> None:
    """An event as garbage, until the collector comes."""
    cycle: list[Any] = [own_process.Event()]
    cycle.append(cycle)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(
    "method", ["fork", *(pytest.param(each, marks=pytest.mark.sweep) for each in ("spawn", "forkserver"))]
)
@pytest.mark.parametrize("options", [{}, {"decode": "host"}], ids=str)
def test_three_epochs(paths: list[str], owned: None, method: str, persistent: bool, options: dict[str, Any]) -> None:
    wanted = plain(lambda: [images for images, _ in DataLoader(Files(paths, SMALL), batch_size=2)])
    accel.set_image_backend("cuda", device="cpu", prefetch=7, **options)  # a backend of its own
    batch(paths).to("cpu")  # compiles: no worker is to inherit the compiler's pipes
    dataset = Dropping(paths, SMALL)
    loader: DataLoader[Any] = DataLoader(
        dataset, 2, pin_memory=True, num_workers=1, multiprocessing_context=method, timeout=TIMEOUT,
        persistent_workers=persistent,
    )  # fmt: skip
    for _ in range(3):
        dataset.given = batch(paths).pin_memory() if method == "fork" else None
        in_a_cycle()
        iterator: Any = iter(loader)
        assert_same([images.to("cpu") for images, _ in iterator], wanted)
    del loader
    iterator._shutdown_workers()
    assert [worker.exitcode for worker in iterator._workers] == [0]


def test_a_submitted_batch_that_a_child_drops(paths: list[str], owned: None) -> None:
    accel.set_image_backend("cuda", device="cpu")
    batch(paths).to("cpu")
    holder: list[Any] = [batch(paths).pin_memory(), accel.submit(batch(paths))]
    expected = plain(lambda: batch(paths))
    torch.testing.assert_close(holder[1].result(TIMEOUT), expected, rtol=0, atol=0)

    def dropped() -> bool:
        same = torch.equal(holder[0].clone(), expected)
        holder.clear()
        gc.collect()
        return same

    assert in_child(dropped)()


def test_a_child_that_ends_by_itself(paths: list[str]) -> None:
    """Its interpreter lets go of all that it has."""
    code = """
import os, sys, warnings, pytest, accel
from tests.support import own_process
from tests.support.loaders import batch
warnings.simplefilter("ignore")  # of a fork beside threads
own_process.install(pytest.MonkeyPatch())
accel.set_image_backend("cuda", device="cpu")
images = batch(sys.argv[1:])
images.pin_memory()
images.to("cpu")
if child := os.fork():
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    sys.stdout.flush()
    os._exit(0)
"""
    status, out, err = finished(started(code, *paths))
    assert (status, out) == (0, "0\n"), err


def test_a_submitted_batch_that_outlives_its_module(paths: list[str]) -> None:
    code = """
import sys, threading, accel
from tests.support.loaders import batch
accel.set_image_backend("cuda", device="cpu")
threading.kept = batch(sys.argv[1:])
threading.kept.pin_memory()
"""
    assert finished(started(code, *paths)) == (0, "", "")


def compare_in_child(images: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(images, expected)


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.sweep)])
def test_a_lazy_batch_that_a_new_process_is_given(paths: list[str], method: str) -> None:
    """Its memory would be gone before the process begins, and the number of a handle be another one's."""
    expected = plain(lambda: batch(paths))
    accel.set_image_backend("cuda", device="cpu")
    process: Any = get_context(method).Process(target=compare_in_child, args=(batch(paths), expected))  # type: ignore[attr-defined]
    process.start()
    process.join(TIMEOUT)
    assert process.exitcode == 0


def test_a_child_that_frees_it_would_show(owned: None) -> None:
    for make in (own_process.Event, own_process.Stream, lambda: own_process._pinned(None, 9)):
        holder: list[Any] = [make()]
        assert not in_child(lambda held=holder: held.clear() is None)()  # type: ignore[misc]
        holder.clear()
