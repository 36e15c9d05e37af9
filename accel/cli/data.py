"""A folder of images as a torchvision dataset: an ImageFolder tree, or a flat folder as a single class."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import is_image_file

from accel.cli import samples, screen
from accel.cli.arguments import WrongUsage, cannot_read

_SEED = 20_240_601
_EPOCH, _TIMES = 1000, 8  # the images that an epoch should have, and how often each image may be in it at most


class Data(NamedTuple):
    """A dataset, the order of its samples in an epoch, and notes for the user about the folder."""

    name: str
    dataset: Any
    order: list[int]
    notes: list[str]

    @property
    def files(self) -> list[str]:
        """The files in this order."""
        return [os.path.normpath(self.dataset.samples[index][0]) for index in self.order]

    def repeated(self) -> Data:
        """The same data with an epoch long enough to be measured, so that starting workers is a small part of it."""
        times = min(-(-_EPOCH // len(self.order)), _TIMES)
        return self._replace(order=self.order * times)


class _FlatFolder(ImageFolder):  # type: ignore[misc]
    """A folder with images directly in it: one class, named after the folder."""

    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        return [Path(directory).name], {os.curdir: 0}  # the class's folder is the folder


@contextmanager
def folder(given: Path | None) -> Iterator[tuple[Path, str]]:
    """Yield the folder that the user gave, or a temporary one of pictures made for the block, and its name."""
    if given is not None:
        yield given, given.resolve().name
        return
    with tempfile.TemporaryDirectory(prefix="accel-") as made:
        with screen.Bar("making JPEG files", samples.COUNT) as bar:
            samples.write(Path(made), on_image=bar.advance)
        yield Path(made), "made for the run"


def open_folder(folder: Path, transform: Any = None, limit: int | None = None) -> Data:
    """Open a folder and shuffle it, the same way every time.

    Args:
        limit: the most images to take of it; None: all.

    Raises:
        WrongUsage: it does not exist, cannot be read or has no images.
    """
    beside, below, others = _survey(folder)
    notes = []
    if others:
        some = ", ".join(sorted(others)[:3]) + (", ..." if len(others) > 3 else "")
        notes.append(f"skipped {_files(len(others))} that torchvision does not take for an image: {some}")
    if beside and below:
        notes.append(f"left out {_files(beside)} beside the class folders")
    kind = ImageFolder if below else _FlatFolder
    dataset = kind(str(folder), transform, allow_empty=True)
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(_SEED)).tolist()
    return Data(folder.resolve().name, dataset, order[:limit], notes)


def _survey(folder: Path) -> tuple[int, int, list[str]]:
    """The number of images directly in a folder, the number below it, and the names of all other files."""

    beside, below, others = 0, 0, list[str]()
    for directory, _, names in os.walk(folder, onerror=cannot_read, followlinks=True):
        others += [name for name in names if not is_image_file(name)]
        images = sum(map(is_image_file, names))
        beside, below = (images, below) if Path(directory) == folder else (beside, below + images)
    if not beside and not below:
        raise WrongUsage(f"no images in {folder}")
    return beside, below, others


def _files(count: int) -> str:
    return f"{count} file{'s' if count > 1 else ''}"
