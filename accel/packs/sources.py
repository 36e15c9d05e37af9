"""What is packed: the pictures of a tree, a table or a dataset of arrays, in the order of an ``ImageFolder``.

A source is named by a text: the folder of an ``ImageFolder`` tree; a ``.csv`` with the columns ``path`` (relative to
the table's folder) and ``label``, which stands for the tree ``label/path``; or one of torchvision's array datasets, as
``CIFAR10:folder`` or ``MNIST:folder:test``, whose images become PNG files ``class/number.png``.
"""

from __future__ import annotations

import csv
import inspect
import os
import re
import stat
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from io import BytesIO
from multiprocessing import parent_process
from threading import Thread
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar
from zlib import crc32

from PIL import Image, UnidentifiedImageError

from accel.errors import PackError
from accel.system.imports import LazyModule

_datasets: Any = LazyModule("torchvision.datasets")

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""What the names of ``ImageFolder``'s files end with, in any case (torchvision's ``IMG_EXTENSIONS``)."""

KINDS = {"JPEG": "jpg", "MPO": "jpg", "PNG": "png", "PPM": "ppm", "BMP": "bmp", "TIFF": "tif", "WEBP": "webp"}
"""The extension for each of Pillow's formats; for others it is the format's own name."""

ARRAYS = ("CIFAR10", "CIFAR100", "FashionMNIST", "KMNIST", "MNIST", "QMNIST", "STL10", "SVHN", "USPS")

_ARRAYS = re.compile(rf"({'|'.join(ARRAYS)}):(.+?)(?::(train|test))?")
_LARGEST = 1 << 33  # bytes: no member of a plain tar has as many
_LONGEST_NAME = 255  # bytes; of most file systems
_TOGETHER = 256  # files that a process looks at in one call

Place: TypeAlias = str | tuple[str, int]
"""Where a file's bytes are: its path, or a dataset of arrays and the number of an image in it."""

Progress: TypeAlias = Callable[..., Any]
"""Makes a progress bar of a title and a total, as ``accel.cli.screen.Bar`` is."""

Result = TypeVar("Result")

Found: TypeAlias = tuple[list[str], list[tuple[str, int, Place]], list[str], list[str]]
"""A ``Listing`` before anybody looked into the files: of these, the path in the tree, the class and the place."""


class File(NamedTuple):
    """A picture to pack: its path in the tree and class, its size, what tells whether it changed (``stamp``: the time
    of its last change, or a checksum of an image's pixels), the extension of its true type, whether it is to be
    rewritten (see ``lossless``), and where its bytes are."""

    path: str
    label: int
    size: int
    stamp: int
    kind: str
    rewrite: bool
    place: Place


class Listing(NamedTuple):
    """What a source has: classes and pictures in ``ImageFolder``'s order, the files that it ignores (``left_out``), and
    why others cannot be packed (``faults``: a text each)."""

    classes: list[str]
    files: list[File]
    left_out: list[str]
    faults: list[str]


class Silent:
    """A progress bar that shows nothing."""

    def __init__(self, title: str, total: int, *, counted: bool = True) -> None:
        pass

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def advance(self, count: int = 1) -> None:
        pass


def listed(source: str, pool: Pool, skip: bool, lossless: bool, progress: Progress) -> Listing:
    """List a source, and look into each of its files; ``lossless``: JPEG files are to be rewritten.

    Raises:
        PackError: there is no such source, or nothing in it to pack; or a file cannot be packed, and not ``skip``.
    """
    classes, candidates, left_out, faults = _found(source)
    parts = [candidates[at : at + _TOGETHER] for at in range(0, len(candidates), _TOGETHER)]
    files = []
    with progress("looking at the files", len(candidates)) as bar:
        looks = pool.in_turn(look, (([place for *_, place in part],) for part in parts))
        for part, looked in zip(parts, looks, strict=True):
            for (path, label, place), seen in zip(part, looked, strict=True):
                if isinstance(seen, str):
                    faults.append(f"{path!r}: {seen}")
                else:
                    files.append(File(path, label, *seen, lossless and seen[2] == "jpg", place))
            if faults and not skip:
                break
            bar.advance(len(part))
    if faults and not skip:
        raise PackError(f"{source!r}: {faults[0]}")
    if not files:
        raise PackError(f"{source!r}: there are no pictures in it")
    return Listing(classes, files, left_out, faults)


