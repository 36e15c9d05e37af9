"""A pack has the files of an ``ImageFolder``, in its order, and a run that was killed is resumed to the same bytes."""

import csv
import hashlib
import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import tarfile
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from torchvision import datasets
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import IMG_EXTENSIONS

from accel.codec.files import pack_index
from accel.errors import PackError
from accel.packs import sources, unpacking, writing
from accel.packs.writing import check, pack
from tests.support import helpers
from tests.support.helpers import jpeg, picture
from tests.support.processes import linux

pytestmark = linux

SMALL = 20_000  # bytes of a shard


def content(folder: Path) -> dict[str, bytes]:
    """All files in a folder and below it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def known(folder: Path) -> list[tuple[str, int]]:
    """Paths and classes of a pack's files."""
    return pack_index.read(str(folder)).files()


def expected(tree: Path) -> list[tuple[str, int]]:
    """What ``ImageFolder`` lists."""
    return [(os.path.relpath(path, tree), label) for path, label in ImageFolder(tree, allow_empty=True).samples]


def add_oddities(tree: Path, beside: Path) -> None:
    """Names that are no UTF-8, links, an empty class, files that are ignored."""
    Path(os.fsdecode(os.fsencode(tree) + b"/b/caf\xe9.jpg")).write_bytes(jpeg(20, 20))
    Path(os.fsdecode(os.fsencode(tree) + b"/\xff")).mkdir()
    Path(os.fsdecode(os.fsencode(tree) + b"/\xff/x.webp")).write_bytes(jpeg(21, 20))
    (beside / "linked").mkdir(parents=True)
    (beside / "linked" / "far.jpg").write_bytes(jpeg(22, 20))
    (tree / "b" / "near.jpg").symlink_to("x.jpg")
    (tree / "b" / "folder.jpg").symlink_to(beside / "linked")
    (tree / "linked class").symlink_to(beside / "linked")
    (tree / "empty").mkdir()
    (tree / "readme.jpg").write_bytes(b"in no class")
    for number, kind in enumerate(("BMP", "GIF", "PPM", "TIFF", "WEBP")):
        picture(30, 20, seed=number).save(tree / "a 1" / f"{kind}.Png", kind)


# -- what is packed -----------------------------------------------------------------------------------------


def test_the_extensions_are_torchvisions() -> None:
    assert sources.EXTENSIONS == IMG_EXTENSIONS


def test_a_nasty_tree(tree: Path, tmp_path: Path) -> None:
    add_oddities(tree, tmp_path)
    report = pack(str(tree), str(tmp_path / "pack"), shard_size=SMALL, workers=2)
    index = pack_index.read(str(tmp_path / "pack"))
    assert known(tmp_path / "pack") == expected(tree)
    assert index.classes == ImageFolder(tree, allow_empty=True).classes
    assert report[:4] == (len(index.paths), len(index.classes), len(index.shards), sum(index.sizes))
    assert report.left_out == ["readme.jpg", "b/notes.txt"]
    assert not report.skipped
    for (path, _), (shard, offset, size) in zip(index.files(), index.places.tolist(), strict=True):
        data = (tree / path).read_bytes()
        assert (tmp_path / "pack" / index.shards[shard]).read_bytes()[offset : offset + size] == data


def test_the_shards_are_plain_tars_of_one_type_each(tree: Path, tmp_path: Path) -> None:
    add_oddities(tree, tmp_path)
    pack(str(tree), str(tmp_path / "pack"), shard_size=SMALL, workers=1)
    index = pack_index.read(str(tmp_path / "pack"))
    seen, types = set(), set()
    for shard, size in zip(index.shards, index.sizes, strict=True):
        file = tmp_path / "pack" / shard
        assert file.stat().st_size == size
        with tarfile.open(file) as tar:
            members = tar.getmembers()
            kinds = {member.name.split(".")[1] for member in members} - {"cls", "json"}
            assert len(kinds) == 1
            types |= kinds
            for at in range(0, len(members), 3):
                data, label, about = (tar.extractfile(member).read() for member in members[at : at + 3])  # type: ignore[union-attr]
                key = members[at].name.split(".")[0]
                path, of_class = index.files()[int(key)]
                assert [member.name for member in members[at + 1 : at + 3]] == [f"{key}.cls", f"{key}.json"]
                assert int(label) == of_class
                assert json.loads(about) == {
                    "path": path,
                    "class": path.split("/")[0],
                    "digest": hashlib.blake2b(data, digest_size=16).hexdigest(),
                }
                seen.add(int(key))
    assert seen == set(range(len(index.paths)))
    assert types == {"jpg", "png", "bmp", "gif", "ppm", "tif", "webp"}


