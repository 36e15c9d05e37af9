"""A pack gives the tree back, byte for byte; a hostile one is refused, and nothing is written outside of the tree."""

import hashlib
import os
import random
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accel.codec.files import pack_index
from accel.errors import PackError
from accel.packs import sources, unpacking
from accel.packs.unpacking import END, about, header, unpack
from tests.support import helpers, packs
from tests.support.processes import linux

pytestmark = linux

PICTURE = b"a picture" * 100


def member(name: str, data: bytes) -> bytes:
    return header(name, len(data)) + data + bytes(-len(data) % 512)


def sample(number: int = 0, path: str = "a/x.jpg", data: bytes = PICTURE, **other: bytes) -> bytes:
    """A sample; ``other``: members that are otherwise."""
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    parts = {"jpg": data, "cls": b"0", "json": about(path, digest), **other}
    return b"".join(member(f"{number:09}.{kind}", each) for kind, each in parts.items())


def content(folder: Path) -> dict[str, bytes]:
    """All files in a folder and below it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def written(folder: Path, *shards: bytes) -> str:
    folder.mkdir()
    for number, data in enumerate(shards):
        (folder / unpacking.name_of(number)).write_bytes(data)
    return str(folder)


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """What no pack may change."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_bytes(b"as it was")
    yield folder
    assert content(folder) == {"file": b"as it was"}


def refused(pack: str, place: Path, why: str) -> None:
    with pytest.raises(PackError, match=why):
        unpack(pack, str(place))


# -- round trips --------------------------------------------------------------------------------------------


def entries(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_tree_comes_back(tree: Path, tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tree) + b"/b/caf\xe9.jpg")).write_bytes(helpers.jpeg(20, 20))
    (tree / "a 1" / "link.jpg").symlink_to("x.jpg")
    (tree / "linked class").symlink_to(tree / "b" / "deeper")
    (tree / "empty").mkdir()
    done = unpack(str(packs.made(tree, tmp_path / "pack")), str(tmp_path / "unpacked"))
    shutil.copytree(tree, tmp_path / "copy")  # follows the links
    (tmp_path / "copy" / "b" / "notes.txt").unlink()
    assert content(tmp_path / "unpacked") == content(tmp_path / "copy")
    assert entries(tmp_path / "unpacked") == entries(tmp_path / "copy")
    assert done == (len(content(tmp_path / "copy")), sum(map(len, content(tmp_path / "copy").values())))


def test_without_an_index_the_pictures_come_back(tree: Path, tmp_path: Path) -> None:
    (tree / "empty").mkdir()
    pack = packs.made(tree, tmp_path / "pack")
    shutil.rmtree(pack / ".nv-meta")
    unpack(str(pack), str(tmp_path / "unpacked"))
    (tree / "b" / "notes.txt").unlink()
    assert content(tmp_path / "unpacked") == content(tree)


def test_tar_gives_the_same_bytes(tree: Path, pack: Path) -> None:
    index = pack_index.read(str(pack))
    for shard in index.shards:
        with tarfile.open(pack / shard) as tar:
            for each in tar.getmembers()[::3]:
                file = tar.extractfile(each)
                assert file is not None
                assert file.read() == (tree / index.files()[int(each.name.split(".")[0])][0]).read_bytes()


def test_only_into_an_empty_folder(pack: Path, tmp_path: Path, outside: Path) -> None:
    refused(str(pack), outside, "the folder is not empty")
    refused(str(pack), outside / "file", "outside/file'")
    (tmp_path / "empty").mkdir()
    assert unpack(str(pack), str(tmp_path / "empty")).files == len(content(tmp_path / "empty")) > 0


def test_a_path_is_compared_with_the_index(pack: Path, tmp_path: Path) -> None:
    shard = pack / "shard-000001.tar"
    name = next(sample.path for sample, _ in unpacking.samples(str(shard))).rpartition("/")[2]
    shard.write_bytes(shard.read_bytes().replace(f'/{name}"'.encode(), f'/{"y" * len(name)}"'.encode()))
    refused(
        str(pack), tmp_path / "unpacked", r"shard-000001.tar'?: sample \d+ has the path '.*yyy', and not in the index"
    )


def test_shards_that_are_not_there(pack: Path, tmp_path: Path) -> None:
    shards = sorted(pack.glob("*.tar"))
    shards[-1].unlink()
    refused(str(pack), tmp_path / "unpacked", r"the shards have \d+ files, and the index has \d+")
    shards[1].unlink()
    refused(str(pack), tmp_path / "again", "shard-000001.tar is missing")
    refused(str(tmp_path / "again"), tmp_path / "more", r"again'?: (shard-000000.tar is missing|No such file)")


# -- hostile ones -------------------------------------------------------------------------------------------


def special(kind: bytes, name: str = "000000000.jpg", link: str = "/etc/passwd") -> bytes:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, link
    return found.tobuf(tarfile.USTAR_FORMAT)


