"""The shards of a pack, read from nothing but themselves: their samples, and the tree that was packed.

A shard is a plain tar (ustar). Each *sample* is three members: the picture (``000000123.jpg``: its number in
``ImageFolder``'s order, and the extension of its true type), its class number (``.cls``) and a ``.json`` with its path
in the tree, the name of its class and the digest of its content. Shards come from strangers: what accel would not have
written, to the byte, is refused.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import BinaryIO, NamedTuple

from accel.codec.files import pack_index
from accel.errors import PackError
from accel.packs.sources import Progress, Silent, without_waiting

BLOCK = 512
END = bytes(2 * BLOCK)
"""What a tar ends with."""

_SHARD = re.compile(r"shard-\d{6}\.tar")
_PICTURE = re.compile(r"(\d{9})\.([a-z0-9]+)", re.ASCII)
_FIELDS = b"0000644\0" + b"0000000\0" * 2  # mode, user and group
_REST = b"0" + bytes(100) + b"ustar\00000" + bytes(BLOCK - 265)  # a regular file, nobody's
_TIME = b"00000000000\0"
_SUM = sum(_FIELDS) + sum(_TIME) + 8 * ord(" ") + sum(_REST)
_NOT_FILES = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"5": "a folder"}
_LONGEST_PATH = 4096  # bytes; systems open none that is longer
_LONGEST = 1 << 17  # bytes of a .json, which has twelve for a byte of a path at most
_PIECE = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Sample(NamedTuple):
    """A sample of a shard: number, kind and class of its picture, path in the tree, digest in hexadecimal digits, the
    byte where it begins, and the bytes of its three members."""

    number: int
    kind: str
    label: int
    path: str
    digest: str
    start: int
    sizes: tuple[int, int, int]

    @property
    def parts(self) -> Iterator[tuple[str, int, int]]:
        """Extension, offset of the content and size of each member."""
        at = self.start
        for part, size in zip((self.kind, "cls", "json"), self.sizes, strict=True):
            yield part, at + BLOCK, size
            at += BLOCK + padded(size)

    @property
    def end(self) -> int:
        return self.start + sum(BLOCK + padded(size) for size in self.sizes)


class Unpacked(NamedTuple):
    """The number of files that were written, and their bytes."""

    files: int
    size: int


def name_of(shard: int) -> str:
    return f"shard-{shard:06}.tar"


def padded(size: int) -> int:
    """The bytes that a member's content takes in a tar."""
    return -(-size // BLOCK) * BLOCK


def header(name: str, size: int) -> bytes:
    """The header of a member: the same for everybody and at any time."""
    encoded, length = name.encode("latin-1"), b"%011o\0" % size
    checksum = b"%06o\0 " % (_SUM + sum(encoded) + sum(length))
    return encoded.ljust(100, b"\0") + _FIELDS + length + _TIME + checksum + _REST


def about(path: str, digest: str) -> bytes:
    """A sample's ``.json``, in ASCII: bytes of a path that are no UTF-8 are lone surrogates, as in Python's paths."""
    return json.dumps({"path": path, "class": path.partition("/")[0], "digest": digest}).encode()


def shards_in(folder: str) -> list[str]:
    """The names of the shards in a folder.

    Raises:
        PackError: there are none, or one is missing.
    """
    with naming(folder):
        names = sorted(name for name in os.listdir(folder) if _SHARD.fullmatch(name))
    missing = next((name_of(number) for number, name in enumerate(names) if name != name_of(number)), None)
    if missing or not names:
        raise PackError(f"{folder!r}: {missing or name_of(0)} is missing")
    return names


def samples(shard: str) -> Iterator[tuple[Sample, Iterator[bytes]]]:
    """Yield all samples of a shard, each with its picture in pieces; these must be taken before the next sample.

    Raises:
        PackError: the shard is cut, or anything in it is not as accel writes it.
    """
    with open(shard, "rb", buffering=_PIECE, opener=without_waiting) as file:
        size = os.fstat(file.fileno()).st_size
        while file.tell() + len(END) < size:
            sample = _sample(file, size)
            file.seek(sample.start + BLOCK)
            yield sample, _pieces(file, sample)
            file.seek(sample.end)
        if file.read(len(END) + 1) != END:
            raise PackError("it is cut, or goes on behind its end")


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Errors inside become a ``PackError`` that names the file."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise PackError(f"{file!r}: {getattr(error, 'strerror', None) or error}") from error


def _sample(file: BinaryIO, end: int) -> Sample:
    """Read what a sample says of its picture."""
    start = file.tell()
    name, size = _member(file, end)
    found = _PICTURE.fullmatch(name)
    if found is None or found[2] in ("cls", "json"):
        raise PackError(f"member {name!r} is not the name of a picture")
    file.seek(padded(size), os.SEEK_CUR)
    label = _text(file, end, f"{found[1]}.cls")
    text = _text(file, end, f"{found[1]}.json")
    try:
        known = json.loads(text)
        path, digest = known["path"], known["digest"]
        encoded = os.fsencode(path)
        if about(path, digest) != text or str(int(label)).encode() != label:
            raise ValueError("not as accel writes it")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise PackError(f"the class or the .json of member {name!r} cannot be used: {error}") from error
    parts = encoded.split(b"/")
    if len(parts) < 2 or not {b"", b".", b".."}.isdisjoint(parts) or b"\0" in encoded or len(encoded) >= _LONGEST_PATH:
        raise PackError(f"member {name!r} has the path {path!r}")
    return Sample(int(found[1]), found[2], int(label), path, digest, start, (size, len(label), len(text)))


def _member(file: BinaryIO, end: int) -> tuple[str, int]:
    """Read a header: the name and the size of a member."""
    at, block = file.tell(), file.read(BLOCK)
    name, digits = block[:100].rstrip(b"\0").decode("latin-1"), block[124:135]
    size = int(digits, 8) if digits.isdigit() and not {*b"89"} & {*digits} else 0
    if block != header(name, size):
        raise PackError(f"at byte {at}, {_fault(block)}")
    if padded(size) > end - at - BLOCK:
        raise PackError(f"member {name!r} has {size} bytes, and the shard ends before that")
    return name, size


def _fault(block: bytes) -> str:
    """What is wrong with a header."""
    try:
        found = tarfile.TarInfo.frombuf(block, "latin-1", "strict")
    except (tarfile.TarError, ValueError) as error:
        return f"no member begins: {error}"
    return f"member {found.name!r} is {_NOT_FILES.get(found.type, 'not as accel writes it')}"


def _text(file: BinaryIO, end: int, wanted: str) -> bytes:
    """Read the member with this name."""
    name, size = _member(file, end)
    if name != wanted or size > _LONGEST:
        raise PackError(f"member {name!r} of {size} bytes stands where {wanted!r} should be")
    data = file.read(padded(size))
    _check_padding(data[size:], name)
    return data[:size]


def _pieces(file: BinaryIO, sample: Sample) -> Iterator[bytes]:
    """Read a sample's picture in pieces, and compare its digest at the end."""
    digest, left, name = blake2b(digest_size=pack_index.DIGEST), sample.sizes[0], f"{sample.number:09}.{sample.kind}"
    while left:
        piece = file.read(min(left, _PIECE))
        if not piece:
            raise PackError("it is cut")
        digest.update(piece)
        left -= len(piece)
        yield piece
    _check_padding(file.read(-sample.sizes[0] % BLOCK), name)
    if digest.hexdigest() != sample.digest:
        raise PackError(f"the content of member {name!r} has another digest than its .json says")


def _check_padding(padding: bytes, name: str) -> None:
    if any(padding):
        raise PackError(f"there is something behind the content of member {name!r}")


# -- the tree -----------------------------------------------------------------------------------------------


def unpack(pack: str, place: str, progress: Progress = Silent) -> Unpacked:
    """Write the tree of a pack into a new or empty folder, byte for byte.

    Without an index, a class that has no picture does not come back, and a path that was changed cannot be told.

    Raises:
        PackError: the folder is not empty, or the pack is damaged; what was written until then stays.
    """
    shards = [os.path.join(pack, name) for name in shards_in(pack)]
    index = pack_index.read(pack) if os.path.lexists(pack_index.file_of(pack)) else None
    paths = [path for path, _ in index.files()] if index else []
    with naming(pack):
        total = sum(map(os.path.getsize, shards))
    files = size = 0
    with _Tree(place) as tree, progress("unpacking", total, counted=False) as bar:
        for shard in shards:
            with naming(shard):
                for sample, pieces in samples(shard):
                    if index and paths[sample.number : sample.number + 1] != [sample.path]:
                        raise PackError(f"sample {sample.number} has the path {sample.path!r}, and not in the index")
                    tree.write(sample.path, pieces)
                    files, size = files + 1, size + sample.sizes[0]
                    bar.advance(sample.end - sample.start)
        for name in index.classes if index else ():
            with naming(name):
                tree.folder(os.fsencode(name))
    if index and len(index.paths) != files:
        raise PackError(f"{pack!r}: the shards have {files} files, and the index has {len(index.paths)}")
    return Unpacked(files, size)


class _Tree:
    """A folder that was empty. All below it is made and opened by descriptor, so that no link leads out of it."""

    def __init__(self, place: str) -> None:
        self._folders = list[tuple[bytes, int]]()  # the path of the folder that was used last: names and descriptors
        with naming(place):
            os.makedirs(place, exist_ok=True)
            self._root = os.open(place, _FOLDER & ~os.O_NOFOLLOW)
        if os.listdir(self._root):
            os.close(self._root)
            raise PackError(f"{place!r}: the folder is not empty")

    def __enter__(self) -> _Tree:
        return self

    def __exit__(self, *exception: object) -> None:
        for _, descriptor in self._folders:
            os.close(descriptor)
        os.close(self._root)

    def folder(self, path: bytes) -> int:
        """Make a folder and those above it where they are not there, and return its descriptor."""
        names, at = path.split(b"/"), 0
        while at < min(len(names), len(self._folders)) and self._folders[at][0] == names[at]:
            at += 1
        while len(self._folders) > at:
            os.close(self._folders.pop()[1])
        for name in names[at:]:
            above = self._folders[-1][1] if self._folders else self._root
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=above)
            self._folders.append((name, os.open(name, _FOLDER, dir_fd=above)))
        return self._folders[-1][1]

    def write(self, path: str, pieces: Iterator[bytes]) -> None:
        """Write a new file; nothing is left of one whose pieces end in an error."""
        above, _, name = os.fsencode(path).rpartition(b"/")
        with naming(path):
            folder = self.folder(above)
            descriptor = os.open(name, _NEW, 0o666, dir_fd=folder)
        try:
            with open(descriptor, "wb") as file:
                for piece in pieces:
                    file.write(piece)
        except BaseException:
            os.unlink(name, dir_fd=folder)
            raise
