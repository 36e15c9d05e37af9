"""Files that a worker reads straight into the slot in which it sends them."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel import switch
from accel.codec import opening
from accel.hooks import tv_files
from accel.options import Selection
from accel.recipe import Source
from accel.system import memory
from accel.workers import slot_files, slot_pool
from accel.workers.slot_files import SlotFiles
from tests.support.cuda import needs_compiler
from tests.support.helpers import assert_same, jpeg
from tests.support.processes import linux

pytestmark = [linux, needs_compiler]


@pytest.fixture
def selection(monkeypatch: pytest.MonkeyPatch) -> Iterator[Selection]:
    """That of a worker of a loader whose slots have room."""
    monkeypatch.setattr(slot_files, "_needed", {})
    monkeypatch.setattr(memory, "SETTLED", -1.0)
    monkeypatch.setattr(slot_pool, "_pool", None)
    with accel.image_backend("cuda", device="cpu"), slot_pool.loader() as until:
        found = switch.current()
        assert found is not None
        slot_files.note(found, 1, 40_000)
        yield found
        slot_pool._pool = None
        until(_Iterator())
    gc.collect()


class _Iterator:
    """With the end of which a loader's memory ends."""


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    for number in range(6):
        options: dict[str, Any] = {"progressive": True} if number == 3 else {}
        data = jpeg(120, 90 + number, "L" if number == 4 else "RGB", seed=number, **options)
        (tmp_path / f"{number}.jpg").write_bytes(data)
    return [str(tmp_path / f"{number}.jpg") for number in range(6)]


def one_by_one(paths: list[str], selection: Selection) -> list[Source | None]:
    return [tv_files.read(path, selection, tv_files._claimed_by_pillow) for path in paths]


def said(source: Source | None) -> Any:
    return source and (bytes(source.data), source.header, source.name, source.key, source.selection)


def test_the_same_sources(paths: list[str], selection: Selection) -> None:
    found = tv_files.opened_together(paths, selection)
    assert isinstance(found, SlotFiles)
    assert list(map(said, found)) == list(map(said, one_by_one(paths, selection)))
    assert found.keys() == [source.key for source in found]
    assert found.plain().tolist() == [source.header.plain for source in found]  # type: ignore[union-attr]
    assert (found.places[:, 0] % slot_files.ALIGNED == 0).all()


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff", b"no picture" * 50, b"\x89PNG\r\n\x1a\n" + bytes(50)])
def test_what_is_not_claimed_is_none(paths: list[str], selection: Selection, content: bytes) -> None:
    Path(paths[2]).write_bytes(content)
    found = tv_files.opened_together(paths, selection)
    assert list(map(said, found)) == list(map(said, one_by_one(paths, selection)))
    assert found[2] is None


def test_a_file_that_is_missing(paths: list[str], selection: Selection) -> None:
    Path(paths[1]).unlink()
    found = tv_files.opened_together(paths, selection)
    assert [source is None for source in found] == [number == 1 for number in range(6)]


def test_pictures_of_too_many_pixels_are_left_to_pillow(
    paths: list[str], selection: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow warns of more than its limit, and refuses more than twice that."""
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 120 * 92 // 2)
    with pytest.warns(Image.DecompressionBombWarning, match="exceeds limit"):
        found = tv_files.opened_together(paths, selection)
    assert [source is not None for source in found] == [number <= 2 for number in range(6)]


def test_room_is_learnt(paths: list[str], selection: Selection) -> None:
    slot_files._needed[selection] = 2000.0
    found = tv_files.opened_together(paths, selection)
    assert not isinstance(found, SlotFiles)
    assert list(map(said, found)) == list(map(said, one_by_one(paths, selection)))
    del found
    assert isinstance(tv_files.opened_together(paths, selection), SlotFiles)


def test_nothing_was_sent_yet(paths: list[str], selection: Selection) -> None:
    slot_files._needed.clear()
    assert not isinstance(tv_files.opened_together(paths, selection), SlotFiles)


def test_a_slot_comes_back_when_nobody_looks(paths: list[str], selection: Selection) -> None:
    pool = slot_pool.of_worker()
    assert pool is not None
    found = tv_files.opened_together(paths, selection)
    source = found[2]
    del found
    assert len(pool.looked_at) == 1
    content, key = Path(paths[2]).read_bytes(), said(source)
    others = [tv_files.opened_together(paths[3:], selection) for _ in range(3)]
    assert len(pool.looked_at) == 4
    assert key == said(source)
    assert source is not None
    assert bytes(source.data) == content
    del source, others
    gc.collect()
    assert not pool.looked_at


def test_damaged_room_is_not_taken_for_files(paths: list[str], selection: Selection) -> None:
    """What is between the files of a slot is what was there before."""
    pool = slot_pool.of_worker()
    assert pool is not None
    pool.empty((1 << 19,), torch.uint8).fill_(0xA5)
    found = tv_files.opened_together(paths, selection)
    assert isinstance(found, SlotFiles)
    assert [bytes(source.data) for source in found] == [Path(path).read_bytes() for path in paths]


def test_names_that_no_system_has(paths: list[str], selection: Selection) -> None:
    assert opening.read_behind([paths[0], "a\0b"], np.zeros(1 << 16, np.uint8), 64) is None


CROPS = T.Compose([T.RandomResizedCrop(40, scale=(0.05, 0.6)), T.RandomHorizontalFlip(), T.ToTensor()])


@pytest.mark.parametrize("grows", [False, True], ids=["alike", "growing"])
def test_what_is_sent_is_what_was_read(tmp_path: Path, grows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the files need more room than those before, they are copied to a slot that has it."""
    (tmp_path / "a").mkdir()
    for number in range(24):
        size = (60 + 20 * number, 50 + 20 * number) if grows else (90, 70 + number)
        (tmp_path / "a" / f"{number:02}.jpg").write_bytes(jpeg(*size, seed=number))
    (tmp_path / "taken").touch()
    own: Callable[..., Any] = SlotFiles.taken

    def taken(files: SlotFiles, size: int) -> Any:
        slot = own(files, size)
        with (tmp_path / "taken").open("a") as log:
            log.write("copied " if slot is None else "read ")
        return slot

    monkeypatch.setattr(SlotFiles, "taken", taken)

    def epoch() -> list[Any]:
        torch.manual_seed(3)
        loader = DataLoader(
            ImageFolder(str(tmp_path), CROPS), 4, num_workers=1, timeout=60, multiprocessing_context="fork"
        )
        return [(images.to("cpu").clone(), labels) for images, labels in loader]

    with accel.image_backend("torchvision"):
        expected = epoch()
    with accel.image_backend("cuda", device="cpu"):
        assert_same(epoch(), expected)
    ways = (tmp_path / "taken").read_text().split()
    assert len(ways) <= 5  # of six batches: not the first one
    assert set(ways) == {"copied" if grows else "read"}
