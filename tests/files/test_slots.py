"""Files that a worker reads straight into the slot in which it sends them."""

import gc
import weakref
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
from torchvision.io import read_image

import accel
from accel.codec.files import batch_memory
from accel.codec.files.batch_memory import BatchMemory, Place
from accel.codec.files.fields import ALIGNED
from accel.codec.store import Keys
from accel.hooks import claimed_files, tv_files
from accel.processes import sent_files, slot_pool, switch
from accel.recipes.options import Selection
from accel.recipes.recipe import Source
from accel.recipes.sources import Files
from accel.system import memory
from tests.support import inside
from tests.support.cuda import needs_compiler
from tests.support.helpers import assert_same, jpeg
from tests.support.processes import linux

pytestmark = [linux, needs_compiler]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> dict[Any, float]:
    return inside.slot_sizes(monkeypatch)


@pytest.fixture
def selection(monkeypatch: pytest.MonkeyPatch, sizes: dict[Any, float]) -> Iterator[Selection]:
    """That of a worker of a loader whose slots have room."""
    monkeypatch.setattr(memory, "SETTLED", -1.0)
    inside.slot_pool_of_worker(monkeypatch)
    with accel.image_backend("cuda", device="cpu"), slot_pool.loader() as until:
        found = switch.current()
        assert found is not None
        batch_memory.note(found, 1, 40_000)
        yield found
        inside.slot_pool_of_worker(monkeypatch)
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
    return [claimed_files.read(path, selection, claimed_files.by_pillow) for path in paths]


def in_slot(found: Any) -> bool:
    """Whether files were read into a slot, which can be sent."""
    return isinstance(found, Files) and found.memory is not None and found.memory.hand_over(1) is not None


def files_of(sources: Any, selection: Selection) -> Files | None:
    """Sources as they are sent, if they lie in one slot."""
    files = sent_files._described(sources, selection)
    return files if files is not None and files.memory is not None else None


def said(source: Source | None) -> Any:
    return source and (bytes(source.data), source.header, source.name, source.key, source.selection)


def test_the_same_sources(paths: list[str], selection: Selection) -> None:
    found = tv_files.opened_together(paths, selection)
    assert in_slot(found)
    assert list(map(said, found)) == list(map(said, one_by_one(paths, selection)))
    keys, expected = found.keys(), Keys.of([source.key for source in found])
    np.testing.assert_array_equal(keys.trusted, expected.trusted)
    np.testing.assert_array_equal(keys.rows[keys.trusted], expected.rows[keys.trusted])
    assert found.plain().tolist() == [source.header.plain for source in found]  # type: ignore[union-attr]
    assert (found.places[:, 0] % ALIGNED == 0).all()


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


def test_a_limit_of_no_pixels_is_a_limit(
    paths: list[str], selection: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 0)
    assert tv_files.opened_together(paths, selection) == [None] * 6


def test_room_is_learnt(paths: list[str], selection: Selection, sizes: dict[Any, float]) -> None:
    sizes[selection] = 2000.0
    found = tv_files.opened_together(paths, selection)
    assert not in_slot(found)
    assert list(map(said, found)) == list(map(said, one_by_one(paths, selection)))
    del found
    again = [in_slot(tv_files.opened_together(paths, selection)) for _ in range(3)]
    assert again[-1]


@pytest.mark.parametrize("claimed", [True, False], ids=["jpeg", "none"])
def test_one_large_file_does_not_make_large_slots(
    paths: list[str], selection: Selection, claimed: bool, sizes: dict[Any, float]
) -> None:
    """Of every batch of hundreds to come."""
    content = Path(paths[2]).read_bytes()
    comments = (b"\xff\xfe\xff\xff" + bytes(65_533)) * 200
    Path(paths[2]).write_bytes(content[:2] + comments + content[2:] if claimed else content + bytes(len(comments)))
    found = tv_files.opened_together(paths, selection)
    assert not in_slot(found)
    batch_memory.note(selection, len(paths), len(comments))  # as it is sent
    assert sizes[selection] <= 160_000


def test_a_guess_far_too_large_is_soon_forgotten(selection: Selection, sizes: dict[Any, float]) -> None:
    """The large file may be of the first batch."""
    sizes[selection] = 100e6
    for _ in range(12):
        batch_memory.note(selection, 4, 80_000)
    assert sizes[selection] < 80_000


def test_nothing_was_sent_yet(paths: list[str], selection: Selection, sizes: dict[Any, float]) -> None:
    sizes.clear()
    assert not in_slot(tv_files.opened_together(paths, selection))


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
    assert in_slot(found)
    assert [bytes(source.data) for source in found] == [Path(path).read_bytes() for path in paths]


def test_names_that_no_system_has(paths: list[str], selection: Selection) -> None:
    assert tv_files.opened_together([paths[0], "a\0b"], selection)[1] is None
    with claimed_files.into_slot(selection, len(paths)):
        assert one_by_one([paths[0], "a\0b"], selection)[1] is None


CROPS = T.Compose([T.RandomResizedCrop(40, scale=(0.05, 0.6)), T.RandomHorizontalFlip(), T.ToTensor()])