def test_headers_are_those_of_tarfile() -> None:
    for name, size in (("000000000.jpg", 0), ("123456789.webp", 8**11 - 1), ("000000007.json", 511)):
        member = tarfile.TarInfo(name)
        member.size = size
        assert unpacking.header(name, size) == member.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_bytes_are_the_same_every_time(tree: Path, tmp_path: Path, workers: int) -> None:
    pack(str(tree), str(tmp_path / "pack"), shard_size=SMALL, workers=2, idx=True, wids=True)
    for path in tree.rglob("*"):
        os.utime(path, (1, 1))
    pack(str(tree), str(tmp_path / "again"), shard_size=SMALL, workers=workers, idx=True, wids=True)
    assert content(tmp_path / "pack") == content(tmp_path / "again")


def test_small_files_are_no_single_shard(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MOST", 7)
    assert pack(str(tree), str(tmp_path / "pack"), workers=1).shards == 6  # 32 JPEG files, one PNG file more
    assert known(tmp_path / "pack") == expected(tree)


def test_a_table(tree: Path, tmp_path: Path) -> None:
    rows = [("b/y.tar.jpg", "z"), ("b/deeper/X.JPG", "a"), ("b/X.JPG", "z"), ("./c//x.jpg", "z"), ("b/notes.txt", "a")]
    rows += [("b/deeper/still/x.jpg", "z"), ("b/deeper/x.jpg", "z"), ("b-1.jpg", "z")]
    (tree / "b-1.jpg").write_bytes(jpeg(30, 30))
    with open(tree / "table.csv", "w", newline="") as file:
        csv.writer(file).writerows([("path", "more", "label"), *((path, "", label) for path, label in rows)])
    same = tmp_path / "same"
    for path, label in rows:
        (same / label / path).parent.mkdir(parents=True, exist_ok=True)
        (same / label / path).write_bytes((tree / path).read_bytes())
    report = pack(str(tree / "table.csv"), str(tmp_path / "pack"), workers=1)
    assert report.left_out == ["a/b/notes.txt"]
    pack(str(same), str(tmp_path / "again"), workers=1)
    assert content(tmp_path / "pack") == content(tmp_path / "again")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("../x.jpg,a", "is not a path below the table's folder"),
        ("/etc/x.jpg,a", "is not a path below the table's folder"),
        (",a", "is not a path below the table's folder"),
        ("x.jpg,", "cannot be the name of a class folder"),
        ("x.jpg,a/b", "cannot be the name of a class folder"),
        ("x.jpg,..", "cannot be the name of a class folder"),
        ("./b/x.jpg,a", "it is listed twice"),
        ("gone.jpg,a", "it cannot be opened"),
        ("b,a.jpg", None),
    ],
)
def test_wrong_rows(tree: Path, tmp_path: Path, row: str, why: str | None) -> None:
    (tree / "table.csv").write_text(f"path,label\nb/x.jpg,a\n{row}\n")
    if why is not None:
        with pytest.raises(PackError, match=f"table.csv'?: .*{why}"):
            pack(str(tree / "table.csv"), str(tmp_path / "pack"), workers=1)
        assert not (tmp_path / "pack").exists()
    report = pack(str(tree / "table.csv"), str(tmp_path / "pack"), workers=1, skip=True)
    assert known(tmp_path / "pack") == [("a/b/x.jpg", 0)]
    assert len(report.skipped) == (why is not None)