def test_a_good_one(tmp_path: Path) -> None:
    """The helpers above make what is accepted."""
    pack = written(tmp_path / "pack", sample(path="a/b/x.jpg") + sample(1) + END, sample(2, "b/\udcff.jpg", b"") + END)
    unpack(pack, str(tmp_path / "unpacked"))
    assert content(tmp_path / "unpacked") == {"a/b/x.jpg": PICTURE, "a/x.jpg": PICTURE, "b/\udcff.jpg": b""}


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/a/x",
            "../x",
            "a/../../x",
            "a/..",
            "a/./x",
            "a//x",
            "a/",
            "/",
            "",
            ".",
            "..",
            "x",
            "a/\0",
            "a\0/x",
            "a/\ud800",
        ),
        *(f"{'a' * 256}/x", f"a/{'x' * 256}", "a/" * 3000 + "x", "a/x" * 5000),
    ],
)
def test_hostile_paths(tmp_path: Path, outside: Path, path: str) -> None:
    pack = written(tmp_path / "pack", sample(path=path) + END)
    refused(pack, outside.parent / "unpacked", "shard-000000.tar'?: ")
    assert not any(path.is_file() for path in (tmp_path / "unpacked").rglob("*"))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (special(tarfile.SYMTYPE), r"member '000000000.jpg' is a symbolic link"),
        (special(tarfile.LNKTYPE), r"member '000000000.jpg' is a hard link"),
        (special(tarfile.CHRTYPE), r"member '000000000.jpg' is a device"),
        (special(tarfile.BLKTYPE), r"member '000000000.jpg' is a device"),
        (special(tarfile.FIFOTYPE), r"member '000000000.jpg' is not as accel writes it"),
        (special(tarfile.DIRTYPE), r"member '000000000.jpg/?' is a folder"),
        (special(tarfile.GNUTYPE_LONGNAME), r"member '000000000.jpg' is not as accel writes it"),
        (special(tarfile.GNUTYPE_SPARSE), r"member '000000000.jpg' is not as accel writes it"),
        (special(tarfile.XHDTYPE), r"member '000000000.jpg' is not as accel writes it"),
        (special(tarfile.REGTYPE), r"member '000000000.jpg' is not as accel writes it"),
        (sample() + special(tarfile.SYMTYPE, "a"), r"member 'a' is a symbolic link"),
        (member("/etc/passwd", PICTURE), "'/etc/passwd' is not the name of a picture"),
        (member("../x.jpg", PICTURE), "is not the name of a picture"),
        (member("000000000.JPG", PICTURE), "is not the name of a picture"),
        (member("000000000.cls", b"0"), "is not the name of a picture"),
        (member("00000000\xb2.jpg", PICTURE), "is not the name of a picture"),
        (sample(jpg=b"other"), "the content of member '000000000.jpg' has another digest"),
        (sample(cls=b"00"), "cannot be used"),
        (sample(cls=b"x"), "cannot be used"),
        (sample(cls=b"9" * 5000), "cannot be used"),
        (sample(json=b"{"), "cannot be used"),
        (sample(json=b"[" * 100_000), "cannot be used"),
        (sample(json=b"[]"), "cannot be used"),
        (sample(json=b'{"path": 7, "class": "a", "digest": ""}'), "cannot be used"),
        (sample(json=b'{"path": ["a"], "class": "a", "digest": ""}'), "cannot be used"),
        (sample(json=b'{"path": "a/x.jpg", "class": "b", "digest": ""}'), "cannot be used"),
        (sample(json=b'{"path": "a/x.jpg", "class": "a", "digest": 7}'), "has another digest"),
        (sample(json=b'{"path": "a/x.jpg", "class": "a", "digest": ""} '), "cannot be used"),
        (sample(json=bytes(1 << 18)), "stands where '000000000.json' should be"),
        (sample()[:-1024] + member("000000001.json", b"{}"), "stands where '000000000.json' should be"),
        (sample() + sample(), "File exists"),
        (sample() + sample(1, "a/x.jpg/y"), "a/x.jpg/y'?: "),
        (header("000000000.jpg", 1 << 32) + PICTURE, f"has {1 << 32} bytes, and the shard ends before"),
        (sample()[:1500], "the shard ends before|no member begins"),
        (sample()[:-512], "cannot be used"),
        (sample() + bytes(512) + sample(1), "no member begins"),
        (b"\xff" * 5000, "no member begins"),
        (sample()[:950] + b"x" + sample()[951:], "has another digest|there is something behind"),
        (sample()[:1500] + b"x" + sample()[1501:], "there is something behind"),
    ],
)
def test_hostile_shards(tmp_path: Path, outside: Path, data: bytes, why: str) -> None:
    refused(written(tmp_path / "pack", data + END), tmp_path / "unpacked", f"shard-000000.tar'?: .*({why})")
    assert all(data == PICTURE for data in content(tmp_path / "unpacked").values())


@pytest.mark.parametrize(
    "end", [b"", bytes(512), END + bytes(1), END + bytes(512), bytes(512) + b"x" * 512, END + sample(1)]
)
def test_wrong_ends(tmp_path: Path, end: bytes) -> None:
    refused(written(tmp_path / "pack", sample() + end), tmp_path / "unpacked", r"shard-000000.tar'?: ")


