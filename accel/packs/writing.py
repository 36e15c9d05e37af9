"""A pack is written: shard by shard in the processes of a pool, and then the index.

A shard gets its name when it is whole, so a run that was killed is resumed behind the shards that are there. When all
are, every shard is read again, and the index is made of what was found; it gets its name last of all. The same source
gives the same bytes, by however many processes and runs.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from glob import escape, glob
from hashlib import blake2b
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from accel.codec.files import pack_index
from accel.codec.files.pack_index import FOLDER, FORMAT, MADE
from accel.errors import PackError
from accel.packs.lossless import Saving, require_jpegtran, rewritten
from accel.packs.sources import File, Listing, Pool, Progress, Silent, content, listed
from accel.packs.unpacking import BLOCK, END, Sample, about, header, name_of, naming, padded, samples
from accel.system.cores import cores

ENERGON = (
    "CREATE TABLE samples (tar_file_id INTEGER NOT NULL, sample_key TEXT NOT NULL UNIQUE,"
    " sample_index INTEGER NOT NULL, byte_offset INTEGER, byte_size INTEGER)",
    "CREATE TABLE sample_parts (tar_file_id INTEGER, sample_index INTEGER, part_name TEXT,"
    " content_byte_offset INTEGER, content_byte_size INTEGER)",
    "CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index)",
    "CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset)",
    "CREATE INDEX idx_sample_parts_full ON sample_parts"
    "(tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size)",
)
"""Megatron-Energon's tables and indexes (its fourth is that of UNIQUE)."""

MOST = 10_000  # samples of a shard: of small files, a shard is still one piece of work among several
_SAMPLES = "SELECT * FROM samples WHERE tar_file_id = ? ORDER BY sample_index"
_PARTS = "SELECT * FROM sample_parts WHERE tar_file_id = ? ORDER BY sample_index, content_byte_offset"
_COUNTS = "SELECT (SELECT count(*) FROM samples), (SELECT count(*) FROM sample_parts)"

README = """# A pack

{files} pictures of {classes} classes in {shards} tar files and an index, made by accel (`python -m accel pack`).

- accel: `torchvision.datasets.ImageFolder(this_folder)` after `accel.set_image_backend("cpu")`, or
  `accel.PackDataset(this_folder)` without: the same samples, in the same order, as of the tree that was packed.
- WebDataset: `shard-*.tar`. A sample is a picture (`000000123.jpg`: its number, and the extension of its true type),
  its class number (`.cls`) and a `.json` with its path in the tree, the name of its class and the BLAKE2b digest
  (16 bytes) of the picture. All pictures of a shard are of one type, so there can be several kinds of shards.
- Megatron-Energon: this folder, by what is in `.nv-meta` and the `.tar.idx` files.
- The tree: `python -m accel pack --unpack this_folder new_folder`, or any tar.
- Is it intact? `python -m accel pack --check this_folder`.
"""


class Report(NamedTuple):
    """What was packed: numbers of files, classes and shards, the shards' bytes; the files that ``ImageFolder`` ignores,
    and those that could not be packed, with the reasons; what this run has rewritten without loss."""

    files: int
    classes: int
    shards: int
    size: int
    left_out: list[str]
    skipped: list[str]
    saving: Saving


def pack(
    source: str,
    place: str,
    progress: Progress = Silent,
    *,
    shard_size: int = 10**9,
    workers: int | None = None,
    skip: bool = False,
    lossless: bool = False,
    idx: bool = False,
    wids: bool = False,
) -> Report:
    """Pack a source (see ``sources``) into a folder that is new, empty or an unfinished pack of the same source.

    Args:
        shard_size: the bytes that a shard has at most, about; it has at most 10,000 samples.
        workers: the number of processes. By default one for each core.
        skip: leave out files that cannot be packed, and report them.
        lossless: rewrite JPEG files that are decoded faster then, with the same pixels (see ``lossless``).
        idx, wids: also write an index for DALI beside each shard, and ``wids.json`` for WebDataset's wids.

    Raises:
        PackError: it cannot be packed; the message says why.
    """
    place = os.path.abspath(place)
    if os.path.isdir(source) and (os.path.realpath(place) + os.sep).startswith(os.path.realpath(source) + os.sep):
        raise PackError(f"{place!r}: the folder is inside of what is to be packed")
    if lossless:
        require_jpegtran()
    try:
        with Pool(workers or cores()) as pool:
            listing = listed(source, pool, skip, lossless, progress)
            return _packed(listing, place, shard_size, (idx, wids), pool, progress)
    except (sqlite3.Error, OSError) as error:
        raise error if isinstance(error, PackError) else PackError(f"{place!r}: {error}") from error


