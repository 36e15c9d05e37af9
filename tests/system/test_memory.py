"""Memory for results and for files: used again once nobody looks at it, and bounded."""

import gc
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.datasets.folder import default_loader

import accel
from accel.codec.files import reader
from accel.codec.files.reader import FileBuffers
from accel.planning import stages
from accel.system import memory
from accel.system.memory import Results
from tests.support.helpers import jpeg

SIZES = [(3, 480, 640 - 7 * number) for number in range(40)]


def held(results: Results) -> int:
    return sum(idle.size for idle in results._idle)


def test_lists_of_images_use_their_memory_again() -> None:
    results, order = Results(), random.Random(0)
    places: set[int] = set()
    for _ in range(4):
        tensors = [results.empty(size, torch.float32) for size in order.sample(SIZES, len(SIZES))]
        assert len({tensor.data_ptr() for tensor in tensors}) == len(tensors)
        places |= {tensor.data_ptr() for tensor in tensors}
        del tensors
    assert len(places) < 1.5 * len(SIZES)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64], ids=str)
def test_what_somebody_looks_at_is_not_used_again(dtype: torch.dtype) -> None:
    results, shape = Results(), (3, 1000, 500)
    first = results.empty(shape, dtype).fill_(1)
    view = first[1, 3:5].numpy()
    del first
    second = results.empty(shape, dtype).fill_(2)
    assert (view == 1).all()
    assert view.ctypes.data != second.data_ptr()
    place = second.data_ptr()
    del second
    assert results.empty((3, 1000, 490), dtype).data_ptr() == place


def test_idle_memory_is_bounded() -> None:
    results = Results()
    tensors = [results.empty((1 << 22,), torch.float32) for _ in range(40)]  # of 16 MiB
    del tensors
    assert 0 < held(results) <= 1 << 28
    tensors = [results.empty((1 << 27,), torch.float32) for _ in range(3)]
    del tensors
    assert held(results) <= 1 << 30


def test_idle_memory_that_does_not_fit_is_given_back() -> None:
    results = Results()
    tensors = [results.empty(size, torch.float32) for size in SIZES]
    del tensors
    assert held(results) > 0
    for _ in range(300):
        results.empty((1 << 19,), torch.float32)
    assert held(results) < 4 << 20


@pytest.mark.parametrize("size", [8, 1 << 19])
def test_memory_of_a_giant_is_given_back_after_a_while(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small results, which have memory of torch's, must not keep it either."""
    now = 100.0
    monkeypatch.setattr(memory.time, "monotonic", lambda: now)
    results = Results()
    giant = results.empty((1 << 26,), torch.float32)
    del giant
    now += 9
    results.empty((size,), torch.float32)
    assert held(results) >= 1 << 28
    now += 2
    results.empty((size,), torch.float32)
    assert held(results) < 1 << 23


def test_what_is_remembered_of_plans_is_bounded() -> None:
    """Random policies plan every image anew: what is kept of that must not grow with the images."""
    order = random.Random(0)

    def planned(images: int) -> int:
        """Bytes that planning has kept after that many more images."""
        for _ in range(images):
            drawn = tuple(("adjust_sharpness", (order.uniform(0.5, 1.5),)) for _ in range(2))
            stages.chain((300, order.randrange(300, 400)), 3, drawn)
            stages.chain((300, 400), 3, (("crop", (0, 0, 200, 200)), ("resize", (224, 224, 2)), *drawn))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = planned(0)
        assert planned(4000) - before < 7 << 20
    finally:
        tracemalloc.stop()


SMALL, ORDINARY = 1 << 14, 1 << 18


@pytest.fixture(params=[str, Path])
def read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``reader.read`` with buffers of its own; by compiled code or, for a ``Path``, by Python."""
    monkeypatch.setattr(reader, "file_buffers", FileBuffers())
    return lambda path: reader.read(request.param(path))


@pytest.mark.parametrize("kept", [0, 300])
def test_files_are_read_whole(tmp_path: Path, read: Any, kept: int) -> None:
    """Whatever the size, and however many others are in use."""
    contents = {
        size: random.Random(size).randbytes(size)
        for edge in (0, SMALL, ORDINARY, 3 * ORDINARY)
        for size in range(max(edge - 1, 0), edge + 2)
    }
    for size, content in contents.items():
        (tmp_path / f"{size}").write_bytes(content)
    others = [read(tmp_path / f"{size}") for size in (SMALL, ORDINARY - 1) for _ in range(kept)]
    for _ in range(2):
        for size, content in contents.items():
            file = read(tmp_path / f"{size}")
            assert (file.size, bytes(file.buffer[: file.size])) == (size, content)
            reader.file_buffers.give_back(file.buffer)
    assert len(others) == 2 * kept
    assert read(tmp_path / "missing") is None


def test_buffers_of_files_are_used_again(tmp_path: Path, read: Any) -> None:
    places = set()
    (tmp_path / "file").write_bytes(bytes(100_000))
    for _ in range(300):
        file = read(tmp_path / "file")
        places.add(id(file.buffer))
        reader.file_buffers.give_back(file.buffer)
    kept = [read(tmp_path / "file") for _ in range(300)]
    assert len({id(file.buffer) for file in kept}) == 300
    del kept, file  # never given back: others may be made in their place
    assert len(places) == 1
    assert len(read(tmp_path / "file").buffer) == ORDINARY


@pytest.mark.parametrize(("side", "quality"), [(64, 85), (400, 95)])
def test_a_lazy_image_keeps_about_its_file(tmp_path: Path, side: int, quality: int) -> None:
    """As of a data set whose images are kept in memory; the first few of them hold a buffer."""
    path = tmp_path / "image.jpg"
    path.write_bytes(jpeg(side, side, quality=quality))
    size, count = path.stat().st_size, 1000
    assert size < 100_000
    with accel.image_backend("cpu"):
        default_loader(str(path))
        tracemalloc.start()
        try:
            kept = [default_loader(str(path)) for _ in range(count)]
            per_image = tracemalloc.get_traced_memory()[0] / count
        finally:
            tracemalloc.stop()
    assert len(kept) == count
    buffers = (128 * SMALL if size <= SMALL else 256 * ORDINARY) / count
    assert per_image < size + buffers + 4096
