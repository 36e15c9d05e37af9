"""``python -m accel cache``: lists, verifies, clears; and says why not."""

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torchvision import transforms as T
from torchvision.datasets.folder import pil_loader

import accel
from accel.cache import folder as folders
from accel.cache.entry import INDEX, PLANES, RESULT
from accel.cli import cache as command
from accel.cli.command_line import main
from accel.runtime.memo import cached
from accel.system import memory
from accel.system.memory import key_of
from tests.cache.kept import changed, filled, key, opened, put, right
from tests.support import inside
from tests.support.processes import in_child, linux

pytestmark = linux


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cache of 20 files, which nobody uses."""
    filled(tmp_path / "cache", 20)
    inside.close_caches()
    yield tmp_path / "cache"
    inside.close_caches()


def test_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "list", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "| stream indexes | 20 | 1 | 0.0 |" in shown
    assert "| planes | 20 | 1 | 0.1 |" in shown
    assert "20 keys" in shown
    assert "version test" in shown
    assert f"this accel's caches are of version {cached.VERSION}: this one is not used" in " ".join(shown.split())


def test_list_of_one_that_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with accel.image_backend("cpu", cache=f"{tmp_path / 'cache'}:1MB"):
        pass
    assert main(["cache", "list", str(tmp_path / "cache")]) == 0
    shown = capsys.readouterr().out
    assert f"version {cached.VERSION}" in shown
    assert "not used" not in shown


@pytest.mark.parametrize("action", ["list", "verify", "clear"])
def test_processes_are_for_filling(folder: Path, action: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", action, str(folder), "--processes", "2"]) == 2
    assert "--processes is for fill" in capsys.readouterr().err


def test_verify_finds_what_is_damaged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "verify", str(folder)]) == 0
    assert "all 40 entries are sound" in capsys.readouterr().out
    path = folder / folders.SEGMENTS / "00000002"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    assert main(["cache", "verify", str(folder)]) == 1
    shown = capsys.readouterr().err
    assert "1 of 40 entries are damaged" in shown
    assert "1 of 7 parts are damaged" in shown
    os.truncate(path, 5000)
    assert main(["cache", "verify", str(folder)]) == 1
    assert "segment 2 is too short" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("UPDATE segments SET size = size + 10000000", "what it says of segment 1 is damaged"),
        ("INSERT INTO shelves VALUES (3, 5, 0, 0)", "what it says of shelf 3 is damaged"),
        ("DELETE FROM about", "it does not say of which version it is"),
        (None, "a run found it damaged"),
    ],
)
def test_a_damaged_table_is_told_and_its_numbers_are_not(
    folder: Path, harm: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if harm is None:
        (folder / folders.DAMAGED).touch()
    else:
        changed(folder, harm)
    assert main(["cache", "list", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert said in " ".join(shown.split())
    assert "| planes | 20 |" in shown
    assert "10.0 |" not in shown
    assert main(["cache", "verify", str(folder)]) == 1
    shown = " ".join(capsys.readouterr().err.split())
    assert said in shown
    assert "the table is damaged, and all 40 entries are sound" in shown


def test_results_besides_a_files_first_are_no_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = opened(folder)
    assert cache.put(cached.variant(key(3), b"another crop"), b"file 3", RESULT, b"pixels")
    cache.close()
    assert main(["cache", "list", str(folder)]) == 0
    assert "21 keys (a file's own, and one for each of its results but the first)" in capsys.readouterr().out


def test_one_that_is_being_filled_is_listed_and_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is put in meanwhile is no damage, and it is not cleared."""
    folder = tmp_path / "cache"
    begins, says = os.pipe()
    ends, end = os.pipe()

    def fills() -> bool:
        cache = opened(folder, 3_000_000)
        os.set_blocking(ends, False)
        for number in itertools.count():
            put(cache, number, (INDEX, PLANES, RESULT)[number // 300 % 3])  # results take back from planes
            cache.flush()
            if number == 20:
                os.write(says, b"!")
            with suppress(BlockingIOError):
                return bool(os.read(ends, 1))
        return False

    with ThreadPoolExecutor() as pool:
        filling = pool.submit(in_child(fills))
        os.read(begins, 1)
        for _ in range(5):
            assert main(["cache", "list", str(folder)]) == 0
            assert main(["cache", "verify", str(folder)]) == 0
            assert main(["cache", "clear", str(folder)]) == 2
        os.write(end, b"!")
        assert filling.result()
    shown = capsys.readouterr()
    assert shown.err.count("processes use it") == 5
    assert shown.out.count("entries are sound") == 5


def test_clear_empties_it_unless_it_is_used(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = filled(folder, 20)
    assert main(["cache", "clear", str(folder)]) == 2
    assert "processes use it" in capsys.readouterr().err
    assert right(cache, 3) == 2
    inside.close_caches()
    assert main(["cache", "clear", str(folder)]) == 0
    assert "MB removed" in capsys.readouterr().out
    assert main(["cache", "list", str(folder)]) == 2
    assert "the cache is empty" in capsys.readouterr().err
    assert right(filled(folder, 3), 1) == 2, "and it is used again"


def test_other_folders_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jpg").write_bytes(b"1")
    for action in ("list", "verify", "clear"):
        assert main(["cache", action, str(tmp_path)]) == 2
        assert "there is no cache" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["a.jpg"]


def test_what_is_kept_is_compared_with_the_files(
    tmp_path: Path, paths: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    folder, data = tmp_path / "cache", Path(paths[0]).parent.parent
    evaluation = T.Compose([T.Resize(40), T.CenterCrop(32), T.ToTensor()])
    training = T.Compose([T.RandomCrop(24, pad_if_needed=True), T.ToTensor()])
    with accel.image_backend("cpu", cache=f"{folder}:100MB"):
        for pipeline in (evaluation, training):
            for _ in range(4):
                for first in range(0, len(paths), 4):
                    torch.stack([pipeline(pil_loader(path)) for path in paths[first : first + 4]]).sum()
    cached.flush()
    cache = opened(folder)
    assert main(["cache", "verify", str(folder), "--data", str(data)]) == 0
    shown = capsys.readouterr().out
    results = int(shown.partition("planes and ")[2].split()[0])
    planes = int(shown.partition(" planes and ")[0].split()[-1])
    assert results + planes > 0
    assert "are what the files give, in every bit" in shown
    kind = RESULT if results else PLANES
    found = [file for path in paths if (file := cache.look(key_of(os.stat(path)) or b"")) is not None]
    entry = next(file.entries[kind] for file in found if kind in file.entries)
    content = bytearray(entry.size)
    assert cache.read(entry, 0, len(entry.ends), content)
    content[len(content) // 2] ^= 8  # sound, and wrong
    assert cache.put(entry.key, entry.header, kind, content, entry.meta, entry.ends)
    cache.flush()
    assert main(["cache", "verify", str(folder), "--data", str(data)]) == 1
    shown = capsys.readouterr().err
    assert "1 are not what the files give" in " ".join(shown.split())
    assert main(["cache", "list", str(folder), "--data", str(data)]) == 2
    assert main(["cache", "verify", str(folder), "--data", str(data / "gone")]) == 2


def test_the_users_own_is_the_default(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "in_memory", lambda: folder)
    assert main(["cache"]) == 0
    assert "20 keys" in capsys.readouterr().out


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    assert command.files(tmp_path) == [tmp_path / "file"]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_cache_is_filled_ahead(
    tmp_path: Path,
    paths: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    processes: str,
) -> None:
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    monkeypatch.setattr(command, "_TOGETHER", 3)
    folder, data = tmp_path / "cache", Path(paths[0]).parent.parent
    (data / "note.txt").write_text("no picture")
    fill = ["cache", "fill", f"{folder}:100MB", "--data", str(data), "--processes", processes]
    assert main(fill) == 0
    shown = capsys.readouterr().out
    count = int(shown.split()[0])
    assert 1 < count <= len(paths)
    assert f"{len(paths) + 1 - count} others have no such form" in " ".join(shown.split())
    inside.close_caches()
    assert main(fill) == 0
    assert f"{count} were there" in " ".join(capsys.readouterr().out.split())
    assert main(["cache", "verify", str(folder), "--data", str(data)]) == 0
    assert f"{count} planes and 0 results" in " ".join(capsys.readouterr().out.split())
    for wrong in (["fill"], ["fill", str(folder), "--data", str(data)], ["fill", "1GB"]):
        assert main(["cache", *wrong]) == 2
    used = accel.stats()["planes used"]
    with accel.image_backend("cpu", cache=f"{folder}:100MB"):
        crop = T.Compose([T.RandomCrop(16), T.ToTensor()])
        torch.stack([crop(pil_loader(path)) for path in paths]).sum()
    assert accel.stats()["planes used"] == used + count