def _packed(
    listing: Listing,
    place: str,
    shard_size: int,
    extras: tuple[bool, bool],
    pool: Pool,
    progress: Progress,
) -> Report:
    files, plan = listing.files, _planned(listing.files, shard_size)
    shards = [name_of(shard) for shard in range(len(plan))]
    made, saving = pack_index.file_of(place) + ".new", Saving()
    with closing(_locked(place, listing, plan)):
        with progress("packing", len(files)) as bar:
            missing = [shard for shard, name in enumerate(shards) if not os.path.exists(os.path.join(place, name))]
            bar.advance(len(files) - sum(len(plan[shard]) for shard in missing))
            jobs = ((place, shard, [(number, files[number]) for number in plan[shard]]) for shard in missing)
            for written, saved in pool.in_turn(_write, jobs):
                _sync(place)
                bar.advance(written)
                saving = saving.plus(saved)
        _remove(made)
        with closing(sqlite3.connect(made, isolation_level=None)) as index:
            with progress("verifying", len(files)) as bar, index:
                index.execute("BEGIN")
                again = pool.in_turn(read_back, ((os.path.join(place, name),) for name in shards))
                sizes = _fill(index, listing, plan, again, bar)
            for name, data in _small_files(index, shards, sizes, len(listing.classes), *extras):
                _write_small(os.path.join(place, name), data)
        os.rename(made, pack_index.file_of(place))
        _sync(os.path.join(place, FOLDER))
    _remove(_partial(place))
    return Report(len(files), len(listing.classes), len(plan), sum(sizes), listing.left_out, listing.faults, saving)


def _planned(files: list[File], shard_size: int) -> list[list[int]]:
    """The numbers of each shard's files. Shards of different types are filled at the same time."""
    shards, filling = list[list[int]](), dict[str, tuple[list[int], int]]()
    for number, file in enumerate(files):
        shard, size = filling.get(file.kind, ([], shard_size))
        size += padded(file.size) + 5 * BLOCK
        if size > shard_size or len(shard) == MOST:
            shard, size = [], padded(file.size) + 5 * BLOCK
            shards.append(shard)
        shard.append(number)
        filling[file.kind] = shard, size
    return shards


# -- the index ----------------------------------------------------------------------------------------------


def _partial(place: str) -> str:
    return pack_index.file_of(place) + ".partial"


def _locked(place: str, listing: Listing, plan: list[list[int]]) -> sqlite3.Connection:
    """Open what tells of an unfinished pack of which source it is, or begin one; nobody else can open it meanwhile.

    Raises:
        PackError: the folder has something else.
    """
    if os.path.exists(pack_index.file_of(place)):
        _remove(_partial(place))  # of a run that was killed after all was done
        raise PackError(f"{place!r}: there is a finished pack")
    folder = os.path.join(place, FOLDER)
    os.makedirs(place, exist_ok=True)
    if not os.path.exists(_partial(place)):
        if set(os.listdir(place)) - {FOLDER} or (os.path.exists(folder) and os.listdir(folder)):
            raise PackError(f"{place!r}: the folder is not empty, and no unfinished pack")
        os.makedirs(folder, exist_ok=True)
    index = sqlite3.connect(_partial(place), isolation_level=None, timeout=0)
    try:
        index.execute("PRAGMA locking_mode=EXCLUSIVE")
        with index:
            index.execute("BEGIN EXCLUSIVE")
            _compare(index, place, listing, plan)
    except sqlite3.Error as error:
        index.close()
        busy = (
            "somebody else is packing into it"
            if "locked" in str(error)
            else f"its {os.path.basename(_partial(place))} is damaged: {error}"
        )
        raise PackError(f"{place!r}: {busy}") from error
    except BaseException:
        index.close()
        raise
    for left in glob(escape(place) + "/shard-*.partial"):
        os.remove(left)
    return index


def _compare(index: sqlite3.Connection, place: str, listing: Listing, plan: list[list[int]]) -> None:
    """Compare the source with that of an unfinished pack, or note it for a new one."""
    source = blake2b(repr((FORMAT, listing.classes, plan)).encode(), digest_size=16)
    for file in listing.files:
        source.update(repr(file[:6]).encode())
    if index.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
        index.execute("CREATE TABLE source (digest BLOB)")
        index.execute("INSERT INTO source VALUES (?)", (source.digest(),))
    elif index.execute("SELECT digest FROM source").fetchone() != (source.digest(),):
        raise PackError(
            f"{place!r}: there is an unfinished pack of another source or with other options, or the source has "
            "changed; remove it, or pack into another folder"
        )


def _remove(database: str) -> None:
    for file in (database, f"{database}-journal"):
        with suppress(FileNotFoundError):
            os.remove(file)


