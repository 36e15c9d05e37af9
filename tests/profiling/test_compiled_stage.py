"""Decoding within a compiled call for many images is a stage of its own, as if each image were decoded by itself."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

import accel
from accel.backends.cpu.shares import Share
from accel.profiling import collect
from accel.system.timing import clocks
from accel.system.timing.clocks import COUNT, CPU_NS, CPU_OF_NS, DECODE, HISTOGRAM, NS, TRANSFORM
from accel.system.timing.compiled_stage import compiled_stage
from tests.profiling.measure import EACH, main, workers
from tests.support import helpers
from tests.support.loaders import TRAIN
from tests.support.processes import linux
from tests.support.shares import IN_BANDS, bands_from

pytestmark = linux
EPOCHS = 3


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are all decoded in compiled calls for many."""
    root = tmp_path_factory.mktemp("photos")
    (root / "a").mkdir()
    for number in range(EACH):
        (root / "a" / f"{number:03}.jpg").write_bytes(helpers.jpeg(60 + 7 * number, 90, "RGB", number))
    return root


def refused(*given: Any) -> Any:
    raise AssertionError("an image was decoded by itself")


@pytest.mark.parametrize(("threads", "count", "in_bands"), [(1, 0, IN_BANDS), (3, 0, IN_BANDS), (1, 1, 0), (2, 0, 0)])
def test_each_image_is_clocked(
    threads: int, count: int, in_bands: int, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bands_from(monkeypatch, in_bands)
    loader = DataLoader(ImageFolder(str(photos), TRAIN), 4, num_workers=count)
    with accel.image_backend("cpu", threads=threads):
        for images, _ in loader:  # what is compared once
            images.numpy()
        monkeypatch.setattr("accel.runtime.read.pixels", refused)
        begun = clocks.now()
        collect.start(trace=True)
        try:
            for _ in range(EPOCHS):
                for images, _ in loader:
                    images.numpy()
        finally:
            measured = collect.stop()
        ended = clocks.now()
    decoded = [event for event in measured.events if event[2] == "decode"]
    computed = [event for event in measured.events if event[2] == "transform"]
    process = workers(measured)[0] if count else main(measured)
    stage = process.stages["decode"]
    if not count:
        assert stage.count == len(decoded) == EPOCHS * EACH
        assert stage.ns == sum(took for *_, took in decoded)
    assert sum(stage.histogram) == stage.count
    assert all(took > 0 for *_, took in decoded)
    for _, _, _, since, took in decoded:
        assert begun < since < since + took < ended
        assert any(at <= since and since + took <= at + of for _, _, _, at, of in computed)
    one = [event for event in decoded if event[1] == decoded[0][1]]  # of a thread: one after the other
    assert all(a[3] + a[4] <= b[3] for a, b in pairwise(one))


def test_the_same_calls_with_and_without_clocks(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    run = Share.run

    def noted(self: Share, *given: Any) -> list[int]:
        asked.append(len(self.regions.positions))
        return run(self, *given)

    monkeypatch.setattr(Share, "run", noted)
    loader = DataLoader(ImageFolder(str(photos), TRAIN), 4)

    def epochs() -> tuple[list[int], list[torch.Tensor]]:
        torch.manual_seed(0)
        asked.clear()
        found = [images.numpy() for _ in range(EPOCHS) for images, _ in loader]
        return list(asked), [torch.from_numpy(each) for each in found]

    with accel.image_backend("cpu", threads=1):
        without = epochs()
        with accel.profile(show=False):
            measured = epochs()
    assert measured[0] == without[0] == [4] * (EPOCHS * EACH // 4)
    assert all(map(torch.equal, measured[1], without[1]))


def write(times: Any, image: int, begun: int, ended: int) -> None:
    times[image] = divmod(begun, 1_000_000_000), divmod(ended, 1_000_000_000)


def test_its_time_is_taken_off_what_it_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([(0, 0), (1000, 100), (10_000, 1900), (20_000, 2000)])
    at = [0, 0]

    def tick() -> None:
        at[:] = next(ticks)

    def computed() -> None:
        tick()
        with compiled_stage(DECODE, TRANSFORM, 4) as times:
            write(times, 1, 1_999_999_000, 2_000_003_000)
            write(times, 3, 7, 2007)
            tick()
        tick()

    collect.start()
    try:
        monkeypatch.setattr(clocks, "now", lambda: at[0])
        monkeypatch.setattr(clocks, "cpu_ns", lambda: at[1])
        tick()
        clocks.timed(TRANSFORM, computed)()
        found = clocks.total().copy()
    finally:
        monkeypatch.undo()
        collect.stop()
    assert found[DECODE, [COUNT, NS]].tolist() == [2, 6000]
    assert found[DECODE, HISTOGRAM:].sum() == 2
    assert found[TRANSFORM, [COUNT, NS]].tolist() == [1, 14_000]
    assert found[DECODE, [CPU_NS, CPU_OF_NS]].tolist() == [1200, 6000]  # its part of 1800 in 9000
    assert found[TRANSFORM, [CPU_NS, CPU_OF_NS]].tolist() == [800, 14_000]


def test_nobody_measures() -> None:
    with compiled_stage(DECODE, TRANSFORM, 4) as times:
        assert times.shape == (0, 2, 2)