@pytest.mark.parametrize("where", ["folder", "deeper", "file"])
def test_a_link_that_is_put_into_the_tree_meanwhile(tmp_path: Path, outside: Path, where: str) -> None:
    """Somebody else may write into the folder."""
    place = tmp_path / "unpacked"

    class Plants(sources.Silent):
        def advance(self, count: int = 1) -> None:
            link, target = {
                "folder": (place / "b", outside),
                "deeper": (place / "a" / "b", outside),
                "file": (place / "a" / "y.jpg", outside / "file"),
            }[where]
            link.symlink_to(target)

    path = {"folder": "b/y.jpg", "deeper": "a/b/y.jpg", "file": "a/y.jpg"}[where]
    pack = written(tmp_path / "pack", sample() + sample(1, path) + END)
    with pytest.raises(PackError, match=path):
        unpack(pack, str(place), Plants)


def test_a_folder_that_is_moved_meanwhile_is_still_below(tmp_path: Path, outside: Path) -> None:
    place = tmp_path / "unpacked"

    class Moves(sources.Silent):
        def advance(self, count: int = 1) -> None:
            if (place / "a").exists() and not (place / "a").is_symlink():
                (place / "a").rename(place / "moved")
                (place / "a").symlink_to(outside)

    unpack(written(tmp_path / "pack", sample() + sample(1, "a/y.jpg") + END), str(place), Moves)
    assert sorted(content(place / "moved")) == ["x.jpg", "y.jpg"]


# -- fuzz ---------------------------------------------------------------------------------------------------


def fuzzed(data: bytearray, rng: random.Random) -> bytearray:
    """Some bytes changed, cut out, or put in twice."""
    for _ in range(rng.randint(1, 4)):
        at, length = rng.randrange(len(data)), rng.choice((1, 2, 8, 512, 1024))
        match rng.randrange(5):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at : at + length] = rng.randbytes(length)
            case 2:
                del data[at // 512 * 512 : at // 512 * 512 + length]
            case 3:
                data[at:at] = data[at // 512 * 512 : at // 512 * 512 + length]
            case _:  # a header that is right and says something else
                start = at // 512 * 512
                try:
                    found = tarfile.TarInfo.frombuf(bytes(data[start : start + 512]), "latin-1", "strict")
                except tarfile.TarError:
                    continue
                _set(found, rng)
                data[start : start + 512] = found.tobuf(tarfile.USTAR_FORMAT, "latin-1", "replace")[:512]
    return data


def _set(found: tarfile.TarInfo, rng: random.Random) -> None:
    name, value = rng.choice(
        [
            ("size", rng.choice((0, 1, 511, 512, 513, 8**11 - 1, rng.randrange(5000)))),
            ("type", bytes([rng.randrange(48, 58)])),
            ("name", rng.choice(("000000000.jpg", "000000001.cls", "../../outside/x", "/tmp/x", "a", ""))),
            ("linkname", "../outside/file"),
            ("mode", rng.randrange(0o7777)),
        ]
    )
    setattr(found, name, value)


@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n < 3 else pytest.mark.sweep) for n in range(100)])
def test_fuzzed_shards(tmp_path: Path, outside: Path, seed: int) -> None:
    """All that is written is right (but for a path: nothing tells it from another one), or an error names the shard."""
    shards = [
        b"".join(sample(n, f"{'ab'[n % 2]}/{n}.jpg", helpers.jpeg(20 + n, 20)) for n in range(at, at + 4)) + END
        for at in (0, 4)
    ]
    right = {f"{'ab'[n % 2]}/{n}.jpg": helpers.jpeg(20 + n, 20) for n in range(8)}
    rng, refusals = random.Random(seed), 0
    pack, place = written(tmp_path / "pack", *shards), tmp_path / "unpacked"
    for _ in range(60):
        number = rng.randrange(2)
        file = Path(pack) / unpacking.name_of(number)
        file.write_bytes(fuzzed(bytearray(shards[number]), rng))
        why = helpers.attempt(lambda: unpack(pack, str(place)))
        if not isinstance(why, unpacking.Unpacked):
            refusals += 1
            assert why[0] is PackError
            assert file.name in why[1]
        assert set(content(place).values()) <= set(right.values())
        assert {path.name for path in tmp_path.iterdir()} == {"outside", "pack", "unpacked"}
        shutil.rmtree(place)
        file.write_bytes(shards[number])
    assert refusals > 40


def test_hostile_class_folders(tree: Path, tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the index too, nothing leads out of the tree."""
    pack = packs.made(tree, tmp_path / "pack")
    index = pack_index.read(str(pack))
    for number, name in enumerate(("a\0b", "\ud800", "x" * 300)):

        def read(root: str, name: str = name) -> Any:
            return index._replace(classes=[*index.classes, name], begins=[*index.begins, index.begins[-1]])

        monkeypatch.setattr(pack_index, "read", read)
        refused(str(pack), tmp_path / f"unpacked{number}", "null character|surrogates|File name too long")
