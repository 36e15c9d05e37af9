"""Regions that the pass takes in bands: the same values as from the region in one piece."""

import math
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import transforms as T
from torchvision.transforms import v2

import accel
from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu import passes
from accel.backends.cpu import share_fields as sh
from accel.backends.cpu.passes import Axis
from accel.backends.cpu.regions import Block, FileRegions
from accel.backends.cpu.share_kernels import ENDED, note_time
from accel.codec import store
from accel.ops.resample import Aten
from accel.system import memory
from accel.system.timing import clocks
from accel.system.timing.compiled_stage import CLOCK
from bench.fuzz.coder import SAMPLINGS, Coder, random_blocks
from tests.backends.cpu.kernels import BILINEAR, FILTERS, needed
from tests.backends.cpu.shared_batches import Folder, poisoned, same
from tests.support import helpers
from tests.support.kernels import POISON, Array, axis, codes, emitted, no_fills, picture, random_table, walled, whole
from tests.support.processes import linux
from tests.support.shares import bands_from, begin_with_little_memory, new_store, noted

pytestmark = linux
ATEN = [each for each in Aten if each < Aten.BILINEAR_POINT]


class At:
    """An array at an address, of a shape that may be larger than the memory there."""

    def __init__(self, address: int, shape: tuple[int, ...]) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": "|u1", "version": 3}


def banded(
    src: Array, rows: Axis, cols: Axis, resample: int, fills: Array, table: Array, planar: bool, *, order: bool = False
) -> Array | None:
    """The result, interleaved, of a region in bands, behind which memory ends; None if it cannot be run in bands."""
    height, width, channels = src.shape
    band = walled(np.full(ps.BAND * width * channels + ps.BEHIND, POISON, np.uint8), at_end=True)
    region: Any = np.asarray(At(band.ctypes.data, src.shape))
    shape = (len(rows.window), len(cols.window), channels)
    out = np.full(math.prod(shape) * table.itemsize, POISON, np.uint8).view(table.dtype)
    out = out.reshape((channels, *shape[:2]) if planar else shape)
    factors = passes.factors_of(table)
    given = region, *rows, *cols, resample, order, fills, table, table.itemsize, factors, out, planar
    work = np.full(1, POISON, np.uint8)
    while (status := passes.RUN(*given, ps.BEGIN, work)) > 0:
        work = np.full(status, POISON, np.uint8)
    if status != 0:
        return None
    for begin in range(0, height, ps.BAND):
        some = src[begin : begin + ps.BAND].reshape(-1)
        band.reshape(-1)[: len(some)] = some
        assert passes.TAKE_ROWS(begin, work.ctypes.data) == 0
    band[:] = POISON
    assert passes.RUN(*given, ps.END, work) == 0
    return out.transpose(1, 2, 0) if planar else out


def compare(canvas: Array, rows: Axis, cols: Axis, resample: int, dtype: str, planar: bool, fills: Array) -> None:
    (top, bottom), (left, right) = needed(rows, resample & 7), needed(cols, resample & 7)
    region = np.ascontiguousarray(canvas[top:bottom, left:right])
    rows, cols = rows._replace(start=rows.start - top), cols._replace(start=cols.start - left)
    table = random_table(canvas.shape[2], dtype)
    found = banded(region, rows, cols, resample, fills, table, planar)
    assert (found is None) == (min(len(region), region[0].size) < ps.LEAST)
    if found is None:
        return
    want = np.empty_like(table, shape=found.shape)
    passes.run_ordered(
        region, rows, cols, resample, False, fills, table, passes.factors_of(table), want, planar=False
    )  # fmt: skip
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("resample", [*FILTERS, *ATEN])
def test_heights_around_bands(resample: int, channels: int) -> None:
    dtypes = ("uint8", "uint16", "uint32")
    for number, height in enumerate((16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 97, 130)):
        canvas = picture(height, 61 + number, channels, height)
        width = canvas.shape[1]
        for after in (7, 23, 60, 150):
            rows = Axis(*((height - 1, -1) if number % 3 else (0, 1)), height, 0.0, height, 29, whole(29))
            cols = Axis(*((width - 1, -1) if number % 2 else (0, 1)), width, 0.0, width, after, whole(after))
            planar = after % 2 == 0
            compare(canvas, rows, cols, resample, dtypes[number % 3], planar, no_fills(channels))
            tall = rows._replace(size=height, window=whole(height)[::-1].copy())  # rows as they are, upside down
            compare(canvas, tall, cols, resample, dtypes[after % 3], planar, no_fills(channels))


