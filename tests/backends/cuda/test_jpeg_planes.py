"""The device makes pixels of planes that are kept, and looks at no entropy-coded data of them."""

import random
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.backends.cuda.jpeg import Request
from accel.codec import jpeg
from accel.codec.jpeg import planes
from accel.codec.jpeg import planes_fields as pf
from accel.codec.jpeg.planes import PackedPlanes
from accel.planning.prefix import Prefixes
from accel.runtime.memo import result_lookup
from accel.system import memory
from tests.backends.cuda.indexed import FILES, boxes_of, by_host, decoded, whole
from tests.support import helpers
from tests.support.cached import Counts
from tests.support.cuda import host_only, needs_compiler, on_device
from tests.support.helpers import assert_same
from tests.support.indexed import intact
from tests.support.jpeg import packed, shape
from tests.support.planes import grey, some_samples, spoilt

pytestmark = needs_compiler


def check(wanted: list[Request], files: list[bytes]) -> None:
    decoding = decoded(wanted)
    assert decoding.flagged() == []
    for number, (each, data) in enumerate(zip(wanted, files, strict=True)):
        found = decoding.read(number, each.box[2] * each.box[3] * each.channels)
        expected = jpeg.decode(data, each.box, channels=each.channels)
        assert expected is not None
        np.testing.assert_array_equal(found, expected.reshape(-1))
    assert decoding.made.each() == {}


@pytest.mark.parametrize("name", FILES)
def test_regions_of_planes(name: str, poisoned: None) -> None:
    data = FILES[name]
    boxes = boxes_of(*shape(data)[:2], len(name))
    wanted = [Request(packed(data, box), box, each) for box in boxes for each in {shape(data)[2], 3}]
    check(wanted, [data] * len(wanted))


def test_any_files(thorough: bool) -> None:
    for seed in range(600 if thorough else 40):
        data, rng = intact(seed), random.Random(seed)
        if jpeg.decode(data) is not None:
            boxes = boxes_of(*shape(data)[:2], seed)[rng.randrange(3) :: 3]
            check([Request(packed(data, box), box, shape(data)[2]) for box in boxes], [data] * len(boxes))


def test_rows_of_more_blocks_than_threads() -> None:
    rng = np.random.default_rng(0)
    samples = some_samples(rng, 24, 8 * 600)
    meta, parts = grey(samples)
    for left, width in [(0, 4800), (8 * 255, 30), (8 * 256 + 3, 8 * 257), (4799, 1)]:
        box = (3, left, 20, width)
        first, last = planes.needed(meta, box)
        decoding = decoded([Request(PackedPlanes(meta, first, np.concatenate(parts[first:last])), box, 1)])
        assert decoding.flagged() == []
        found = decoding.read(0, 20 * width).reshape(20, width)
        np.testing.assert_array_equal(found, samples[3:23, left : left + width])


@host_only
def test_no_entropy_is_decoded(launched: list[tuple[str, int]]) -> None:
    data, box = FILES["420"], (20, 30, 60, 70)
    check([Request(packed(data, box), box, 3)], [data])
    assert [kernel for kernel, _ in launched] == ["jpeg_unpack", "jpeg_pixels"]


def test_files_and_planes_in_one_batch() -> None:
    names = ("420", "444", "grey", "rgb")
    wanted, files = [], []
    for number, name in enumerate(names):
        data = FILES[name]
        box = boxes_of(*shape(data)[:2], number)[-1]
        own = shape(data)[2]
        wanted += [Request(packed(data, box), box, own), whole(data, None), Request(data, box, own, by_host(data))]
        files += [data] * 3
    check(wanted, files)


def test_parts_that_are_not_the_regions_are_left_to_the_host() -> None:
    data = FILES["444"]
    box = (100, 10, 20, 30)
    good = packed(data, box)
    wrong = [
        good._replace(meta=good.meta[:-2]),
        good._replace(first=good.first - 1),
        good._replace(meta=b"\0" * len(good.meta)),
    ]
    decoding = decoded([Request(each, box, 3) for each in (*wrong, good)])
    assert [address is None for address in decoding.addresses] == [True, True, True, False]
    assert decoded([Request(good, box, 1)]).addresses == [None]
    assert decoding.flagged() == []