def _found(source: str) -> Found:
    try:
        if os.path.isdir(source):
            return _tree(source)
        if source.lower().endswith(".csv"):
            return _table(source)
    except (OSError, csv.Error, RecursionError) as error:
        raise error if isinstance(error, PackError) else PackError(f"{source!r}: {error}") from error
    if _ARRAYS.fullmatch(source):
        return _images(source)
    known = ", ".join(ARRAYS)
    raise PackError(
        f"{source!r}: neither a folder, nor a .csv, nor an array dataset as CIFAR10:folder (one of {known})"
    )


def _tree(root: str) -> Found:
    """The files that ``ImageFolder`` finds, in the order of ``torchvision.datasets.folder.make_dataset``."""
    with os.scandir(root) as entries:
        folders = {entry.name: entry.is_dir() for entry in entries}
    classes = sorted(name for name, is_folder in folders.items() if is_folder)
    if not classes:
        raise PackError(f"{root!r}: there are no class folders in it")
    candidates, left_out, faults = list[tuple[str, int, Place]](), sorted(folders.keys() - set(classes)), list[str]()
    below = len(os.path.join(root, ""))

    def note(error: OSError) -> None:
        faults.append(f"{error.filename!r}: {error.strerror}")

    for label, name in enumerate(classes):
        for folder, _, names in sorted(os.walk(os.path.join(root, name), onerror=note, followlinks=True)):
            for place in [os.path.join(folder, each) for each in sorted(names)]:
                if place.lower().endswith(EXTENSIONS):
                    candidates.append((place[below:], label, place))
                else:
                    left_out.append(place[below:])
    return classes, candidates, left_out, faults


def _table(file: str) -> Found:
    """The files of a table, as ``ImageFolder`` would find them in the tree ``label/path``."""
    rows, left_out, faults = dict[tuple[str, str, str], str](), [], []
    with open(file, newline="", encoding="utf-8-sig", errors="surrogateescape") as text:
        table = csv.DictReader(text, strict=True)
        if not {"path", "label"} <= set(table.fieldnames or ()):
            raise PackError(f"{file!r}: it must have the columns path and label")
        for row in table:
            given, label = row["path"] or "", row["label"] or ""
            path = os.path.normpath(given)
            key = (label, *os.path.split(path))
            if label in ("", ".", "..") or "/" in label or "\0" in label:
                faults.append(f"line {table.line_num}: {label!r} cannot be the name of a class folder")
            elif not given or os.path.isabs(path) or ".." in given.split("/"):
                faults.append(f"line {table.line_num}: {given!r} is not a path below the table's folder")
            elif len(os.fsencode(max(label, *path.split("/"), key=len))) > _LONGEST_NAME:
                faults.append(f"line {table.line_num}: a name is too long")
            elif key in rows:
                faults.append(f"line {table.line_num}: {label}/{path}: it is listed twice")
            else:
                rows[key] = path
    folders = {(label, *os.path.split(folder)) for label, folder, _ in rows}
    faults += [
        f"{label}/{rows[label, folder, name]}: it is a folder, too" for label, folder, name in folders & rows.keys()
    ]
    classes = sorted({label for label, *_ in rows})
    numbers = {label: number for number, label in enumerate(classes)}
    candidates = list[tuple[str, int, Place]]()
    for label, folder, name in sorted(rows):
        path = os.path.join(folder, name)
        if name.lower().endswith(EXTENSIONS):
            candidates.append((f"{label}/{path}", numbers[label], os.path.join(os.path.dirname(file), path)))
        else:
            left_out.append(f"{label}/{path}")
    return classes, candidates, left_out, faults


