"""``torchvision.datasets.folder``: its loaders, with a shorter way to a file's bytes."""

from __future__ import annotations

import builtins
import io
import threading
from collections.abc import Sequence
from math import floor
from typing import Any

import torchvision
from PIL import Image
from torchvision.datasets import folder

from accel.backend import backend_of
from accel.codec.store import Keys
from accel.hooks import claimed_files, pillow_open
from accel.hooks.patch import Body, Function
from accel.lazy import pillow_file
from accel.lazy.image import LazyImage
from accel.processes import switch
from accel.recipes.options import Selection
from accel.recipes.recipe import Source, recording
from accel.recipes.sources import Files
from accel.runtime.memo import cached
from accel.system.private_names import private

private("PIL.Image", "_decompression_bomb_check")


def _default_loader(original: Function, path: Any) -> Any:
    """``torchvision.datasets.folder.default_loader``, without its import statement."""
    return (original if torchvision.get_image_backend() == "accimage" else folder.pil_loader)(path)


def _pil_loader(original: Function, path: Any) -> Any:
    """``torchvision.datasets.folder.pil_loader``, without the detour through ``Image.open``."""
    selection = switch.active()
    source = None if selection is None or not opens() else opened(path, selection)
    if source is not None:
        return LazyImage.load_rgb(source)
    return pillow_open.by_path(original, path, _rgb) if selection is not None else original(path)


def _rgb(path: Any) -> Any:
    """``pil_loader`` of a file in a pack."""
    with Image.open(path) as image:
        return image.convert("RGB")


def opens() -> bool:
    """Whether ``pil_loader`` opens files by Python's ``open`` and Pillow's ``Image.open``, and neither was replaced."""
    return (
        folder.Image is Image
        and getattr(Image.open, "__globals__", None) is _OF_PILLOW
        and builtins.open is io.open
        and "open" not in _OF_LOADERS
    )


_OF_PILLOW, _OF_LOADERS = vars(Image), vars(folder)


def opened(path: Any, selection: Selection) -> Source | None:
    """The source of a file that ``pil_loader`` opens; None if Pillow must open it."""
    if (source := ahead.take(path, selection)) is not None:
        return source
    if cached.in_use and (known := cached.opened(path, selection)) is not None:
        return known if cached.allowed(known.header) else None
    source = claimed_files.read(path, selection, claimed_files.by_pillow)
    return _by_pillow(path, selection) if source is None and cached.in_use else source


def _by_pillow(path: Any, selection: Selection) -> Source | None:
    """The source of the pixels of a file that Pillow decodes, which a cache may keep; None if Pillow must open it."""
    return None if pillow_open.replaces() else pillow_file.read(path, selection)


def opened_together(paths: Sequence[Any], selection: Selection) -> Sequence[Source | None]:
    """The sources of several files that ``pil_loader`` opens, each as of ``opened``."""
    if ahead.sources is not None:
        return [opened(path, selection) for path in paths]
    if cached.in_use:
        return _opened_with_cache(paths, selection)
    return claimed_files.read_together(paths, selection, _many_pixels())


def _opened_with_cache(paths: Sequence[Any], selection: Selection) -> Sequence[Source | None]:
    """``opened_together`` while a cache is in use."""
    known = cached.opened_together(paths, selection) if cached.finds(selection) else None
    others = [*range(len(paths))] if known is None else sorted({*range(len(paths))}.difference(known.numbers))
    rest = [paths[number] for number in others]
    together = claimed_files.read_together(rest, selection, _many_pixels()) if rest else []
    if known is None:
        known = cached.opened_together(paths, selection, _keys(together))
    allowed = _all_allowed(known.files)
    if allowed and not others and not backend_of(selection).devices:  # an accelerator cannot use them together
        return known.files
    if allowed and isinstance(together, Files):
        together.take(others, known.numbers, known.files)
        return together
    sources: list[Source | None] = [None] * len(paths)
    for number, source in zip(others, together, strict=True):
        sources[number] = _by_pillow(paths[number], selection) if source is None else source
    for number, source in zip(known.numbers, known.files, strict=True):
        sources[number] = source
    checked = set(known.numbers) if allowed else ()
    return [
        None if source is not None and number not in checked and _refused(source) else source
        for number, source in enumerate(sources)
    ]


def _refused(source: Source) -> bool:
    """Whether Pillow would not open a file that was not read; warns as Pillow does."""
    return not source.is_read and not cached.allowed(source.header)


def _all_allowed(files: Files) -> bool:
    """Whether Pillow would open all files; warns as Pillow does."""
    heights, widths, _ = files.sizes()
    few = bool((heights * widths <= _many_pixels()).all())
    return few or all(cached.allowed(source.header) for source in files)


def _keys(sources: Sequence[Source | None]) -> Keys:
    if isinstance(sources, Files):
        return sources.keys()
    return Keys.of([None if source is None else source.key for source in sources])


def _many_pixels() -> int:
    """The most pixels of a plain file that Pillow opens without a warning; -1: Pillow must be asked for each file."""
    limit: Any = _ALL if Image.MAX_IMAGE_PIXELS is None else Image.MAX_IMAGE_PIXELS
    return -1 if Image._decompression_bomb_check is not _BOMB_CHECK else max(floor(min(limit, _ALL)), -1)


_ALL = 1 << 62
_BOMB_CHECK = getattr(Image, "_decompression_bomb_check", None)


class _Ahead(threading.local):
    """Files that were opened for a batch that is then made one by one: this thread will open them next."""

    sources: dict[Any, Source] | None = None

    def keep(self, paths: Sequence[Any], sources: Sequence[Source | None]) -> None:
        by_path = {path: source for path, source in zip(paths, sources, strict=True) if source is not None}
        self.sources = by_path or None

    def take(self, path: Any, selection: Selection) -> Source | None:
        source = None if self.sources is None else self.sources.pop(path, None)
        if source is None or source.selection != selection:
            return None
        source.way = recording.way
        return source

    def forget(self) -> None:
        self.sources = None


ahead = _Ahead()


PATCHES = (
    Body("torchvision.datasets.folder.default_loader", _default_loader),
    Body("torchvision.datasets.folder.pil_loader", _pil_loader),
)