def test_a_table_without_its_columns(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("file,label\n")
    with pytest.raises(PackError, match="must have the columns path and label"):
        pack(str(tmp_path / "table.csv"), str(tmp_path / "pack"))


class Images:
    """As torchvision's datasets of arrays."""

    classes = ("T-shirt/top", "Bag", "Ankle boot")

    def __init__(self, root: str, train: bool = True) -> None:
        if root != "folder":
            raise RuntimeError("Dataset not found or corrupted")
        self.train = train

    def __len__(self) -> int:
        return 12 if self.train else 5

    def __getitem__(self, number: int) -> tuple[Image.Image, int]:
        return picture(9, 8, "L", number), number % 3


def test_a_dataset_of_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "FashionMNIST", Images)
    for split, count in (("", 12), (":train", 12), (":test", 5)):
        unpacked = tmp_path / f"tree{split}"
        pack(f"FashionMNIST:folder{split}", str(tmp_path / f"pack{split}"), workers=1)
        unpacking.unpack(str(tmp_path / f"pack{split}"), str(unpacked))
        there = ImageFolder(unpacked)
        assert there.classes == ["0 - T-shirt-top", "1 - Bag", "2 - Ankle boot"]
        assert known(tmp_path / f"pack{split}") == expected(unpacked)
        images = Images("folder", split != ":test")
        assert len(there) == len(images) == count
        for path, label in there.samples:
            image, right = images[int(Path(path).stem)]
            assert label == right
            assert Image.open(path).tobytes() == image.tobytes()
    with pytest.raises(PackError, match="Dataset not found"):
        pack("FashionMNIST:elsewhere", str(tmp_path / "none"))


# -- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["no picture", "empty", "broken link", "pipe", "unreadable"])
def test_bad_files(tree: Path, tmp_path: Path, bad: str) -> None:
    file = tree / "b" / "bad.jpg"
    right = expected(tree)
    if bad == "no picture":
        file.write_bytes(b"no picture" * 100)
    elif bad == "empty":
        file.touch()
    elif bad == "broken link":
        file.symlink_to("nowhere")
    elif bad == "pipe":
        os.mkfifo(file)
    elif os.geteuid() == 0:
        pytest.skip("root reads everything")
    else:
        file.write_bytes(jpeg(20, 20))
        file.chmod(0)
    with pytest.raises(PackError, match=r"tree'?: 'b/bad.jpg': it (is no|cannot be)"):
        pack(str(tree), str(tmp_path / "pack"), workers=1)
    report = pack(str(tree), str(tmp_path / "pack"), workers=1, skip=True)
    assert [text.split(":")[0] for text in report.skipped] == ["'b/bad.jpg'"]
    assert known(tmp_path / "pack") == right
    assert not check(str(tmp_path / "pack"))


@pytest.mark.parametrize("what", ["nothing", "a file", "no classes", "no pictures", "inside"])
def test_wrong_sources(tmp_path: Path, what: str) -> None:
    source, place = tmp_path / "source", tmp_path / "pack"
    if what == "a file":
        source.touch()
    elif what != "nothing":
        source.mkdir()
    if what in ("no pictures", "inside"):
        (source / "class").mkdir()
    if what == "inside":
        (source / "class" / "x.jpg").write_bytes(jpeg(20, 20))
        place = source / "pack"
    with pytest.raises(PackError, match=r"neither a folder|no class folders|no pictures|the folder is inside"):
        pack(str(source), str(place))
    assert not place.exists()


def test_other_folders_stay_as_they_are(tree: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "file").write_text("something")
    with pytest.raises(PackError, match="the folder is not empty"):
        pack(str(tree), str(folder))
    (folder / "file").unlink()
    pack(str(tree), str(folder), workers=1)
    before = content(folder)
    with pytest.raises(PackError, match="there is a finished pack"):
        pack(str(tree), str(folder))
    assert content(folder) == before


def test_a_file_that_changes_meanwhile(tree: Path, tmp_path: Path) -> None:
    class Changes(sources.Silent):
        def __init__(self, title: str, total: int) -> None:
            if title == "packing":
                os.utime(tree / "b" / "x.jpg", (1, 1))

    with pytest.raises(PackError, match=r"b/x.jpg': it changed while it was packed"):
        pack(str(tree), str(tmp_path / "pack"), Changes, workers=1)
    assert not list((tmp_path / "pack").glob("*partial"))


# -- resuming -----------------------------------------------------------------------------------------------


