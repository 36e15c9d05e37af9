"""Files opened and read by compiled code: what Python would read, and headers as ``claim`` has them."""

import os
import random
import sys
from collections.abc import Sequence
from ctypes import CFUNCTYPE, addressof, c_char, c_int, c_size_t, c_ssize_t, c_void_p, cast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accel.codec.files import fields as of
from accel.codec.files import reader
from accel.codec.files.fields import ALIGNED, PREAD
from accel.codec.files.reader import FileBuffers, file_buffers
from accel.codec.header import claim
from accel.system.memory import key_of
from tests.support import helpers, inside
from tests.support.helpers import jpeg
from tests.support.processes import descriptors

SMALL, ORDINARY = FileBuffers.SMALL, FileBuffers.ORDINARY

compiled = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere Python reads")


@pytest.fixture(params=["compiled", "by Python"])
def read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "by Python":
        monkeypatch.setattr(reader, "_by_compiled", None)  # not called, as somebody has replaced ``open``
        monkeypatch.setattr(os, "open", lambda *given, own=os.open, **more: own(*given, **more))
    elif sys.platform.startswith("linux"):
        assert reader.agrees()
        inside.wrap(monkeypatch, reader, "_by_python", _large)
    return lambda paths: [reader.read(path) for path in paths]


def _large(own: Any, path: Any) -> Any:
    """``_by_python``, which only large files and names that are no text may come to."""
    assert type(path) is not str or path.endswith("a.jpg") or "\0" in path or os.path.getsize(path) >= ORDINARY
    return own(path)


def into(paths: list[str], capacity: int = 1 << 17, most: int = 1 << 62) -> tuple[reader.Table | None, bytearray]:
    """The files' table, read into memory of so many bytes that held something else, and the memory."""
    memory = bytearray(b"\xa5") * capacity
    pointed = (c_char * capacity).from_buffer(memory)
    return reader.read_to(paths, addressof(pointed), capacity, most), memory


