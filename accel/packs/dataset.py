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


def _rgb(path: str) -> Any:
    with open_member(path) as file, Image.open(file) as image:
        return image.convert("RGB")


class PackDataset(VisionDataset):  # type: ignore[misc]  # torchvision has no types
    """``torchvision.datasets.ImageFolder`` of the tree that was packed, read from the pack.

    Every file is read as bytes and opened by ``PIL.Image.open``: by Pillow itself where no backend is in force.

    Args:
        root: the pack's folder.
        transform, target_transform: as of ``ImageFolder``.
        loader: makes an image of a path, which it opens by ``accel.packs.open``. By default an RGB image.

    Attributes:
        classes: the names of the class folders. class_to_idx: their numbers.
        samples, imgs: the (path, class number) pairs. targets: the class numbers.

    Raises:
        PackError: there is no pack, or it cannot be used.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        loader: Callable[[str], Any] | None = None,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        folder = os.path.expanduser(os.fspath(root))
        pack = packs.of(folder)
        if pack is None:
            raise PackError(f"{folder}: there is no pack in this folder")
        self.loader = _rgb if loader is None else loader
        self.classes = [*pack.index.classes]
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.samples = self.imgs = [(os.path.join(folder, path), label) for path, label in pack.index.files()]
        self.targets = [label for _, label in self.samples]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        image = self.loader(path)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __len__(self) -> int:
        return len(self.samples)