def _images(source: str) -> Found:
    """The images of a dataset of arrays. Where the names of its classes, sorted, are not in the order of their numbers,
    each begins with its number."""
    dataset = _dataset(source)
    labels = [int(dataset[number][1]) for number in range(len(dataset))]
    classes = [str(name).replace("/", "-") for name in getattr(dataset, "classes", None) or range(max(labels) + 1)]
    if classes != sorted(set(classes)):
        digits = len(str(len(classes) - 1))
        classes = [f"{number:0{digits}} - {name}" for number, name in enumerate(classes)]
    digits = len(str(len(labels)))
    candidates = list[tuple[str, int, Place]]()
    for number, label in sorted(enumerate(labels), key=lambda each: each[::-1]):
        candidates.append((f"{classes[label]}/{number:0{digits}}.png", label, (source, number)))
    return classes, candidates, [], []


@lru_cache(1)
def _dataset(source: str) -> Any:
    """The dataset that a text such as ``CIFAR10:folder:test`` names."""
    found = _ARRAYS.fullmatch(source)
    assert found is not None
    kind, split = getattr(_datasets, found[1]), found[3] or "train"
    has_split = "split" in inspect.signature(kind).parameters
    try:
        return kind(found[2], **({"split": split} if has_split else {"train": split == "train"}))
    except Exception as error:
        raise PackError(f"{source!r}: the dataset cannot be read: {error or type(error).__name__}") from error


# -- in the processes of a pool -----------------------------------------------------------------------------


def look(places: list[Place]) -> list[tuple[int, int, str] | str]:
    """Size, stamp and kind of each file, or why it cannot be packed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of pictures that are large
        return [_seen(place) for place in places]


def _seen(place: Place) -> tuple[int, int, str] | str:
    try:
        if isinstance(place, tuple):
            pixels = _dataset(place[0])[place[1]][0].tobytes()
            return len(pixels), crc32(pixels), "png"
        with open(place, "rb", opener=without_waiting) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                return "it is no regular file"
            if about.st_size >= _LARGEST:
                return "it is too large: members of a tar have less than 8 GiB"
            return about.st_size, about.st_mtime_ns, _kind(file)
    except UnidentifiedImageError:
        return "it is no picture that Pillow can open"
    except Exception as error:
        return f"it cannot be opened: {error}"


def _kind(file: BinaryIO) -> str:
    with Image.open(file) as image:
        name = str(image.format)
    return KINDS.get(name, re.sub("[^a-z0-9]", "", name.lower()))


def without_waiting(path: str, flags: int) -> int:
    """For ``open``: opening a pipe does not wait for somebody who writes."""
    return os.open(path, flags | os.O_NONBLOCK)


def content(file: File) -> bytes:
    """The bytes of a file.

    Raises:
        PackError: it cannot be read, or is not the file that ``look`` saw.
    """
    if isinstance(file.place, tuple):
        image, png = _dataset(file.place[0])[file.place[1]][0], BytesIO()
        image.save(png, "PNG")
        data, seen = png.getvalue(), (len(image.tobytes()), crc32(image.tobytes()))
    else:
        try:
            with open(file.place, "rb", buffering=0, opener=without_waiting) as opened:
                data = opened.readall()
                about = os.fstat(opened.fileno())
        except OSError as error:
            raise PackError(f"{file.place!r}: it cannot be read: {error.strerror}") from error
        seen = len(data), about.st_mtime_ns
    if seen != (file.size, file.stamp):
        raise PackError(f"{file.place!r}: it changed while it was packed")
    return data


# -- the pool -----------------------------------------------------------------------------------------------


class Pool(ProcessPoolExecutor):
    """Processes that end if this one is killed; after an error inside, work that has not begun is given up."""

    def __init__(self, count: int) -> None:
        super().__init__(count, initializer=_follow)
        self._ahead = 2 * count

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self.shutdown(cancel_futures=kind is not None)

    def in_turn(self, function: Callable[..., Result], jobs: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """Yield what a function gives for each job, in the jobs' order; only some are begun before they are due."""
        begun = deque[Future[Result]]()
        try:
            for job in jobs:
                begun.append(self.submit(function, *job))
                if len(begun) > self._ahead:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        except BrokenProcessPool as error:
            raise PackError("one of the processes ended before its work was done; was it killed?") from error


def _follow() -> None:
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