def killed(tree: Path, folder: Path, seconds: float) -> bool:
    """Pack slowly, and kill the process; return whether it was still packing."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, since Python 3.12
        pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(60)
            writing.content = slow_content  # type: ignore[assignment]
            pack(str(tree), str(folder), shard_size=SMALL, workers=2)
            os._exit(0)
        finally:
            os._exit(4)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert select.select([pipe], [], [], 10)[0], "processes of the pool are left"
    assert status in (0, -signal.SIGKILL)
    return status != 0


def slow_content(file: sources.File) -> bytes:
    time.sleep(0.004)
    return sources.content(file)


def resumed(tree: Path, folder: Path, right: dict[str, bytes], seconds: Iterator[float]) -> int:
    """Kill after each of these times until a run comes to its end; compare; return the number of kills."""
    kills = 0
    for each in seconds:
        if not killed(tree, folder, each):
            break
        kills += 1
        if (folder / ".nv-meta" / "index.sqlite").exists():
            break
        with pytest.raises(PackError, match="cannot be used"):
            pack_index.read(str(folder))
    again(tree, folder)
    assert content(folder) == right
    return kills


def again(tree: Path, folder: Path, shard_size: int = SMALL) -> None:
    """Resume, whether something is left to do or not."""
    if (folder / ".nv-meta" / "index.sqlite").exists():
        with pytest.raises(PackError, match="there is a finished pack"):
            pack(str(tree), str(folder), shard_size=shard_size, workers=1)
    else:
        pack(str(tree), str(folder), shard_size=shard_size, workers=1)


def test_killed_runs_are_resumed(tree: Path, tmp_path: Path) -> None:
    pack(str(tree), str(tmp_path / "right"), shard_size=SMALL, workers=1)
    right = content(tmp_path / "right")
    assert resumed(tree, tmp_path / "pack", right, iter((0.02, 0.08, 0.1, 0.15))) >= 3


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(300))
def test_many_killed_runs(tree: Path, tmp_path: Path, seed: int) -> None:
    pack(str(tree), str(tmp_path / "right"), shard_size=SMALL, workers=1)
    rng = random.Random(seed)
    resumed(
        tree, tmp_path / "pack", content(tmp_path / "right"), (rng.uniform(0, 0.5) for _ in range(rng.randint(1, 6)))
    )


class Killed(BaseException):
    """Instead of a signal, at a step of the main process."""


@pytest.mark.parametrize("step", [pytest.param(n, marks=() if n % 3 == 0 else pytest.mark.sweep) for n in range(1, 26)])
def test_a_run_that_ends_at_any_step(tree: Path, tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each change of the folder."""
    pack(str(tree), str(tmp_path / "right"), shard_size=60_000, workers=1)
    left = [step]

    def ends(function: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                raise Killed
            return function(*arguments, **options)

        return run

    with monkeypatch.context() as patch:
        for name in ("makedirs", "rename", "remove", "fsync"):
            patch.setattr(os, name, ends(getattr(os, name)))
        try:
            pack(str(tree), str(tmp_path / "pack"), shard_size=60_000, workers=1)
        except Killed:
            patch.undo()
            again(tree, tmp_path / "pack", 60_000)
    assert content(tmp_path / "pack") == content(tmp_path / "right")


@pytest.mark.parametrize("change", ["time", "new", "gone", "shard size", "not"])
def test_another_source_is_refused(tree: Path, tmp_path: Path, change: str) -> None:
    pack(str(tree), str(tmp_path / "right"), shard_size=SMALL, workers=1)

    class Ends(sources.Silent):
        def advance(self, count: int = 1) -> None:
            if (tmp_path / "pack" / "shard-000003.tar").exists():
                raise Killed

    with pytest.raises(Killed):
        pack(str(tree), str(tmp_path / "pack"), Ends, shard_size=SMALL, workers=1)
    size = SMALL
    if change == "time":
        os.utime(tree / "b" / "x.jpg", (1, 1))
    elif change == "new":
        (tree / "b" / "new.jpg").write_bytes(jpeg(20, 20))
    elif change == "gone":
        (tree / "b" / "x.jpg").unlink()
    elif change == "shard size":
        size *= 2
    if change == "not":
        pack(str(tree), str(tmp_path / "pack"), shard_size=size, workers=1)
        assert content(tmp_path / "pack") == content(tmp_path / "right")
    else:
        before = content(tmp_path / "pack")
        with pytest.raises(PackError, match="unfinished pack of another source"):
            pack(str(tree), str(tmp_path / "pack"), shard_size=size, workers=1)
        assert content(tmp_path / "pack") == before


def test_two_at_once(tree: Path, tmp_path: Path) -> None:
    class Both(sources.Silent):
        def __init__(self, title: str, total: int) -> None:
            if title == "packing":
                with pytest.raises(PackError, match="somebody else is packing into it"):
                    pack(str(tree), str(tmp_path / "pack"), shard_size=SMALL, workers=1)

    pack(str(tree), str(tmp_path / "pack"), Both, shard_size=SMALL, workers=1)
    assert known(tmp_path / "pack") == expected(tree)


# -- checking -----------------------------------------------------------------------------------------------


def test_what_was_written_is_compared(tree: Path, tmp_path: Path) -> None:
    class Harms(sources.Silent):
        def __init__(self, title: str, total: int) -> None:
            if title == "verifying":
                os.truncate(tmp_path / "pack" / "shard-000001.tar", 5000)

    with pytest.raises(PackError, match=r"what was written is not what is there: .*shard-000001.tar"):
        pack(str(tree), str(tmp_path / "pack"), Harms, shard_size=SMALL, workers=1)
    assert not (tmp_path / "pack" / ".nv-meta" / "index.sqlite").exists()


@pytest.mark.parametrize("harm", ["cut", "longer", "exchanged", "gone", "bit", "two"])
def test_a_shard_that_differs(pack: Path, harm: str) -> None:
    assert not check(str(pack), workers=1)
    shard, other = pack / "shard-000001.tar", pack / "shard-000002.tar"
    if harm == "cut":
        os.truncate(shard, shard.stat().st_size - 1024)
    elif harm == "longer":
        shard.write_bytes(shard.read_bytes() + bytes(512))
    elif harm == "exchanged":
        shard.write_bytes(other.read_bytes())
    elif harm == "gone":
        shard.unlink()
    elif harm == "bit":
        data = bytearray(shard.read_bytes())
        data[700] ^= 1
        shard.write_bytes(data)
    else:
        data, _ = shard.read_bytes(), shard.write_bytes(other.read_bytes())
        other.write_bytes(data)
    faults = check(str(pack), workers=1)
    assert len(faults) == 1 + (harm == "two")
    assert "shard-000001.tar" in faults[0]


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ("UPDATE accel_columns SET value = zeroblob(length(value)) WHERE name = 'digests'", None),
        ("UPDATE accel_columns SET value = zeroblob(length(value)) WHERE name = 'places'", None),
        (
            "UPDATE accel_columns SET value = CAST(replace(value, 'X', 'Z') AS BLOB) WHERE name = 'paths'",
            None,
        ),
        ("UPDATE samples SET byte_size = byte_size + 512 WHERE sample_key = '000000003'", 1),
        ("UPDATE sample_parts SET part_name = 'txt' WHERE part_name = 'cls' AND tar_file_id = 1", 1),
        ("DELETE FROM samples WHERE sample_key = '000000003'", 1),
        ("INSERT INTO samples VALUES (77, 'more', 0, 0, 0)", 1),
        ("DROP INDEX idx_sample_parts_seq", PackError),
        ("CREATE VIEW more AS SELECT 1", PackError),
    ],
)
def test_an_index_that_differs(pack: Path, sql: str, count: Any) -> None:
    """``count``: of the faults; None: several."""
    with closing(sqlite3.connect(pack_index.file_of(str(pack)))) as connection, connection:
        connection.execute(sql)
    found = helpers.outcome(lambda: len(check(str(pack), workers=1)))
    assert found > 1 if count is None else found == count


