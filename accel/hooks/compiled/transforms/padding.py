"""The padding of ``RandomCrop``, which depends on the image's size alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torchvision import transforms as v1
from torchvision.transforms import v2

from accel.hooks.compiled.transforms.draws import Size


def of_crop(transform: Any) -> Callable[[Any], Any]:
    """A function that pads an image as a ``RandomCrop`` of either version does before it draws."""
    parts = transform.padding, transform.size if transform.pad_if_needed else (0, 0)
    if isinstance(transform, v2.Transform):
        return partial(_once, lambda by: v2.Pad(by, transform.fill, transform.padding_mode), *parts)

    def pad(image: Any, by: Any) -> Any:
        return v1.Pad(by, transform.fill, transform.padding_mode)(image)

    return partial(in_turn, pad, *parts)


def _missing(image: Any, least: Size) -> Size:
    if not any(least):
        return least
    height, width = v1.functional.get_dimensions(image)[1:]
    return max(least[0] - height, 0), max(least[1] - width, 0)


def in_turn(pad: Callable[[Any, Any], Any], padding: Any, least: Size, image: Any) -> Any:
    """Pad as v1: by ``padding``, then left and right by the missing columns each, then top and bottom by the rows."""
    if padding is not None:
        image = pad(image, padding)
    rows, columns = _missing(image, least)
    if columns:
        image = pad(image, [columns, 0])
    return pad(image, [0, rows]) if rows else image


def _once(pad: Callable[[Any], Any], padding: Any, least: Size, image: Any) -> Any:
    """Pad as v2: by everything at once."""
    left, right, top, bottom = padding or (0, 0, 0, 0)  # the order of the class
    rows, columns = _missing(image, (least[0] - top - bottom, least[1] - left - right))
    by = [left + columns, top + rows, right + columns, bottom + rows]
    return pad(by)(image) if any(by) else image
