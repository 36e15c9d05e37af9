"""Lazy images and tensors made of existing pixels: of eager Pillow images and tensors.

An eager Pillow image becomes lazy at the first step that is recorded on it. Its pixels are copied, because the user may
paint on it later.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from PIL import Image

from accel.codec import arrow
from accel.codec.header import Raw
from accel.lazy import pillow_file
from accel.lazy.image import LazyImage, LazyPlainImage
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops.memory_layout import Layout
from accel.processes import switch
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Source
from accel.runtime.memo import cached
from accel.system.private_names import private

functorch = private("torch._C._functorch", "is_functorch_wrapped_tensor")

_IN_MEMORY = "image in memory"


def lazy_image(image: Any) -> LazyImage | None:
    """The image to record a step on: ``image`` itself while it is lazy, else a lazy image with a copy of its pixels.

    None if nothing can be recorded: it is no Pillow image of mode "RGB" or "L", it is of a class of the user's own, it
    is empty, or accel steps aside.

    Raises:
        OSError, SyntaxError, ...: whatever Pillow raises for a file that it has not read yet.
    """
    if isinstance(image, LazyImage) and image._im is None and image._recipe is not None:
        return image
    if cached.in_use and (file := _of_file(image)) is not None:
        return file
    selection = _selected(image, ("RGB", "L"))
    return None if selection is None else _made(arrow.pixels(image), image, image.size, image.mode, selection)


def lazy_crop(image: Any, box: tuple[Any, ...]) -> LazyImage | None:
    """A lazy image of a box (top, left, height, width) inside an eager "RGB" image; only the box is copied.

    None if that is not possible.
    """
    if not all(type(edge) is int for edge in box):
        return None
    if cached.in_use and (file := _of_file(image)) is not None:
        top, left, height, width = box
        cropped = file.crop((left, top, left + width, top + height))
        return cropped if isinstance(cropped, LazyImage) else None
    selection = _selected(image, ("RGB",))
    if selection is None:
        return None
    top, left, height, width = box
    inside = 0 <= top < top + height <= image.height and 0 <= left < left + width <= image.width
    pixels = arrow.region(image, (top, left, height, width)) if inside else None
    return None if pixels is None else _made(pixels, image, (width, height), "RGB", selection)


def lazy_grey(image: Any) -> LazyImage | None:
    """A lazy grey image of an eager "RGB" image, with only its luma copied; None if that is not possible."""
    if cached.in_use and _is_noted(image):
        return None
    selection = _selected(image, ("RGB",))
    levels = None if selection is None or "transparency" in image.info else arrow.luma(image)
    return None if levels is None or selection is None else _made(levels, image, image.size, "L", selection)


def _is_noted(image: Any) -> bool:
    return pillow_file.NOTED in getattr(image, "__dict__", ())


def _of_file(image: Any) -> LazyImage | None:
    """A lazy image of a file that Pillow opened and that the cache has or may keep; None for other images."""
    return pillow_file.lazy(image) if _is_noted(image) and image.mode in ("RGB", "L") else None


def _selected(image: Any, modes: tuple[str, ...]) -> Selection | None:
    """The backend that runs steps on an eager Pillow image of one of these modes; None: Pillow does."""
    kind: Any = type(image)
    if image.recipe is not None if isinstance(image, LazyImage) else not _is_pillows(kind):
        return None
    selection = switch.active()
    if selection is None or image.mode not in modes:
        return None
    image.load()  # which may change the size: of TIFF files that are rotated
    return selection if image.mode in modes and image.width and image.height else None


def _made(
    pixels: bytes | memoryview, image: Image.Image, size: tuple[int, int], mode: str, selection: Selection
) -> LazyImage:
    name = str(getattr(image, "filename", "")) or _IN_MEMORY
    recipe = Recipe(Source(pixels, Raw(*size, mode=mode), name, selection))
    return LazyPlainImage.make(recipe, mode, size, dict(image.info))


def lazy_tensor(image: torch.Tensor) -> LazyTensorBase | None:
    """The tensor to record a step on: ``image`` itself while it is lazy, else a lazy one with a copy of its values.

    None if nothing can be recorded: it is not uint8 [channels, height, width] of one or three channels on the CPU, it
    is of a class of the user's own, it is empty, its memory is not dense, or accel steps aside.
    """
    if is_lazy(image):
        return image  # type: ignore[return-value]
    if type(image) is not torch.Tensor or image.dtype != torch.uint8 or image.ndim != 3 or not image.is_cpu:
        return None
    selection = switch.active()
    channels, height, width = image.shape
    if selection is None or channels not in (1, 3) or not image.numel() or functorch.is_functorch_wrapped_tensor(image):
        return None
    pixels = image.permute(1, 2, 0)
    interleaved = channels > 1 and pixels.is_contiguous()
    if not (interleaved or image.is_contiguous()):  # a view; where it lies may decide bits
        return None
    data = pixels.numpy().tobytes()
    source = Source(data, Raw(width, height, "RGB" if channels == 3 else "L"), _IN_MEMORY, selection)
    recipe = Recipe(source, (("pil_to_tensor", ()),))
    return LazyTensor.of((recipe,), (), (channels, height, width), torch.uint8, Layout(interleaved))


@cache
def _is_pillows(kind: type) -> bool:
    """Whether a class of images is Pillow's own; a user's class may do something else in any of its methods."""
    return issubclass(kind, Image.Image) and kind.__module__.split(".")[0] == "PIL"
