"""The memory of processes that read one cache together."""

import gc
import os
import resource
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accel.backends.cpu.backend import CpuBackend, CpuOptions
from accel.cache.cache import Cache
from accel.cache.entry import PLANES
from accel.cache.segments import Segments, name_of
from accel.codec import jpeg
from accel.system.native import units
from tests.cache.kept import key
from tests.support.processes import in_child, linux

pytestmark = linux
PROCESSES, FILES, PARTS = 6, 4000, 12
"""Four workers and two ranks, and entries in so many parts as photos have."""

PART, PHOTO = 40, 240_000
"""The bytes of a part here, and of all parts of a photo: what a process keeps of an entry depends on neither."""


def _own(pid: int, folder: Path) -> int:
    """The bytes of a process, with its share of what several have. Not programs and libraries: how many others have
    those open is chance."""
    total, counts = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, *values = line.split(maxsplit=5)
        if not name.endswith(":"):
            path = values[4] if len(values) > 4 else ""
            counts = not path.startswith("/") or path.startswith(("/memfd:", "/dev/shm/", str(folder)))
        elif name == "Pss:" and counts:
            total += 1024 * int(values[0])
    return total


def _read(folder: Path, pipe: Any) -> None:
    gc.disable()  # it marks all objects that the parent has, which copies them: when it does is chance
    units.ready([jpeg.UNIT])  # as any worker has it, of a cache or of none
    out = np.empty(PARTS * PART, np.uint8)
    out[:] = 1  # what reads needs a buffer anyway
    pipe.send(os.getpid())
    pipe.recv()
    cache = Cache.open(folder, 1 << 30, version="test")
    assert cache is not None
    for number in (*range(FILES), *range(FILES)):
        found = cache.look(key(number))
        assert found is not None
        assert cache.read(found.entries[PLANES], 0, PARTS, out)
    pipe.send(None)
    pipe.recv()


def _grown(folder: Path, method: str, count: int, answer: Any) -> None:
    """Send what processes that this one starts take more when they have read a cache."""
    CpuBackend(CpuOptions(cache=f"{folder / 'cache'}:1GB")).prepare()  # before there are workers, as a loader does
    cache = Cache.open(folder / "cache", 1 << 30, version="test")
    assert cache is not None
    content = np.random.default_rng(1).integers(0, 256, PARTS * PART, np.uint8)
    ends = list(range(PART, PARTS * PART + 1, PART))
    for number in range(FILES):
        content[:8] = np.frombuffer(number.to_bytes(8, "little"), np.uint8)
        assert cache.put(key(number), b"file %d" % number, PLANES, content, b"meta" * 30, ends)
    cache.flush()
    found = cache.look(key(0))
    assert found is not None
    assert cache.read(found.entries[PLANES], 0, PARTS, np.empty(PARTS * PART, np.uint8))  # what is loaded once is there
    context: Any = get_context(method)
    pipes, processes = [], []
    for _ in range(count):
        own, other = context.Pipe()
        processes.append(context.Process(target=_read, args=(folder / "cache", other)))
        processes[-1].start()
        pipes.append(own)
    try:
        pids = [pipe.recv() for pipe in pipes]
        before = sum(_own(pid, folder) for pid in pids)
        for pipe in pipes:
            pipe.send(None)
        for pipe in pipes:
            pipe.recv()
        answer.send(sum(_own(pid, folder) for pid in pids) - before)
        for pipe in pipes:
            pipe.send(None)
    finally:
        for process in processes:
            process.join(60)
            process.kill()


@pytest.mark.parametrize(("method", "count"), [("fork", PROCESSES), ("spawn", 2)])
def test_many_processes_take_little_more_than_the_entries(tmp_path: Path, method: str, count: int) -> None:
    """What six of them have for themselves, together, is a twentieth of the entries at most."""
    context = get_context("spawn")  # of this process's memory, which all tests have filled, children would copy parts
    answer, other = context.Pipe()
    process = context.Process(target=_grown, args=(tmp_path, method, count, other))
    process.start()
    other.close()
    try:
        assert answer.recv() <= count / PROCESSES * 0.05 * FILES * PHOTO
    finally:
        process.join(60)
        process.kill()


def test_most_of_the_descriptors_are_left_to_the_training(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / name_of(number)).touch()

    def read() -> bool:
        in_use, (_, most) = set(map(int, os.listdir("/proc/self/fd"))), resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = [number for number in range(most) if number not in in_use][70]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
        segments = Segments(tmp_path)
        sizes = [segments.size(number) for number in range(100)]
        held = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
        return len(held) == 20 and not any(sizes)

    assert in_child(read)()