# -- others' files ------------------------------------------------------------------------------------------


def test_energons_files(tree: Path, tmp_path: Path) -> None:
    add_oddities(tree, tmp_path)
    pack(str(tree), str(tmp_path / "pack"), shard_size=SMALL, workers=1)
    index = pack_index.read(str(tmp_path / "pack"))
    meta = tmp_path / "pack" / ".nv-meta"
    with closing(sqlite3.connect(f"file:{meta / 'index.sqlite'}?mode=ro&immutable=1", uri=True)) as rows:
        assert rows.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        plans = (
            "SELECT sample_index FROM samples WHERE sample_key = '1'",
            "SELECT 1 FROM sample_parts WHERE tar_file_id = 1",
        )
        assert all("INDEX" in rows.execute(f"EXPLAIN QUERY PLAN {sql}").fetchone()[3] for sql in plans)
        for shard, name in enumerate(index.shards):
            with tarfile.open(tmp_path / "pack" / name) as tar:
                members = tar.getmembers()
            found = rows.execute(
                "SELECT * FROM samples WHERE tar_file_id = ? ORDER BY sample_index", (shard,)
            ).fetchall()
            ends = [*(member.offset for member in members[::3]), tar.offset]
            assert found == [
                (shard, member.name.split(".")[0], order, ends[order], ends[order + 1] - ends[order])
                for order, member in enumerate(members[::3])
            ]
            ordered = "SELECT * FROM sample_parts WHERE tar_file_id = ? ORDER BY sample_index, content_byte_offset"
            parts = rows.execute(ordered, (shard,)).fetchall()
            assert parts == [
                (shard, at // 3, member.name.split(".")[1], member.offset_data, member.size)
                for at, member in enumerate(members)
            ]
            offsets = (tmp_path / "pack" / f"{name}.idx").read_bytes()
            assert offsets == b"".join(end.to_bytes(8, "little") for end in ends)
    info = json.loads((meta / ".info.json").read_text())
    assert list(info["shard_counts"]) == index.shards
    assert sum(info["shard_counts"].values()) == len(index.paths)
    assert json.loads((meta / "split.yaml").read_text())["split_parts"]["train"] == index.shards
    fields = json.loads((meta / "dataset.yaml").read_text())["field_map"]
    assert fields == {"image": "bmp,gif,jpg,png,ppm,tif,webp", "label": "cls", "label_name": "json[class]"}
    assert sorted(path.name for path in meta.iterdir()) == sorted(
        (".info.json", "dataset.yaml", "index.sqlite", "index.uuid", "split.yaml")
    )


def test_dalis_and_wids_indexes(tree: Path, tmp_path: Path) -> None:
    pack(str(tree), str(tmp_path / "pack"), shard_size=SMALL, workers=1, idx=True, wids=True)
    index = pack_index.read(str(tmp_path / "pack"))
    shards = []
    for name, size in zip(index.shards, index.sizes, strict=True):
        with tarfile.open(tmp_path / "pack" / name) as tar:
            members = tar.getmembers()
        first, *lines = (tmp_path / "pack" / name).with_suffix(".idx").read_text().splitlines()
        assert first == f"v1.2 {len(members) // 3}"
        texts = [f"{member.name.split('.')[1]} {member.offset_data} {member.size} {member.name}" for member in members]
        assert lines == [" ".join(texts[at : at + 3]) for at in range(0, len(texts), 3)]
        shards.append({"url": name, "nsamples": len(lines), "filesize": size})
    wids = json.loads((tmp_path / "pack" / "wids.json").read_text())
    assert wids == {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}


# -- many files ---------------------------------------------------------------------------------------------

_MEMORY = """
import resource, sys
from accel.packs import sources, writing
def now():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
before = now()
writing.pack(sys.argv[1], sys.argv[2], workers=2)
own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(own - before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before)
"""


@pytest.mark.sweep
def test_the_memory_for_many_files(tmp_path: Path) -> None:
    """That of the interpreter apart, less than 60 MB in the main process (0.5 kB a file), and less in the others."""
    data = jpeg(16, 16)
    for label in range(100):
        (tmp_path / "tree" / f"{label:03}").mkdir(parents=True)
        for number in range(200):
            (tmp_path / "tree" / f"{label:03}" / f"{number}.jpg").write_bytes(data)
    command = [sys.executable, "-c", _MEMORY, str(tmp_path / "tree"), str(tmp_path / "pack")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    own, others = map(int, done.stdout.split())
    assert own < 60_000
    assert others < 40_000
    assert len(known(tmp_path / "pack")) == 20_000
