"""A dataset that reads a pack whichever backend is in force."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from PIL import Image
from torchvision.datasets import VisionDataset

from accel.codec.files import packs
from accel.errors import PackError
from accel.packs import open as open_member
from accel.system.imports import LazyModule

_remote: Any = LazyModule("accel.packs.remote")  # which imports what writes packs


def _rgb(path: str) -> Any:
    with open_member(path) as file, Image.open(file) as image:
        return image.convert("RGB")


class PackDataset(VisionDataset):  # type: ignore[misc]  # torchvision has no types
    """``torchvision.datasets.ImageFolder`` of the tree that was packed, read from the pack.

    Every file is read as bytes and opened by ``PIL.Image.open``: by Pillow itself where no backend is in force.

    Args:
        root: the pack's folder: a local one, or a url of any file system of fsspec (``s3://bucket/train``). Of these,
            shards are fetched into ``folder`` when they are first needed, once for all processes and ranks.
        transform: as of ``ImageFolder``.
        target_transform: as of ``ImageFolder``.
        loader: makes an image of a path, which it opens by ``accel.packs.open``. By default an RGB image.
        folder: a local folder for shards that are fetched; the next training finds them there.
        bound: the bytes that they may take there, but for those that are just fetched or read; None for all. Shards
            that were not read for longest are removed. If not all fit, samples must come in a ``BlockShuffle``'s order.
        storage_options: fsspec's options for ``root``.

    Attributes:
        classes: the names of the class folders. class_to_idx: their numbers.
        samples, imgs: the (path, class number) pairs. targets: the class numbers.

    Raises:
        PackError: there is no pack, or it cannot be used or fetched.
        ValueError: a url without ``folder``, or a folder with arguments for a url; at the first sample, a ``bound``
            that is too small for all shards, without a ``BlockShuffle``.
        TypeError: ``bound`` is no whole number.
    """

    in_blocks = False
    """Whether a ``BlockShuffle`` orders the samples."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        loader: Callable[[str], Any] | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        bound: int | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        place = os.path.expanduser(os.fspath(root))
        if "://" in place and folder is None:
            raise ValueError(f"a pack at a url needs a local folder for its shards: PackDataset({place!r}, folder=...)")
        if "://" not in place and (folder is not None or bound is not None or storage_options):
            raise ValueError(f"{place} is no url: folder, bound and storage_options are for packs that are fetched")
        if bound is not None and not isinstance(bound, int):
            raise TypeError(f"bound must be a number of bytes, got {bound!r}")
        self._remote = None
        if folder is not None:
            self._remote = _remote.Remote(place, os.fspath(folder), bound, storage_options or {})
            place = self._remote.folder
        pack = packs.of(place)
        if pack is None:
            raise PackError(f"{place}: there is no pack in this folder")
        if self._remote is None and not pack.is_readable():
            raise PackError(f"{place}: the folder has a part of a remote pack: give PackDataset its url as well")
        self.loader = _rgb if loader is None else loader
        self.classes = [*pack.index.classes]
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.samples = self.imgs = [(os.path.join(place, path), label) for path, label in pack.index.files()]
        self.targets = [label for _, label in self.samples]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if self._remote is not None and self._remote.is_bounded and not self.in_blocks:
            raise ValueError("a pack with a bound is read in blocks: give the loader sampler=accel.BlockShuffle(...)")
        path, target = self.samples[index]
        image = self.loader(path)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __len__(self) -> int:
        return len(self.samples)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._remote is not None:
            self._remote.attach()