@host_only
def test_damage_is_flagged_or_harmless(poisoned: None) -> None:
    """No place that a damaged part names is looked at unless it is in the part."""
    flagged = 0
    for seed in range(60):
        data, rng = list(FILES.values())[seed % len(FILES)], random.Random(seed)
        box = boxes_of(*shape(data)[:2], seed)[-1]
        own = packed(data, box)
        meta, parts = spoilt(rng, own.meta, own.parts)
        decoding = decoded([Request(PackedPlanes(meta, own.first, parts), box, shape(data)[2])])
        flagged += decoding.addresses[0] is None or decoding.flagged() == [0]
    assert 20 < flagged < 60


@pytest.mark.parametrize("what", ["code", "size", "place", "short"])
def test_what_is_flagged(what: str) -> None:
    data, box = FILES["444"], (0, 0, 161, 183)
    own = packed(data, box)
    parts = own.parts.copy()
    row = int(parts[4:8].view(np.uint32)[0])
    if what == "code":
        parts[row + 5] = pf.STEEP + pf.WIDTHS**2
    elif what == "size":
        parts[:4].view(np.uint32)[0] = len(parts) + 1
    elif what == "place":
        parts[4:8].view(np.uint32)[0] = len(parts)
    else:
        parts = parts[:-1]
    assert decoded([Request(own._replace(parts=parts), box, 3)]).flagged() == [0]
    assert decoded([Request(own, box, 3)]).flagged() == []


@host_only
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_cache_that_another_run_has_filled(
    workers: int, tmp_path: Path, launched: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its planes are uploaded, and no file is read."""
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    monkeypatch.setattr(result_lookup, "prefixes", Prefixes())
    for number, name in enumerate(2 * ("420", "444", "grey", "intervals")):  # enough to tell what varies
        path = tmp_path / "data" / "class" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(FILES[name])
    dataset = ImageFolder(tmp_path / "data", T.Compose([T.RandomResizedCrop(40), T.ToTensor()]))
    cache = f"{tmp_path / 'cache'}:64MB"

    def epoch() -> torch.Tensor:
        images: torch.Tensor = next(iter(DataLoader(dataset, 8, num_workers=workers, timeout=60 * workers)))[0]
        return images

    for seed in (0, 1):
        helpers.run("cpu", lambda: epoch() + 0, seed, cache=cache)
    for seed in (2, 3):
        expected, _ = helpers.run("torchvision", epoch, seed)
        before = accel.stats()["planes used"]
        launched.clear()
        helpers.seed_everything(seed)
        assert_same(on_device(epoch, cache=cache), expected)
        assert accel.stats()["planes used"] == before + 8
        assert "jpeg_unpack" in dict(launched)
        assert "jpeg_segments" not in dict(launched)


def epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Iterable[bytes], transform: Any, epochs: int
) -> list[dict[str, int]]:
    """Epochs of files with a cache, which are torchvision's; what was put in and used in each."""
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    monkeypatch.setattr(result_lookup, "prefixes", Prefixes())
    paths = []
    for number, data in enumerate(files):
        paths.append(str(tmp_path / f"{number}.jpg"))
        Path(paths[-1]).write_bytes(data)

    def epoch() -> torch.Tensor:
        return torch.stack([transform(helpers.open_rgb(path)) for path in paths])

    counts, found = Counts(), []
    for seed in range(epochs):
        expected, _ = helpers.run("torchvision", epoch, seed)
        helpers.seed_everything(seed)
        assert_same(on_device(epoch, cache=f"{tmp_path / 'cache'}:64MB"), expected)
        found.append(counts())
    return found


@host_only
def test_a_run_fills_a_cache_by_and_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host decodes some files of each epoch, until the cache has all."""
    monkeypatch.setattr("accel.backends.cuda.jpeg.requests._turns", count())
    transform = T.Compose([T.RandomResizedCrop(40), T.ToTensor()])
    found = epochs(tmp_path, monkeypatch, list(FILES.values())[:6], transform, 10)
    made = [each.get("planes", 0) for each in found]  # of the first it is not yet told that they vary
    assert [each.get("planes used", 0) for each in found] == [sum(made[:number]) for number in range(10)]
    assert sum(made) == 6
    assert max(made) <= 2


@host_only
def test_results_of_any_sizes_are_made_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [helpers.jpeg(90 + 20 * (number % 3), 80, seed=number) for number in range(10)]
    transform = T.Compose([T.Resize(40), T.RandomCrop(32), T.ToTensor()])
    found = epochs(tmp_path, monkeypatch, files, transform, 3)
    assert found == [{"results": 10}, {"results used": 10}, {"results used": 10}]