@pytest.mark.parametrize("grows", [False, True], ids=["alike", "growing"])
def test_what_is_sent_is_what_was_read(tmp_path: Path, grows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the files need more room than those before, they are copied to a slot that has it."""
    (tmp_path / "a").mkdir()
    for number in range(24):
        size = (60 + 20 * number, 50 + 20 * number) if grows else (90, 70 + number)
        (tmp_path / "a" / f"{number:02}.jpg").write_bytes(jpeg(*size, seed=number))
    (tmp_path / "taken").touch()
    own: Callable[..., Any] = BatchMemory.hand_over

    def taken(batch: BatchMemory, size: int) -> Any:
        lent, slot = batch._slot is None, own(batch, size)
        with (tmp_path / "taken").open("a") as log:
            log.write("" if lent else "copied " if slot is None else "read ")
        return slot

    monkeypatch.setattr(BatchMemory, "hand_over", taken)

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


@pytest.mark.parametrize("slots", [True, False])
def test_a_source_that_is_kept_leaves_the_memory_of_its_batch(
    paths: list[str], selection: Selection, slots: bool, sizes: dict[Any, float]
) -> None:
    """Unless the whole batch is kept."""
    pool = slot_pool.of_worker()
    assert pool is not None
    if not slots:
        sizes.clear()
    kept, whole = tv_files.opened_together(paths, selection)[2], tv_files.opened_together(paths, selection)
    content, expected = weakref.ref(kept.data.obj), said(kept)  # type: ignore[union-attr]
    used = whole[1]
    whole_memory = used.data.obj  # type: ignore[union-attr]
    for number in range(2 * inside.PATIENCE):
        assert (content() is not None) == (number < inside.PATIENCE - 1)
        tv_files.opened_together(paths, selection)
    assert said(kept) == expected
    assert used.data.obj is whole_memory  # type: ignore[union-attr]
    assert len(pool.looked_at) == slots


# -- files that a dataset opens one by one --------------------------------------------------------------------


def test_one_by_one_into_a_slot(paths: list[str], selection: Selection) -> None:
    expected = list(map(said, one_by_one(paths, selection)))
    with claimed_files.into_slot(selection, len(paths)):
        found = one_by_one(paths, selection)
    assert list(map(said, found)) == expected
    sources = [source for source in found if source is not None]
    files = files_of(sources[::-1], selection)
    assert files is not None
    assert list(map(said, files)) == expected[::-1]
    assert files.plain().tolist() == [source.header.plain for source in sources[::-1]]  # type: ignore[union-attr]
    assert files.memory.hand_over(1) is not None
    some = files_of(sources[2:4], selection)
    assert some is not None
    assert some.memory.hand_over(1) is None, "it is another's to send"
    assert said(some[1]) == expected[3]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_whose_pixels_are_wanted_is_sent(paths: list[str], selection: Selection) -> None:
    """``torchvision.io`` gives another header than Pillow's hook does, which must not be lost on the way."""
    with claimed_files.into_slot(selection, len(paths)):
        images: Any = [read_image(path) for path in paths]
    sources = [image.lazy.recipes[0].source for image in images]
    assert [source.header.reference for source in sources] == ["torchvision"] * len(paths)
    files = files_of(sources, selection)
    assert files is not None
    assert list(map(said, files)) == list(map(said, sources))


def test_what_is_kept_leaves_the_slot(paths: list[str], selection: Selection) -> None:
    pool = slot_pool.of_worker()
    assert pool is not None
    with claimed_files.into_slot(selection, len(paths)):
        kept = one_by_one(paths, selection)[2]
    expected, slots = said(kept), set(pool.looked_at)
    for _ in range(inside.PATIENCE):
        assert slots <= pool.looked_at.keys()
        with claimed_files.into_slot(selection, len(paths)):
            pass
    assert not slots & pool.looked_at.keys()
    assert said(kept) == expected
    assert files_of([kept], selection) is None  # type: ignore[list-item]


def test_what_finds_no_room(paths: list[str], selection: Selection, sizes: dict[Any, float]) -> None:
    sizes[selection] = 1500.0
    expected = list(map(said, one_by_one(paths, selection)))
    with claimed_files.into_slot(selection, len(paths)):
        found = one_by_one(paths, selection)
    assert list(map(said, found)) == expected
    assert {type(source.buffer) is Place for source in found} == {True, False}  # type: ignore[union-attr]
    assert files_of(found, selection) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff", b"no picture" * 50, b"\x89PNG\r\n\x1a\n" + bytes(50)])
def test_what_is_not_claimed_is_opened_by_pillow(paths: list[str], selection: Selection, content: bytes) -> None:
    Path(paths[2]).write_bytes(content)
    with claimed_files.into_slot(selection, len(paths)):
        found = one_by_one(paths, selection)
        with pytest.raises(OSError, match="cannot identify"):
            Image.open(paths[2])
        with pytest.raises(FileNotFoundError):
            Image.open(paths[2] + ".none")
        image = Image.open(paths[1])
    assert [source is None for source in found] == [number == 2 for number in range(6)]
    assert image.filename == paths[1]  # type: ignore[attr-defined]
    with accel.image_backend("torchvision"):
        assert_same(image.tobytes(), Image.open(paths[1]).tobytes())


def test_small_pictures_of_too_many_pixels(
    paths: list[str], selection: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 120 * 92 // 2)
    with (
        claimed_files.into_slot(selection, len(paths)),
        pytest.warns(Image.DecompressionBombWarning, match="exceeds limit"),
    ):
        assert [source is not None for source in one_by_one(paths, selection)] == [number <= 2 for number in range(6)]
    with claimed_files.into_slot(selection, len(paths)), pytest.raises(Image.DecompressionBombError):
        Image.open(paths[5])