def _fill(
    index: sqlite3.Connection, listing: Listing, plan: list[list[int]], shards: Iterator[ReadBack | str], bar: Any
) -> list[int]:
    """Fill the index with what the shards have, which must be what was listed; return their sizes."""
    files, sizes = listing.files, list[int]()
    places, digests = np.empty((len(files), 3), "<i8"), np.empty((len(files), pack_index.DIGEST), np.uint8)
    for sql in ENERGON:
        index.execute(sql)
    for shard, (numbers, found) in enumerate(zip(plan, shards, strict=True)):
        fault = found if isinstance(found, str) else ""
        if isinstance(found, ReadBack):
            packed = [(sample.number, sample.path, sample.label) for sample in found.samples]
            if packed != [(number, files[number].path, files[number].label) for number in numbers]:
                fault = f"{name_of(shard)!r} has other files"
        if fault or isinstance(found, str):
            raise PackError(f"what was written is not what is there: {fault}")
        samples, parts = _rows(shard, found.samples)
        index.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", samples)
        index.executemany("INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)", parts)
        places[numbers], digests[numbers] = _columns(shard, found.samples)
        sizes.append(found.size)
        bar.advance(len(numbers))
    labels = np.array([file.label for file in files], np.int64)
    pack_index.write(
        index,
        classes=_names(listing.classes),
        counts=np.bincount(labels, minlength=len(listing.classes)).astype("<i8").tobytes(),
        paths=_names([file.path.partition("/")[2] for file in files]),
        places=places.tobytes(),
        digests=digests.tobytes(),
        shards=_names([name_of(shard) for shard in range(len(plan))]),
        sizes=np.array(sizes, "<i8").tobytes(),
    )
    return sizes


