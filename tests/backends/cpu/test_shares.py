"""Batches of files, of which a thread takes its images in one compiled call: the same as image by image."""

import os
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision import transforms as T

import accel
from accel.backends.cpu import regions
from accel.codec import jpeg, store, store_fields, stream_index
from accel.errors import DecodeError
from accel.system import memory
from tests.backends.cpu.shared_batches import PIPELINE, Folder, poisoned, same
from tests.support import helpers, inside
from tests.support.processes import linux
from tests.support.shares import IN_BANDS, bands_from, begin_with_little_memory, new_store, noted

pytestmark = linux
WHOLE = T.Compose([T.Resize((40, 40)), T.ToTensor()])
COUNTED = ("images", "replaced", "kept", "indexes", "indexed", "indexes dropped")


def saved(size: tuple[int, int], seed: int, mode: str = "RGB", kind: str = "JPEG", **options: Any) -> bytes:
    rng = np.random.default_rng(seed)
    channels = len(mode) if mode != "L" else 0
    pixels = rng.integers(0, 256, (size[1], size[0], *([channels] if channels else [])), np.uint8)
    file = BytesIO()
    Image.fromarray(pixels, mode).save(file, kind, **options)
    return file.getvalue()


def mixed() -> list[bytes]:
    plain = [saved((300 + 7 * n, 200 + 3 * n), n, quality=70, subsampling=n % 3) for n in range(9)]
    strange = [
        saved((200, 300), 20, mode="L"),
        saved((220, 210), 21, progressive=True),
        saved((640, 480), 22, restart_marker_blocks=7),
        saved((1, 300), 23),
        saved((90, 3), 24),
        plain[0],
    ]
    return [each for pair in zip(plain, [*strange, *strange], strict=False) for each in pair]


@pytest.fixture(autouse=True, params=[IN_BANDS, 0], ids=["whole", "bands"])
def entries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[store.Store]:
    """A new store, and regions in one piece, or in bands."""
    bands_from(monkeypatch, request.param)
    yield from new_store(monkeypatch)


def counted(work: Callable[[], Any]) -> tuple[Any, dict[str, int], dict[str, int]]:
    before = accel.stats()
    made = work()
    after = accel.stats()
    reasons = {name: count - before["fallbacks"].get(name, 0) for name, count in after["fallbacks"].items()}
    return made, {name: after[name] - before[name] for name in COUNTED}, {n: c for n, c in reasons.items() if c}


@pytest.mark.parametrize("transform", [PIPELINE, WHOLE], ids=["train", "whole"])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_mixed_files(tmp_path: Path, threads: int, transform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = noted(monkeypatch, regions.FileRegions)
    folder = Folder(tmp_path, mixed())
    wanted = [folder.epoch(transform, seed) for seed in range(3)]
    with accel.image_backend("cpu", threads=threads):
        found = [folder.epoch(transform, seed) for seed in range(3)]
    assert all(map(same, found, wanted))
    assert sum(count for count, _ in shared) > 0


@pytest.mark.parametrize("cache", ["auto", None])
def test_counters_are_those_of_one_by_one(tmp_path: Path, cache: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.results, "empty", poisoned)
    folder, again = Folder(tmp_path / "x", mixed()), Folder(tmp_path / "y", mixed())
    with accel.image_backend("cpu", threads=1, cache=cache):
        found = counted(lambda: [folder.epoch(seed=seed) for seed in range(3)])
        inside.no_shares(monkeypatch)
        wanted = counted(lambda: [again.epoch(seed=seed) for seed in range(3)])
    assert all(map(same, found[0], wanted[0]))
    assert found[1:] == wanted[1:]
    assert (found[1]["indexed"] > 0) == (cache == "auto")


def test_either_way_uses_what_the_other_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path, [saved((400, 300), n, quality=60) for n in range(16)])
    for first in (True, False):
        with accel.image_backend("cpu", threads=1), monkeypatch.context() as patch:
            if first:
                inside.no_shares(patch)
            _, before, _ = counted(lambda: folder.epoch(WHOLE))
        with accel.image_backend("cpu", threads=1), monkeypatch.context() as patch:
            if not first:
                inside.no_shares(patch)
            _, after, _ = counted(lambda: folder.epoch(WHOLE))
        assert before["indexes"] == (16 if first else 0)
        assert (after["indexed"], after["indexes dropped"]) == (16, 0)


