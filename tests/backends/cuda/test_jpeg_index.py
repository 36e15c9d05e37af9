"""The device decodes from the points of stream indexes, and makes indexes of what it decoded without one."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel import testing
from accel.backends.cuda.jpeg import Decoding, Request, index
from accel.codec import jpeg, store_fields, stream_index
from accel.codec.jpeg import index_fields as ix
from accel.codec.store import Keys, Store
from accel.codec.stream_index import Indexes
from accel.system import memory
from bench.fuzz.files import pillow
from tests.backends.cuda.indexed import FILES, boxes_of, by_host, decoded, whole
from tests.support.cuda import DEVICE, host_only, needs_compiler, on_device, stacked
from tests.support.jpeg import shape, with_room
from tests.support.stream_index import count_of, packing, sealed

pytestmark = [needs_compiler, pytest.mark.usefixtures("small_batches_indexed")]

ROOMY = {name: with_room(data) for name, data in FILES.items() if name != "tiny"}  # which has one MCU
SPACED = {
    name: with_room(FILES[name], size)
    for name, size in (("420", 100), ("intervals", 3000), ("444", 5500), ("grey", 6000))
}
"""With fewer points than MCUs, and rows that begin between two of them."""


def known_of(decoding: Decoding) -> Any:
    assert decoding._indexing is not None
    return decoding._indexing.made()[1]


def check(wanted: list[Request], decoding: Decoding, flagged: list[int] | None = None) -> None:
    assert decoding.flagged() == (flagged or [])
    for number, (data, (top, left, height, width), channels, _) in enumerate(wanted):
        if number not in (flagged or []):
            found = decoding.read(number, height * width * channels).reshape(height, width, channels)
            expected = pillow(bytes(data)).reshape(*shape(bytes(data)))
            np.testing.assert_array_equal(found, expected[top : top + height, left : left + width])


@pytest.mark.parametrize("files", [ROOMY, SPACED], ids=["every MCU", "spaced"])
def test_the_device_makes_the_index_that_the_host_makes(files: dict[str, bytes]) -> None:
    """Also where only a region is decoded."""
    for regions in (False, True):
        wanted = [whole(data) for data in files.values()]
        if regions:
            wanted = [each._replace(box=(0, 0, 1, 1)) for each in wanted]
        decoding = decoded(wanted)
        check(wanted, decoding)
        assert sorted(decoding.made.each()) == list(range(len(wanted)))
        for number, data in enumerate(files.values()):
            np.testing.assert_array_equal(decoding.made.each()[number], by_host(data))


@pytest.mark.parametrize("name", [*ROOMY, *(f"{name}, spaced" for name in SPACED)])
def test_regions_by_an_index_are_pillows(name: str, poisoned: None) -> None:
    data = SPACED[name.removesuffix(", spaced")] if name.endswith("spaced") else ROOMY[name]
    height, width, channels = shape(data)
    known = by_host(data)
    wanted = [Request(data, box, channels, known) for box in boxes_of(height, width, len(name))]
    decoding = decoded(wanted)
    assert (known_of(decoding)[:, index.COUNT] > 0).all()
    assert decoding._indexing is not None
    assert decoding._indexing.indexed == len(wanted)
    check(wanted, decoding)
    assert decoding.made.each() == {}


@host_only
def test_nothing_is_unstuffed_or_synchronised(launched: list[tuple[str, int]]) -> None:
    data = ROOMY["420"]
    check([whole(data, None)], decoded([whole(data, None)]))
    assert not {"jpeg_points", "jpeg_segments"} & set(dict(launched))
    launched.clear()
    wanted = [whole(data, by_host(data))._replace(box=(20, 30, 60, 70))]
    check(wanted, decoded(wanted))
    assert set(dict(launched)) == {"jpeg_tables", "jpeg_segments", "jpeg_transform", "jpeg_pixels"}
    assert ("jpeg_segments", 1) in launched


def test_files_with_and_without_indexes_in_one_batch() -> None:
    damaged = bytearray(ROOMY["422"])
    damaged[-200:-190] = bytes(10)
    wanted = [
        whole(ROOMY["420"], by_host(ROOMY["420"])),
        whole(ROOMY["444"]),
        whole(ROOMY["grey"], None),
        whole(bytes(damaged), by_host(ROOMY["422"])),
        whole(ROOMY["intervals"], by_host(ROOMY["intervals"]))._replace(box=(50, 50, 60, 70)),
        whole(FILES["tiny"]),
        whole(ROOMY["rgb"], by_host(ROOMY["444"])),
    ]
    decoding = decoded(wanted)
    check(wanted, decoding, (decoding.flagged() and [3]) or [])
    counts = dict(zip(decoding.numbers().tolist(), known_of(decoding)[:, index.COUNT] > 0, strict=True))
    assert [number for number, known in counts.items() if known] == sorted([0, 4], key=list(counts).index)
    assert sorted(set(decoding.made.each()) - {3}) == [1, 6]
    misfits = dict(zip(decoding.numbers().tolist(), (known_of(decoding)[:, index.MISFIT] != 0).tolist(), strict=True))
    assert [number for number in range(7) if misfits[number]] == [3, 6]


def test_an_index_that_does_not_reach_far_enough_is_made_anew() -> None:
    data = ROOMY["444"]
    *_, channels = shape(data)
    part = by_host(data, (0, 0, 40, 10))
    above, below = (Request(data, box, channels, part) for box in ((8, 20, 20, 80), (30, 20, 60, 80)))
    decoding = decoded([above, below])
    check([above, below], decoding)
    assert sorted(decoding.made.each()) == [1]
    np.testing.assert_array_equal(decoding.made.each()[1], by_host(data))


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.sweep), 61])
def test_no_flipped_bit_of_an_index_makes_a_wrong_pixel(step: int) -> None:
    data = SPACED["intervals"]
    known = by_host(data)
    wanted = []
    for bit in range(step // 2, 8 * len(known), step):
        other = known.copy()
        other[bit // 8] ^= 1 << bit % 8
        wanted.append(whole(data, other)._replace(box=(90, 60, 17, 40)))
    decoding = decoded(wanted)
    check(wanted, decoding)
    used = known_of(decoding)[:, index.COUNT] > 0
    assert (used | known_of(decoding)[:, [index.MISFIT, index.WANTED]].any(1)).all()
    assert used.sum() < 0.1 * len(wanted)  # where a bit means nothing
    assert known_of(decoding)[:, index.MISFIT].sum() > 0.8 * len(wanted)


@pytest.mark.parametrize("change", ["byte", "bit", "dc", "mcu", "to"])
def test_the_kernels_themselves_hold_a_segment_against_the_next_point(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Had an index that is wrong passed for right."""
    data = SPACED["420"]
    read, rng = index.read, np.random.default_rng(len(change))

    def wrong(*arguments: Any) -> Any:
        known = read(*arguments)
        count = int(known.table[0, index.COUNT])
        for file in range(len(known.table)):
            segment = known.segments[known.table[file, index.FIRST] + rng.integers(count)]
            while not segment["whole"] or segment["to"]["byte"] == 0:
                segment = known.segments[known.table[file, index.FIRST] + rng.integers(count)]
            match change:
                case "byte":
                    segment["from"]["byte"] += rng.choice([-3, -2, -1, 1, 2, 3, 50])
                case "bit":
                    segment["from"]["bit"] = (segment["from"]["bit"] + rng.integers(1, 8)) % 8
                case "dc":
                    segment["from"]["dc"][rng.integers(3)] ^= 1 << rng.integers(10)
                case "mcu":
                    segment["mcus"] -= 1
                case "to":
                    segment["to"]["byte"] += 1
        return known

    monkeypatch.setattr(index, "read", wrong)
    decoding = decoded([whole(data, by_host(data)) for _ in range(20)])
    assert decoding.flagged() == list(range(20))