@pytest.mark.parametrize("resample", [*FILTERS, *ATEN])
def test_parts_and_fills(resample: int) -> None:
    rng, fills = np.random.default_rng(resample), np.array([[9, 99, 199]], np.uint8)
    for number in range(60):
        height, width = (int(each) for each in rng.integers(80, 200, 2))
        sizes = [int(each) for each in rng.integers(20, 120, 2)]
        windows = []
        for size in sizes:
            begin, stop = sorted(int(each) for each in rng.integers(-5, size + 6, 2))
            window = np.arange(min(begin, size - 18), max(stop, begin + 20, 3))[:: -1 if rng.random() < 0.5 else 1]
            windows.append(np.where((window < 0) | (window >= size), -1, window).astype(np.int32))
        rows, cols = (
            axis(length, size, window, *((length - 1, -1) if rng.random() < 0.5 else (0, 1)))
            for length, size, window in zip((height, width), sizes, windows, strict=True)
        )
        if all((axis.window >= 0).any() for axis in (rows, cols)):
            compare(picture(height, width, 3, number), rows, cols, resample, "uint32", bool(number % 2), fills)


def test_what_may_not_come_in_bands() -> None:
    table, fills = random_table(3), no_fills(3)
    whole_rows, cols = axis(40, 20), axis(50, 30)
    refused: list[tuple[Array, Axis, Axis, bool]] = [
        (picture(40, 50, 3), whole_rows, cols, True),  # rows before columns
        (picture(40, 50, 3), whole_rows, axis(50), False),  # columns as they are
        (picture(15, 50, 3), axis(15, 20), cols, False),
        (picture(40, 5, 3), whole_rows, axis(5, 30), False),
        (picture(41, 50, 3), whole_rows, cols, False),  # a row that is not needed
        (picture(40, 50, 3), axis(40, 20, codes(-1)), cols, False),  # no such colour
    ]
    for src, rows, columns, order in refused:
        assert banded(src, rows, columns, BILINEAR, fills, table, False, order=order) is None
    assert banded(picture(40, 50, 3), whole_rows, cols, BILINEAR, fills, table, False) is not None
    assert emitted(picture(40, 50, 3), whole_rows, cols, BILINEAR, fills, table).shape == (20, 30, 3)


# -- batches of files -----------------------------------------------------------------------------------------