def test_files_are_those_that_python_reads(tmp_path: Path, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [size for edge in (0, SMALL, ORDINARY, 3 * ORDINARY) for size in range(max(edge - 1, 0), edge + 2)]
    names = [str(tmp_path / f"{size} \udcff ä.jpg") for size in sizes]
    for name, size in zip(names, sizes, strict=True):
        Path(name).write_bytes(random.Random(size).randbytes(size))
    monkeypatch.setattr("accel.system.memory.SETTLED", -1.0)  # their times are now
    for order in (names, names[::-1], 9 * names[:3]):
        for name, file in zip(order, read(order), strict=True):
            assert file is not None
            assert bytes(file.buffer[: file.size]) == Path(name).read_bytes()
            assert file.key == key_of(os.stat(name)) is not None
            assert file.header is None


def test_times_that_are_not_settled_make_no_key(tmp_path: Path, read: Any) -> None:
    path = tmp_path / "new.jpg"
    path.write_bytes(b"new")
    (file,) = read([str(path)])
    assert file is not None
    assert file.key is None


def test_what_is_no_file_is_left(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(8, 8))
    good = str(tmp_path / "a.jpg")
    missing = [str(tmp_path / "none"), str(tmp_path), "", good + "/b"]
    found = read([good, *missing, good])
    assert [file is not None for file in found] == [True, False, False, False, False, True]
    for name in (good + "\0", None, 3.5):
        assert [file is not None for file in read([good, name, good])] == [True, False, True]
    assert all(file is not None for file in read([Path(good), good.encode(), good]))
    if os.path.isdir("/proc/self/fd"):
        assert descriptors(tmp_path) == 0


def photoshop(*resources: tuple[bytes, bytes]) -> bytes:
    """A file with Photoshop's segment, whose resources have names and contents."""
    content = b"Photoshop 3.0\0"
    for name, resource in resources:
        named = bytes([len(name)]) + name
        content += b"8BIM\4\4" + named + bytes(len(named) % 2) + len(resource).to_bytes(4, "big") + resource
        content += bytes(len(resource) % 2)
    return b"\xff\xd8\xff\xed" + (2 + len(content)).to_bytes(2, "big") + content + jpeg(12, 9)[2:]


@compiled
def test_headers_are_those_that_claim_gives(tmp_path: Path) -> None:
    """Of intact files and of ones with bytes changed, most of them in front of the scan."""
    rng = random.Random(3)
    wholes = [jpeg(*size, mode) for mode in ("RGB", "L") for size in ((64, 48), (33, 7), (1, 1))]
    wholes += [jpeg(40, 40, quality=100), jpeg(9, 9, progressive=True), jpeg(9, 9, icc_profile=b"x" * 40)]
    wholes += [photoshop(), photoshop((b"", b"")), photoshop((b"name", b"12345"), (b"odd", b"1234"))]
    plain = 0
    for number in range(1500):
        content = bytearray(rng.choice(wholes))
        begin = claim(bytes(content)).scan + 12  # type: ignore[union-attr]
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            place = rng.choice((rng.randrange(begin), rng.randrange(begin), rng.randrange(len(content))))
            content[place] = rng.choice((0, 1, 255, 0xDA, 0xC0, 0xE2, 0xD9, rng.randrange(256), content[place] ^ 1))
        cut = rng.choice((None, None, None, rng.randrange(len(content) + 1)))
        content = content[:cut] + rng.choice((b"", b"", b"\0", b"\xff\xd9"))
        path = tmp_path / f"{number % 7}.jpg"
        path.write_bytes(content)
        file = reader.read(str(path))
        assert file is not None
        assert bytes(file.buffer[: file.size]) == content
        if file.header is not None:
            assert file.header == claim(bytes(content))
            assert type(file.header) is type(claim(wholes[0]))
            plain += 1
        file_buffers.give_back(file.buffer)
    assert 300 < plain < 1200


@compiled
def test_intact_files_are_plain(tmp_path: Path) -> None:
    for number, content in enumerate(
        (jpeg(8, 9), jpeg(9, 8, "L"), jpeg(9, 9, icc_profile=b"x" * 40, exif=helpers.exif()), photoshop((b"a", b"b")))
    ):
        path = tmp_path / f"{number}.jpg"
        path.write_bytes(content)
        file = reader.read(str(path))
        assert file is not None
        assert file.header is not None
        assert file.header == claim(content)


@compiled
def test_who_listens_for_opened_files_hears_of_them(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(8, 8))
    path = str(tmp_path / "a.jpg")
    heard: list[Sequence[Any]] = []
    sys.addaudithook(lambda event, given: heard.append(given) if event == "open" and given[0] == path else None)
    os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    reader.read(path)
    into([path, path])
    assert heard == 4 * [heard[0]]


@compiled
def test_file_systems_that_give_less_than_they_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = random.Random(0).randbytes(60_000)
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    pread, preadv = os.pread, os.preadv

    @CFUNCTYPE(c_ssize_t, c_int, c_void_p, c_size_t, c_ssize_t)
    def few(descriptor: int, place: int, _: int, at: int) -> int:
        return preadv(descriptor, [(c_char * 1000).from_address(place)], at)

    calls = np.array(reader.calls())
    calls[PREAD] = cast(few, c_void_p).value
    monkeypatch.setattr(reader, "calls", lambda: calls)
    monkeypatch.setattr(os, "pread", lambda descriptor, size, at: pread(descriptor, min(size, 1000), at))
    monkeypatch.setattr(os, "preadv", lambda file, buffers, at: preadv(file, [memoryview(buffers[0])[:1000]], at))
    for name in (str(path), path):  # compiled code reads it, and Python
        file = reader.read(name)
        assert file is not None
        assert bytes(file.buffer[: file.size]) == content
    table, _ = into([str(path)])
    assert table is not None
    assert table.no_room == 1


@compiled
def test_files_behind_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At multiples of ``ALIGNED``, with their fields and the numbers for all, whatever the memory held."""
    monkeypatch.setattr("accel.system.memory.SETTLED", -1.0)
    contents = [jpeg(40, 30), b"", random.Random(1).randbytes(ALIGNED), jpeg(33, 7, "L"), b"text"]
    paths = [str(tmp_path / f"{number}") for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        Path(path).write_bytes(content)
    table, memory = into(paths, most=40 * 30 - 1)
    assert table is not None
    at, ends = 0, []
    for row, path, content in zip(table.rows.tolist(), paths, contents, strict=True):
        assert memory[at : at + len(content)] == content
        assert reader.key(row) == key_of(os.stat(path)) is not None
        header = claim(content)
        assert row[of.STATE] == (of.OTHER if header is None else of.PLAIN)
        assert header is None or reader.plain_header(row) == header
        ends.append([at, len(content)])
        at += -(-row[of.READ] // ALIGNED) * ALIGNED
    assert table.places.tolist() == ends
    assert table[2:] == (0, 0, max(map(len, contents)), at, 4)  # one plain picture has few pixels
    few, memory = into([*paths, str(tmp_path / "none")], at - ALIGNED + 4)  # a file leaves a byte at the end
    assert few is not None
    assert (few.missing, few.no_room, few.needed) == (1, 1, at)
    assert few.rows[:, of.STATE].tolist()[4:] == [of.LARGE, of.NONE]
    assert into(paths, at - ALIGNED + 5)[0].no_room == 0  # type: ignore[union-attr]


@compiled
@pytest.mark.parametrize("replaced", ["open", "stat", "access"])
def test_compiled_code_is_not_used_if_python_was_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: str
) -> None:
    """Neither where a function was replaced, nor for names that are no text, or that no system has."""
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg(8, 8))
    both = {"reading": lambda names: into(names)[0], "keys": reader.keys}
    for way in both.values():
        assert way([str(path)]) is not None
        for names in ([], [str(path), path], [str(path), "a\0b"], [str(path), "\ud800"]):
            assert way(names) is None
    own = getattr(os, replaced)
    monkeypatch.setattr(os, replaced, lambda *given, **more: own(*given, **more))
    left = "reading" if replaced == "open" else "keys"
    assert [name for name, way in both.items() if way([str(path)]) is None] == [left]
    file = reader.read(str(path))
    assert file is not None
    assert (file.header is None) == (replaced == "open")
