"""The files of a batch, read into one piece of memory: the same sources as of files that are read one by one."""

import os
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.codec.files import batch_memory
from accel.hooks import claimed_files, tv_files
from accel.processes import switch
from accel.recipes.sources import Files, encoded
from accel.system import memory
from tests.support import inside
from tests.support.helpers import assert_same, jpeg
from tests.support.processes import linux

pytestmark = linux


@pytest.fixture(autouse=True)
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    inside.files_of_unknown_size(monkeypatch)
    monkeypatch.setattr(memory, "SETTLED", -1.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    for number in range(9):
        options: dict[str, Any] = {"progressive": True} if number == 3 else {}
        data = jpeg(120 + 40 * number, 90, "L" if number == 4 else "RGB", seed=number, **options)
        (tmp_path / "a" / f"{number}.jpg").write_bytes(data)
    return tmp_path


def paths_in(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.glob("a/*"))


def opened(paths: list[str]) -> Any:
    return tv_files.opened_together(paths, switch.current())


def said(source: Any) -> Any:
    return source and (bytes(source.data), source.header, source.name, source.key, source.selection, source.uses)


def test_the_same_sources(folder: Path) -> None:
    paths = paths_in(folder)
    with accel.image_backend("cpu"):
        one_by_one = [claimed_files.read(path, switch.current(), claimed_files.by_pillow) for path in paths]
        for _ in range(3):  # with too little room, and with enough
            found = opened(paths)
            assert type(found) is Files
            assert list(map(said, found)) == list(map(said, one_by_one))


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff", b"no picture" * 50])
def test_what_is_not_claimed_is_none(folder: Path, content: bytes) -> None:
    paths = paths_in(folder)
    Path(paths[2]).write_bytes(content)
    with accel.image_backend("cpu"):
        found = opened(paths)
    assert [number for number, source in enumerate(found) if source is None] == [2]


def test_what_cannot_be_read_is_left_to_others(folder: Path) -> None:
    paths = paths_in(folder)
    with accel.image_backend("cpu"):
        assert batch_memory.read_together([*paths, "no such file"], switch.current(), None, 1 << 62) is None
        os.truncate(paths[1], batch_memory._LARGEST + 1)
        assert batch_memory.read_together(paths, switch.current(), None, 1 << 62) is None


@pytest.mark.parametrize(("limit", "most"), [(None, 1 << 62), (float("inf"), 1 << 62), (99.5, 99), (0, 0), (-5, -1)])
def test_pictures_of_more_pixels_are_asked_of(limit: Any, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", limit)
    many_pixels = tv_files._many_pixels
    assert many_pixels() == most
    monkeypatch.setattr("PIL.Image._decompression_bomb_check", lambda size: None)
    assert many_pixels() == -1


def test_names_are_encoded_for_who_sends_them(folder: Path) -> None:
    with accel.image_backend("cpu"):
        files = opened(paths_in(folder))
    assert files.names == paths_in(folder)
    names = encoded(files.names)
    sent = Files(files.content, files.places, files.known, files.headers, names, files.selection)
    assert list(map(said, sent)) == list(map(said, files))
    assert encoded(names) is names


def test_memory_stays_while_somebody_looks(folder: Path) -> None:
    paths = paths_in(folder)
    with accel.image_backend("cpu"):
        source = opened(paths)[5]
        for _ in range(5):
            opened(paths[:4] + paths[:4])
        assert bytes(source.data) == Path(paths[5]).read_bytes()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_source_that_is_kept_keeps_no_others(folder: Path, damaged: bool) -> None:
    paths = paths_in(folder)
    if damaged:  # then a batch is a list
        Path(paths[2]).write_bytes(b"")
    with accel.image_backend("cpu"):
        kept = opened(paths)[5]
        content = weakref.ref(kept.data.obj)
        for number in range(inside.PATIENCE):
            assert content() is not None, number
            opened(paths)
    assert content() is None
    assert bytes(kept.data) == Path(paths[5]).read_bytes()


def test_a_batch_that_is_kept_stays_in_one_piece(folder: Path) -> None:
    paths = paths_in(folder)
    with accel.image_backend("cpu"):
        sources = opened(paths)
        content = sources[5].data.obj
        for _ in range(2 * inside.PATIENCE):
            opened(paths)
    assert sources[5].data.obj is content


@pytest.mark.parametrize("looks", ["", "before", "between"])
def test_a_batch_that_is_computed_again(folder: Path, looks: str) -> None:
    """As a whole, and image by image, whoever has looked at its sources."""
    pipeline = T.Compose([T.RandomResizedCrop(40), T.RandomHorizontalFlip(), T.ToTensor()])
    loader = DataLoader(ImageFolder(str(folder), pipeline), batch_size=9)
    torch.manual_seed(1)
    expected, _ = next(iter(loader))
    with accel.image_backend("cpu", threads=2):
        for _ in range(2):
            torch.manual_seed(1)
            batch, _ = next(iter(loader))
        sources = batch.lazy.recipes.sources
        assert type(sources) is Files
        if looks == "before":
            assert sources[0].uses == 0
        assert_same(batch * 2, expected * 2)
        if looks == "between":
            assert [source.uses for source in sources] == [1] * 9
        assert_same(batch[2], expected[2])
        assert_same(batch, expected)


def test_no_source_is_made_of_files_that_compiled_code_decodes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = inside.sources_made(monkeypatch)
    for number in (3, 4):  # progressive; grey, which becomes RGB
        (folder / "a" / f"{number}.jpg").unlink()
    dataset = ImageFolder(str(folder), T.Compose([T.RandomResizedCrop(24), T.ToTensor()]))
    with accel.image_backend("cpu"):
        for images, _ in DataLoader(dataset, 7):
            assert images.sum() > 0
    assert not made