@pytest.fixture
def all_in_bands(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Decode regions of any size in bands where that is possible, and poison the memory of results."""
    bands_from(monkeypatch, 0)
    monkeypatch.setattr(memory.results, "empty", poisoned)
    yield from (None for _ in new_store(monkeypatch))


def saved(height: int, width: int, seed: int, mode: str = "RGB", **options: Any) -> bytes:
    file = BytesIO()
    helpers.picture(width, height, mode, seed).save(file, "JPEG", **options)
    return file.getvalue()


def files() -> list[bytes]:
    heights = (95, 96, 97, 111, 112, 113, 127, 128, 129, 143, 160, 177)
    found = [
        saved(height, 120 + 5 * n, n, quality=75, subsampling=n % 3, **({"restart_marker_blocks": n} if n % 4 else {}))
        for n, height in enumerate(heights)
    ]
    for factors in SAMPLINGS:  # those of Pillow's among them
        if all(h <= 2 and v <= 2 for h, v in factors):
            components = [(i, *each) for i, each in enumerate(factors, 1)]
            found.append(Coder().file((101, 99), components, random_blocks(60)))
    return [*found, *(saved(90 + 7 * n, 130, n, "L") for n in range(4))]


NORMALIZED = [T.ToTensor(), T.Normalize([0.4] * 3, [0.3] * 3)]
HALF = [v2.ToImage(), v2.ToDtype(torch.float16, scale=True)]
ON_TENSORS = [T.PILToTensor(), v2.RandomResizedCrop(40, antialias=True), v2.RandomVerticalFlip()]
TRANSFORMS = {
    "crops": [T.RandomResizedCrop(48), T.RandomHorizontalFlip(), T.RandomVerticalFlip(), *NORMALIZED],
    "enlarged": [T.RandomResizedCrop(224, scale=(0.3, 1), ratio=(1, 3)), *NORMALIZED],
    "whole": [T.Resize((40, 60)), *NORMALIZED],
    "flipped first": [T.RandomVerticalFlip(0.7), T.RandomHorizontalFlip(), T.RandomResizedCrop(32), T.ToTensor()],
    "center": [T.Resize(60), T.CenterCrop(50), T.PILToTensor()],
    "edges": [T.RandomCrop(80), T.Resize((30, 50), T.InterpolationMode.LANCZOS), T.Pad(4, fill=7), T.ToTensor()],
    "bicubic": [v2.RandomResizedCrop(48, interpolation=v2.InterpolationMode.BICUBIC), *HALF],
    "tensors": [*ON_TENSORS, v2.ToDtype(torch.float32, scale=True)],
    "tensors, bicubic": [T.PILToTensor(), v2.Resize((33, 44), v2.InterpolationMode.BICUBIC), v2.RandomHorizontalFlip()],
    "box": [T.RandomResizedCrop(24, interpolation=T.InterpolationMode.BOX), T.PILToTensor()],
    "hamming": [T.RandomResizedCrop(24, interpolation=T.InterpolationMode.HAMMING), T.ToTensor()],
}


def listed(monkeypatch: pytest.MonkeyPatch) -> list[FileRegions]:
    """The files of each later batch that are decoded in compiled calls."""
    found: list[FileRegions] = []
    make = FileRegions.__init__

    def noting(self: FileRegions, *given: Any) -> None:
        make(self, *given)
        found.append(self)

    monkeypatch.setattr(FileRegions, "__init__", noting)
    return found


@pytest.mark.usefixtures("all_in_bands")
@pytest.mark.parametrize(("name", "cache"), [*((name, "auto") for name in TRANSFORMS), ("crops", None)])
def test_batches(name: str, cache: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, transform = Folder(tmp_path, files()), T.Compose(TRANSFORMS[name])
    wanted = [folder.epoch(transform, seed) for seed in range(2)]
    shared, made = noted(monkeypatch, FileRegions), listed(monkeypatch)
    threads = 1 if cache else 3
    with accel.image_backend("cpu", threads=threads, cache=cache):
        found = [folder.epoch(transform, seed) for seed in range(2)]
    assert all(map(same, found, wanted))
    assert sum(left for _, left in shared) == 0
    assert sum(int(each.regions[:, sh.IN_BANDS].sum()) for each in made) > len(files())
    if cache:
        assert accel.stats()["indexed"] > 0


@pytest.mark.usefixtures("all_in_bands")
def test_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, transform = Folder(tmp_path, files()), T.Compose(TRANSFORMS["crops"])
    wanted = folder.epoch(transform)
    begin_with_little_memory(monkeypatch)
    with accel.image_backend("cpu", threads=1):
        assert same(folder.epoch(transform), wanted)


@pytest.mark.usefixtures("all_in_bands")
def test_damaged_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some bands are taken before the damage; the file is left to Pillow, which reads it in its own way."""
    good = [saved(200, 180, n, quality=80) for n in range(8)]
    folder, transform = Folder(tmp_path, good), T.Compose(TRANSFORMS["whole"])
    broken = bytearray(good[3])
    broken[len(broken) // 2 : len(broken) // 2 + 60] = b"\xff\xd0" * 30
    (tmp_path / "a" / "003.jpg").write_bytes(broken)
    wanted, shared = folder.epoch(transform), noted(monkeypatch, FileRegions)
    with accel.image_backend("cpu", threads=1):
        found = folder.epoch(transform)
    assert same(found, wanted)
    assert shared == [(8, 1)]


@pytest.mark.usefixtures("all_in_bands")
def test_indexes_of_other_files(tmp_path: Path) -> None:
    """Rows that were decoded with a wrong index are not used."""
    folder, transform = Folder(tmp_path, [saved(200, 300, n, quality=85) for n in range(8)]), T.Resize((40, 30))
    whole = T.Compose([transform, T.ToTensor()])
    wanted, paths = folder.epoch(whole), sorted((tmp_path / "a").iterdir())
    with accel.image_backend("cpu", threads=1):
        assert same(folder.epoch(whole), wanted)
        entries = store.current()
        assert entries is not None
        touched = np.flatnonzero(entries.layout.words.view(np.uint8))
        rng = np.random.default_rng(0)
        for _ in range(30):
            entries.layout.words.view(np.uint8)[rng.choice(touched, 20)] ^= np.uint8(1 << int(rng.integers(8)))
            assert same(folder.epoch(whole), wanted)
        paths[5].write_bytes(paths[6].read_bytes())
        found = folder.epoch(whole)
    assert same(found, folder.epoch(whole))


def test_large_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large pictures are decoded in bands, in little memory; small ones in one piece."""
    monkeypatch.setattr(memory.results, "empty", poisoned)
    made = listed(monkeypatch)
    large, small = ([saved(*size, n) for n in range(8)] for size in ((1201, 1600), (300, 400)))
    for content, bands in ((large, True), (small, False)):
        folder, transform = Folder(tmp_path / str(bands), content), T.Compose(TRANSFORMS["whole"])
        wanted = folder.epoch(transform)
        with accel.image_backend("cpu", threads=1):
            assert same(folder.epoch(transform), wanted)
        assert made[-1].regions[:, sh.IN_BANDS].tolist() == [bands] * 8
        assert made[-1].room == (ps.BAND * 1600 * 3 + ps.BEHIND if bands else 300 * 400 * 3)


def test_time_in_the_pass_is_not_decoding() -> None:
    times = np.zeros((2, 2, 2), np.int64)
    share = Block(np.zeros(sh.WORDS, np.int64), {sh.CLOCK: CLOCK, sh.TIMES: times, sh.SPENT: 1_500_000_004})
    begun = clocks.now()
    note_time(share.words, 1, ENDED)
    ended = clocks.now()
    noted = times[1, ENDED, 0] * 1_000_000_000 + times[1, ENDED, 1]
    assert begun <= noted + 1_500_000_004 <= ended
    assert 0 <= times[1, ENDED, 1] < 1_000_000_000
    share.fill({sh.CLOCK: -1})
    times[:] = 0
    note_time(share.words, 1, ENDED)
    assert not times.any()