def test_damaged_files_are_named_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [saved((200, 150), n) for n in range(8)]
    folder = Folder(tmp_path, files)
    for number in (3, 6):
        (tmp_path / "a" / f"{number:03}.jpg").write_bytes(helpers.undecodable())

    def outcome() -> str:
        with pytest.raises(DecodeError) as caught:
            folder.epoch()
        return f"{caught.value.position} {caught.value}"

    for threads in (1, 3):
        with accel.image_backend("cpu", threads=threads):
            found = outcome()
        with accel.image_backend("cpu", threads=threads, on_error="replace"):
            black = counted(folder.epoch)
        with monkeypatch.context() as patch:
            inside.no_shares(patch)
            with accel.image_backend("cpu", threads=threads):
                assert found == outcome()
            with accel.image_backend("cpu", threads=threads, on_error="replace"):
                wanted = counted(folder.epoch)
        assert same(black[0], wanted[0])
        assert black[1]["replaced"] == wanted[1]["replaced"] == 2


def test_replaced_files_and_foreign_indexes(tmp_path: Path, entries: store.Store) -> None:
    """Another file, or another index, under the key of one."""
    folder = Folder(tmp_path, [saved((300, 200), n, quality=60) for n in range(8)])
    paths = sorted((tmp_path / "a").iterdir())
    with accel.image_backend("cpu", threads=1):
        folder.epoch(WHOLE)
        keys = [memory.key_of(os.stat(path)) for path in paths]
        index = jpeg.Index()
        assert jpeg.decode(paths[0].read_bytes(), index=index) is not None
        for key in keys[1:5]:
            assert key is not None
            assert entries.put(key, index.bytes) == store_fields.REPLACED
        _, counts, _ = counted(lambda: folder.epoch(WHOLE))
        assert counts["indexes dropped"] == 4
        paths[5].write_bytes(paths[6].read_bytes())
        found = folder.epoch(WHOLE)
    assert same(found, folder.epoch(WHOLE))


def test_flipped_bits_change_no_pixel(tmp_path: Path, entries: store.Store) -> None:
    folder, rng = Folder(tmp_path, [saved((300, 200), n, quality=60) for n in range(8)]), np.random.default_rng(0)
    wanted = folder.epoch(WHOLE)
    words = entries.layout.words.view(np.uint8)
    with accel.image_backend("cpu", threads=1):
        assert same(folder.epoch(WHOLE), wanted)
        touched = np.flatnonzero(words)
        for _ in range(60):
            words[rng.choice(touched, 20)] ^= np.uint8(1 << int(rng.integers(8)))
            assert same(folder.epoch(WHOLE), wanted)


def test_a_full_store_is_counted_once(tmp_path: Path, entries: store.Store) -> None:
    folder = Folder(tmp_path, [saved((300, 200), n, quality=60) for n in range(8)])
    entries.layout.places[store_fields.SEGMENTS] = 0
    wanted = folder.epoch(WHOLE)
    with accel.image_backend("cpu", threads=1):
        found, counts, reasons = counted(lambda: folder.epoch(WHOLE) and folder.epoch(WHOLE))
    assert same(found, wanted)
    assert reasons[stream_index.FULL] == 1
    assert counts["indexes"] == counts["indexed"] == 0


def test_workers(tmp_path: Path) -> None:
    folder = Folder(tmp_path, mixed())
    wanted = folder.epoch(WHOLE)
    with accel.image_backend("cpu", threads=2):
        folder.epoch(WHOLE)
        for _ in range(2):
            assert same(folder.epoch(WHOLE, num_workers=2, multiprocessing_context="fork"), wanted)


def test_more_working_memory_is_had_when_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = [saved((2600, 1800), n, quality=20, subsampling=0, restart_marker_blocks=1) for n in range(4)]
    folder = Folder(tmp_path, large)
    wanted = folder.epoch(WHOLE)
    begin_with_little_memory(monkeypatch)
    with accel.image_backend("cpu", threads=1):
        assert same(folder.epoch(WHOLE), wanted)