def _names(names: list[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def _rows(shard: int, found: list[Sample]) -> tuple[list[Any], list[Any]]:
    """The rows of a shard in Energon's tables."""
    samples, parts = list[Any](), list[Any]()
    for order, sample in enumerate(found):
        samples.append((shard, f"{sample.number:09}", order, sample.start, sample.end - sample.start))
        parts += [(shard, order, *part) for part in sample.parts]
    return samples, parts


def _columns(shard: int, found: list[Sample]) -> tuple[Any, Any]:
    """Places and digests of a shard's files, as ``pack_index`` has them."""
    places = [(shard, sample.start + BLOCK, sample.sizes[0]) for sample in found]
    digests = np.frombuffer(bytes.fromhex("".join(sample.digest for sample in found)), np.uint8)
    return np.array(places, np.int64), digests.reshape(-1, pack_index.DIGEST)


def _sync(folder: str) -> None:
    """Have the names in a folder reach the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- shards -------------------------------------------------------------------------------------------------


def _write(place: str, shard: int, files: list[tuple[int, File]]) -> tuple[int, Saving]:
    """Write a shard in a process of the pool; return the number of its samples, and what rewriting brought."""
    name, saving = os.path.join(place, name_of(shard)), Saving()
    temporary = f"{name}.{secrets.token_hex(4)}.partial"
    try:
        with naming(name), open(temporary, "xb", buffering=1 << 20) as out:
            for number, file in files:
                data = content(file)
                if file.rewrite:
                    data, saved = rewritten(data, file.path)
                    saving = saving.plus(saved)
                digest = blake2b(data, digest_size=pack_index.DIGEST).hexdigest()
                contents = data, str(file.label).encode(), about(file.path, digest)
                pieces = list[bytes]()
                for kind, each in zip((file.kind, "cls", "json"), contents, strict=True):
                    pieces += header(f"{number:09}.{kind}", len(each)), each, bytes(-len(each) % BLOCK)
                out.write(b"".join(pieces))
            out.write(END)
            out.flush()
            os.fsync(out.fileno())
        os.rename(temporary, name)
    except BaseException:
        with suppress(OSError):
            os.remove(temporary)
        raise
    return len(files), saving


# -- verifying ----------------------------------------------------------------------------------------------


class ReadBack(NamedTuple):
    """A shard that was read again: its bytes, and its samples, whose digests are right."""

    size: int
    samples: list[Sample]


def read_back(shard: str) -> ReadBack | str:
    """Read a shard in a process of the pool; return what is wrong with it if anything is."""
    found = list[Sample]()
    try:
        with naming(shard):
            for sample, pieces in samples(shard):
                for _ in pieces:
                    pass
                found.append(sample)
            return ReadBack(os.path.getsize(shard), found)
    except PackError as error:
        return str(error)


def check(place: str, progress: Progress = Silent, workers: int | None = None) -> list[str]:
    """Compare all shards of a pack with its index, and every picture with its digest; return what differs.

    Raises:
        PackError: the index cannot be used.
    """
    index, file, faults = pack_index.read(place), pack_index.file_of(place), list[str]()
    shards = [os.path.join(place, name) for name in index.shards]
    total = 0
    try:
        with closing(pack_index.opened(file)) as rows, Pool(workers or cores()) as pool:
            if {sql for (sql,) in rows.execute("SELECT sql FROM sqlite_master WHERE sql > ''")} != {MADE, *ENERGON}:
                raise PackError(f"{file!r}: its tables are not those that accel makes")
            with progress("verifying", len(index.paths)) as bar:
                for shard, found in enumerate(pool.in_turn(read_back, ((name,) for name in shards))):
                    if isinstance(found, str):
                        faults.append(found)
                        continue
                    in_tables = tuple(rows.execute(sql, (shard,)).fetchall() for sql in (_SAMPLES, _PARTS))
                    if not is_indexed(shard, found, index) or in_tables != _rows(shard, found.samples):
                        faults.append(f"{shards[shard]!r}: it is not the shard that the index describes")
                    total += len(found.samples)
                    bar.advance(len(found.samples))
            if not faults and (total, (total, 3 * total)) != (len(index.paths), rows.execute(_COUNTS).fetchone()):
                faults.append(f"{file!r}: it has more files than the shards")
    except sqlite3.Error as error:
        raise PackError(f"{file!r}: the pack's index cannot be read: {error}") from error
    return faults


def is_indexed(shard: int, found: ReadBack, index: pack_index.Index) -> bool:
    """Whether an index describes a shard as it is."""
    numbers = [sample.number for sample in found.samples]
    if found.size != index.sizes[shard] or not numbers or max(numbers) >= len(index.paths):
        return False
    places, digests = _columns(shard, found.samples)
    paths = [
        f"{index.classes[sample.label]}/{index.paths[sample.number]}"
        for sample in found.samples
        if sample.label < len(index.classes)
        and index.begins[sample.label] <= sample.number < index.begins[sample.label + 1]
    ]
    return (
        paths == [sample.path for sample in found.samples]
        and np.array_equal(index.places[numbers], places)
        and np.array_equal(index.digests[numbers], digests)
    )


# -- small files --------------------------------------------------------------------------------------------


def _small_files(
    index: sqlite3.Connection, shards: list[str], sizes: list[int], classes: int, idx: bool, wids: bool
) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the files beside the shards: a README, Energon's, and those on request."""
    counts, kinds, found_all = dict[str, int](), set[str](), blake2b(digest_size=16)
    for shard, name in enumerate(shards):
        found, parts = (index.execute(sql, (shard,)).fetchall() for sql in (_SAMPLES, _PARTS))
        counts[name] = len(found)
        kinds.update(part for _, order, part, *_ in parts if order == 0 and part not in ("cls", "json"))
        found_all.update(repr(parts).encode())
        starts = [start for *_, start, _ in found]
        yield f"{name}.idx", struct.pack(f"<{len(found) + 1}Q", *starts, starts[-1] + found[-1][-1])
        if idx:
            yield f"{name.removesuffix('.tar')}.idx", _dali(found, parts)
    if wids:
        shardlist = [
            {"url": name, "nsamples": counts[name], "filesize": size} for name, size in zip(shards, sizes, strict=True)
        ]
        yield "wids.json", _json({"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shardlist})
    yield "README.md", README.format(files=sum(counts.values()), classes=classes, shards=len(shards)).encode()
    fields = {"image": ",".join(sorted(kinds)), "label": "cls", "label_name": "json[class]"}
    energon = {"__module__": "megatron.energon", "__class__": "ImageClassificationSample"}
    yield f"{FOLDER}/dataset.yaml", _json({"sample_type": energon, "field_map": fields})  # JSON is YAML
    yield f"{FOLDER}/split.yaml", _json({"split_parts": {"train": list(counts), "val": [], "test": []}, "exclude": []})
    yield f"{FOLDER}/.info.json", _json({"energon_version": "7.4.1", "shard_counts": counts})
    yield f"{FOLDER}/index.uuid", str(UUID(bytes=found_all.digest(), version=4)).encode()


def _dali(found: list[Any], parts: list[Any]) -> bytes:
    """The index of a shard that DALI's ``wds2idx`` makes: a line of extensions, offsets, sizes and names a sample."""
    lines = [f"v1.2 {len(found)}"]
    for (_, key, *_), at in zip(found, count(0, 3), strict=False):
        lines.append(" ".join(f"{part} {offset} {size} {key}.{part}" for *_, part, offset, size in parts[at : at + 3]))
    return "\n".join([*lines, ""]).encode()


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"


def _write_small(file: str, data: bytes) -> None:
    with open(file, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
