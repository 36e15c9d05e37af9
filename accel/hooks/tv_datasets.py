"""``torchvision.datasets.folder``: the folder of a pack is listed as the tree of files that was packed."""

from __future__ import annotations

import os
from functools import wraps
from typing import Any

import torchvision
from PIL import Image
from torchvision.datasets import folder

from accel.codec.files import packs
from accel.hooks.patch import Attribute, Body, Function
from accel.processes import switch


def _pack(directory: Any) -> packs.Pack | None:
    return None if switch.active() is None else packs.of(directory)


def _find_classes(original: Function, directory: Any) -> tuple[list[str], dict[str, int]]:
    pack = _pack(directory)
    if pack is None or not pack.index.classes:
        return original(directory)  # type: ignore[no-any-return]
    classes = [*pack.index.classes]
    return classes, {name: number for number, name in enumerate(classes)}


def _make_dataset(
    original: Function,
    directory: Any,
    class_to_idx: Any = None,
    extensions: Any = None,
    is_valid_file: Any = None,
    allow_empty: Any = False,
) -> list[tuple[str, int]]:
    """``make_dataset``. An ``is_valid_file`` is refused: it would open paths by itself."""
    root = os.path.expanduser(directory)
    pack = _pack(root)
    if (
        pack is None
        or (class_to_idx is not None and not class_to_idx)
        or (extensions is None) == (is_valid_file is None)
    ):
        return original(directory, class_to_idx, extensions, is_valid_file, allow_empty)  # type: ignore[no-any-return]
    if is_valid_file is not None:
        raise ValueError(f"{root} is a pack, whose files is_valid_file cannot open: {_REMEDY}")
    classes = folder.find_classes(root)[1] if class_to_idx is None else class_to_idx
    allowed = extensions if isinstance(extensions, str) else tuple(extensions)
    samples, empty = list[tuple[str, int]](), list[str]()
    for name in sorted(classes):
        number, before = classes[name], len(samples)
        paths = map(os.path.join(root, "").__add__, pack.paths_in(name))
        samples += [(path, number) for path in paths if path.lower().endswith(allowed)]
        if len(samples) == before:
            empty.append(name)
    if empty and not allow_empty:
        supported = allowed if isinstance(allowed, str) else ", ".join(allowed)
        raise FileNotFoundError(
            f"Found no valid file for the classes {', '.join(empty)}. Supported extensions are: {supported}"
        )
    return samples


def _init(original: Function) -> Function:
    """``DatasetFolder.__init__``. For a pack, a loader that may open paths by itself is refused."""

    @wraps(original)
    def init(self: Any, root: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        pack = _pack(root)
        if pack is not None and not pack.is_readable():
            raise ValueError(f"{root} has a part of a remote pack: {_OF_REMOTE}")
        if loader not in _loaders() and pack is not None:
            name = getattr(loader, "__qualname__", type(loader).__qualname__)
            raise ValueError(f"{root} is a pack, and the loader {name} may not be able to read its files: {_REMEDY}")
        original(self, root, loader, *args, **kwargs)

    return init


def _loaders() -> tuple[Function, ...]:
    """Those that read the files of a pack, as they are hooked."""
    images = torchvision.io
    return (
        folder.default_loader,
        folder.pil_loader,
        Image.open,
        images.read_image,
        images.decode_image,
        images.read_file,
    )


_REMEDY = "use accel.PackDataset, with a loader that opens each path by accel.packs.open(path)"
_OF_REMOTE = "use accel.PackDataset(url, folder=...)"

_FOLDER = "torchvision.datasets.folder"
PATCHES = (
    Body(f"{_FOLDER}.find_classes", _find_classes),
    Body(f"{_FOLDER}.make_dataset", _make_dataset),
    Attribute(f"{_FOLDER}.DatasetFolder.__init__", _init),
)
