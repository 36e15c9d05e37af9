"""Processes of loops over loaders: what is measured of each, however it is started and ends."""

from __future__ import annotations

import atexit
import gzip
import json
import os
import signal
import threading
import time
import zipfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, default_collate
from torchvision.datasets import ImageFolder

import accel
from accel.profiling import collect
from tests.profiling.measure import EACH, Numbers, Sleeping, main, measured, workers
from tests.support.helpers import python
from tests.support.loaders import TRAIN
from tests.support.processes import linux


@pytest.mark.parametrize(
    ("backend", "method", "epochs"),
    [
        ("cpu", "fork", 2),
        ("cpu", "spawn", 1),
        ("torchvision", "fork", 2),
        pytest.param("torchvision", "forkserver", 2, marks=pytest.mark.sweep),
    ],
)
def test_workers_however_started(backend: str, method: str, epochs: int, folder: Path) -> None:
    with accel.image_backend(backend):
        loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=2, multiprocessing_context=method)
        result = measured(loader, epochs=epochs)
    found = [(each.loader, each.worker, each.images) for each in workers(result)]
    assert found == [(0, 0, 8 * epochs), (0, 1, 4 * epochs)]
    stage = "user" if backend == "torchvision" else "record"  # of all samples of a batch together
    assert all(each.stages[stage].count for each in workers(result))
    assert result.loaders[0].method == method
    assert result.loaders[0].draws
    for each in workers(result):  # one of each epoch, whose first batches are done when it has used some CPU time
        assert each.first is not None
        assert 4 * each.first.count == each.images  # two batches are all that it makes of an epoch
        assert 0 < (each.first.cpu_ns or 0) / 1e9 <= (each.cpu_s or 0)
        assert each.before_cpu_s is not None
        if method == "fork":  # what its parent has used, for torch's import and all else, does not count
            assert each.before_cpu_s < time.process_time()
        else:
            assert each.before_cpu_s > 0.2
    assert main(result).before_cpu_s is None
    assert len(result.loaders[0].startup_ns) == len(result.loaders[0].ended_ns) == epochs
    assert min(result.loaders[0].ended_ns) > 0
    assert main(result).images == epochs * EACH
    assert [(each.epoch, each.number, each.images) for each in result.batches] == [
        (epoch, number, 4) for epoch in range(epochs) for number in range(3)
    ]


def test_workers_of_all_epochs_have_names_in_a_trace(folder: Path, tmp_path: Path) -> None:
    loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=2)
    with accel.profile(show=False, trace=tmp_path / "trace.json") as report:
        batches = sum(len(list(loader)) for _ in range(3))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    assert sorted(names.values()) == ["main process", "worker 0 of loader 0", "worker 1 of loader 0"]
    sent = [each for each in events if each["name"] == "send"]
    assert len(sent) == batches == report.to_dict()["batches"]
    assert len({each["tid"] for each in sent}) == 6, "threads are told apart, as those of one process are"


def test_persistent_workers_from_before(folder: Path) -> None:
    with accel.image_backend("cpu"):
        loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=2, persistent_workers=True)
        list(loader)
        result = measured(loader)
        assert [each.images for each in workers(result)] == [8, 4]
        list(loader)  # not measured
        assert [each.images for each in workers(measured(loader))] == [8, 4]
        loader._iterator._shutdown_workers()  # type: ignore[union-attr]


def test_a_worker_that_is_killed(folder: Path) -> None:
    def run() -> None:
        iterator = iter(DataLoader(Sleeping(folder, user=0.01), 1, num_workers=2, timeout=30))
        next(iterator)
        os.kill(iterator._workers[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]
        list(iterator)

    profile = accel.profile(show=False)
    with pytest.raises((RuntimeError, OSError)), accel.image_backend("cpu"), profile:
        run()
    assert profile.report.measured.batches
    assert {each.worker for each in workers(profile.report.measured)} <= {0, 1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_that_leaves_the_block() -> None:
    with accel.profile(show=False) as report:
        parent = os.getpid()
        for number, _ in enumerate(DataLoader(Numbers(40), 2)):
            if number == 4 and not os.fork():
                break
    if os.getpid() != parent:
        os._exit(0)
    os.wait()
    assert report.stages["collate"]["count"] == 20


def test_a_worker_that_dies_while_measuring_ends() -> None:
    came = []

    def died(*_: Any) -> None:
        came.append(1)
        raise RuntimeError("a worker died")

    def dying() -> None:
        with collect.undisturbed():
            other = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGCHLD))
            other.start()
            other.join()
            time.sleep(0.01)
            profile.report.fill(collect.stop())

    before = signal.signal(signal.SIGCHLD, died)
    try:
        collect.start()
        profile = accel.profile(show=False)
        with pytest.raises(RuntimeError, match="a worker died"):
            dying()
        assert came
        assert profile.report.measured is not None
        assert signal.getsignal(signal.SIGCHLD) is died
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_the_first_profile_of_a_process_draws_nothing() -> None:
    script = """
import random, sys, accel
state = random.getstate()
assert "rich" not in sys.modules
with accel.profile(show=False):
    pass
assert "rich" in sys.modules and random.getstate() == state
"""
    python(script)


class Slow(Exception):
    """What torch is at for long when it is sent."""

    def __reduce__(self) -> Any:
        values = torch.ones(500, 500)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            values = (values @ values).clamp(0, 1)
        return Slow, ()


def leave_behind(folder: Path, worker: int) -> None:
    """What a worker has not written, nor done, when its loop ends."""
    global kept
    files = open(folder / "open", "w"), gzip.open(folder / "zipped", "wt")  # noqa: SIM115
    for file in files:
        file.write(str(worker))
    kept = *files, zipfile.ZipFile(folder / "archive", "w")
    said = folder / "at exit"
    atexit.register(lambda: said.write_text(said.read_text() + " second"))
    atexit.register(said.write_text, "first")


def slow_to_send(samples: Any) -> Any:
    return [default_collate(samples), Slow()]


@pytest.mark.parametrize(
    ("backend", "profiled"),
    [("torchvision", True), ("cpu", False), pytest.param("cpu", True, marks=pytest.mark.sweep)],
)
def test_a_worker_that_ends_while_it_sends(backend: str, profiled: bool, tmp_path: Path) -> None:
    """A thread that is in torch's C++ when its interpreter ends would end the process by a signal, almost each time."""
    left = partial(leave_behind, tmp_path)
    with accel.image_backend(backend), accel.profile(show=False) if profiled else nullcontext():
        loader = DataLoader(
            Numbers(40), 2, num_workers=1, multiprocessing_context="spawn", collate_fn=slow_to_send, worker_init_fn=left
        )
        iterator = iter(loader)
        next(iterator)
        (worker,) = iterator._workers  # type: ignore[attr-defined]
        iterator._shutdown_workers()  # type: ignore[attr-defined]
    assert worker.exitcode == 0
    assert gzip.decompress((tmp_path / "zipped").read_bytes()) == b"0"
    assert zipfile.is_zipfile(tmp_path / "archive")
    assert {name: (tmp_path / name).read_text() for name in ("open", "at exit")} == {
        "open": "0",
        "at exit": "first second",
    }


@linux
@pytest.mark.parametrize("count", [1, 2])
def test_batches_go_the_same_way_when_measuring_begins_and_ends(count: int, folder: Path) -> None:
    with accel.image_backend("cpu"):
        loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=count, persistent_workers=True)
        for measures in (False, True, False):
            with accel.profile(show=False) if measures else nullcontext():
                assert not any(images.is_shared() for images, _ in loader)  # but in slots that are used again
