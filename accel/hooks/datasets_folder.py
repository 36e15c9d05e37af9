"""``torchvision.datasets.folder``: its loaders, on a shorter way to the file's bytes."""

from __future__ import annotations

from typing import Any

import torchvision
from PIL import Image
from torchvision.datasets import folder

from accel import switch
from accel.codec.header import claim
from accel.hooks.patch import Body, Function
from accel.hooks.pillow_open import claimed
from accel.lazy.image import LazyImage
from accel.recipe import Source
from accel.system import memory
from accel.system.private_names import private

private("PIL.Image", "_decompression_bomb_check")


def _default_loader(original: Function, path: Any) -> Any:
    """``torchvision.datasets.folder.default_loader``, without its import statement."""
    return (original if torchvision.get_image_backend() == "accimage" else folder.pil_loader)(path)


def _pil_loader(original: Function, path: Any) -> Any:
    """``torchvision.datasets.folder.pil_loader``, without the detour through ``Image.open``."""
    selection = switch.active()
    if selection is None:
        return original(path)
    read = memory.file_buffers.read(path)
    if read is None:
        return original(path)
    buffer, size = read
    header = claim(buffer, size)
    if header is not None and not header.pictures and (header.complete or claimed(header, selection)):
        try:
            Image._decompression_bomb_check((header.width, header.height))
        except Image.DecompressionBombError:
            pass  # Image.open says so as well, or replaces it
        else:
            source = Source(memoryview(buffer)[:size].toreadonly(), header, str(path), selection, buffer)
            return LazyImage.load_rgb(source)
    memory.file_buffers.give_back(buffer)
    return original(path)


PATCHES = (
    Body("torchvision.datasets.folder.default_loader", _default_loader),
    Body("torchvision.datasets.folder.pil_loader", _pil_loader),
)