def test_a_segment_may_not_lead_out_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that begins shortly before its end decodes what is there, and then ones."""
    data = ROOMY["420"]
    read = index.read

    def wrong(*arguments: Any) -> Any:
        known = read(*arguments)
        for number in range(len(known.segments)):
            known.segments[number]["from"]["byte"] = len(data) - 1 - number % 40
        return known

    monkeypatch.setattr(index, "read", wrong)
    assert decoded([whole(data, by_host(data))]).flagged() == [0]


@pytest.mark.parametrize("change", ["a point", "the end"])
def test_points_that_go_back_are_refused(change: str) -> None:
    """In an index that is right by its digest and its checksum: lengths of segments and files would be below 0."""
    data = SPACED["420"]
    known = by_host(data)
    words, form = known.view(np.uint16).copy(), packing(data)
    last = (count_of(data, words) - 1) // ix.GROUP
    assert last > 0
    place = ix.POINTS + form.group * last if change == "a point" else ix.END
    words[place : place + 2] = words[ix.POINTS : ix.POINTS + 2]  # the first point's bit
    index = sealed(data, words).view(np.uint8)
    assert jpeg.known_points(data, index)
    wanted = [whole(data, index), whole(data, known), whole(data, index)]
    decoding = decoded(wanted)
    check(wanted, decoding)
    assert sorted(decoding.made.each()) == [0, 2]
    for made in decoding.made.each().values():
        np.testing.assert_array_equal(made, known)


@pytest.fixture
def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """Files whose keys are believed; each call makes others."""
    monkeypatch.setattr(memory, "SETTLED", -1.0)

    def made() -> list[Path]:
        paths = []
        for number, data in enumerate(ROOMY.values()):
            path = tmp_path / f"{number}.jpg"
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            os.utime(path, (1e9, 1e9))
            paths.append(path)
        return paths

    return made


def crops(paths: list[Path], seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)

    def transform(image: Image.Image) -> torch.Tensor:
        top, left = int(rng.integers(image.height)), int(rng.integers(image.width))
        height, width = int(rng.integers(1, image.height - top + 1)), int(rng.integers(1, image.width - left + 1))
        return F.to_tensor(F.resized_crop(image.convert("RGB"), top, left, height, width, [20, 30]))

    return stacked([Image.open(path) for path in paths], transform)


def test_epoch_by_epoch(settled: Callable[[], list[Path]]) -> None:
    paths = settled()
    for epoch in range(3):
        before = accel.stats()
        with accel.image_backend("torchvision"):
            expected = crops(paths, epoch)
        assert torch.equal(on_device(lambda epoch=epoch: crops(paths, epoch)), expected)
        found = {name: accel.stats()[name] - before[name] for name in ("indexes", "indexed", "indexes dropped")}
        made, used = (0, len(paths)) if epoch else (len(paths), 0)
        assert found == {"indexes": made, "indexed": used, "indexes dropped": 0}
        assert accel.stats()["fallbacks"] == before["fallbacks"]


def test_without_a_cache_nothing_is_kept(settled: Callable[[], list[Path]]) -> None:
    paths = settled()
    before = accel.stats()
    for epoch in range(2):
        with accel.image_backend("torchvision"):
            expected = crops(paths, epoch)
        assert torch.equal(on_device(lambda epoch=epoch: crops(paths, epoch), cache=None), expected)
    assert [accel.stats()[name] - before[name] for name in ("indexes", "indexed")] == [0, 0]


def test_a_file_that_was_rewritten_behind_its_key_is_noticed(
    settled: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = settled()[:3]
    on_device(lambda: crops(paths, 0))
    data = [path.read_bytes() for path in paths]
    for path, other in zip(paths, (data[1], data[2], data[0]), strict=True):
        path.write_bytes(other)
        os.utime(path, (1e9, 1e9))
    kept = [by_host(each) for each in data]

    def of_another(keys: Keys) -> Indexes:
        return Indexes.of({place: kept[places[inode]] for place, inode in enumerate(keys.rows[:, 1].tolist())})

    monkeypatch.setattr(stream_index, "known_of", of_another)
    before = accel.stats()["indexes dropped"]
    places = {path.stat().st_ino: number for number, path in enumerate(paths)}
    with accel.image_backend("torchvision"):
        expected = crops(paths, 7)
    assert torch.equal(on_device(lambda: crops(paths, 7)), expected)
    assert accel.stats()["indexes dropped"] == before + 3


def test_explain_says_it(settled: Callable[[], list[Path]]) -> None:
    paths = settled()
    with accel.image_backend("cuda", device=DEVICE):
        testing.computed(crops(paths, 0))
        said = str(accel.explain(crops(paths, 1)))
    assert f"stream index: kept of {len(paths)} of {len(paths)} files" in said


def test_a_full_store_is_asked_for_no_more(settled: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch) -> None:
    paths = settled()
    monkeypatch.setattr(stream_index, "_full", False)
    monkeypatch.setattr(Store, "put_all", lambda self, keys, *_: np.full(len(keys.rows), store_fields.FULL))
    made = []
    write = index.written
    monkeypatch.setattr(index, "written", lambda *arguments: made.extend(arguments[0]) or write(*arguments))
    for epoch in range(2):
        on_device(lambda epoch=epoch: crops(paths, epoch))
        assert len(made) == len(paths)
    assert stream_index.FULL in accel.stats()["fallbacks"]
