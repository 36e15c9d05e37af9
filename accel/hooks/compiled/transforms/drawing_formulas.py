"""What is drawn for crops and flips, as torchvision draws it: run by Python, and compiled by ``drawing_kernels``.

``draws`` is where the numbers come from: a ``Tape``, or what compiled code has in its place; ``bounds`` are then those
of a tape, or the number of a table.
"""

from __future__ import annotations

import math
from typing import Any


def root(number: float) -> float:
    """The square root, for which compiled code has a function of its own."""
    return math.sqrt(number)


def happens(draws: Any, unit: Any, probability: float) -> bool:
    """Draw a number within ``unit``, the bounds 0 and 1; whether it is less than a probability."""
    return draws.uniform(unit) < probability  # type: ignore[no-any-return]


def sides(draws: Any, area: int, scale: Any, logs: Any) -> tuple[int, int]:
    """The sides of a rectangle with a random part of an area and a random ratio (the first side to the second), rounded
    as torchvision does. ``logs``: the bounds of the ratio's logarithm."""
    part = area * draws.uniform(scale)
    ratio = draws.exp(logs)
    return round(root(part * ratio)), round(root(part / ratio))


def resized_crop(
    draws: Any, height: int, width: int, scale: Any, logs: Any, least: float, most: float
) -> tuple[int, int, int, int]:
    """The top, left, height and width that ``RandomResizedCrop`` draws. ``least``, ``most``: of the ratio."""
    for _ in range(10):
        columns, rows = sides(draws, height * width, scale, logs)
        if 0 < columns <= width and 0 < rows <= height:
            top = draws.below(height - rows + 1)
            return top, draws.below(width - columns + 1), rows, columns
    rows, columns = height, width
    if width / height < least:
        rows = round(columns / least)
    elif width / height > most:
        columns = round(rows * most)
    return (height - rows) // 2, (width - columns) // 2, rows, columns


def crop(draws: Any, height: int, width: int, rows: int, columns: int, both: bool) -> tuple[int, int]:
    """The top and left that ``RandomCrop`` draws for an image that is no smaller; ``both``: both or neither (v1)."""
    if height == rows and width == columns:
        return 0, 0
    top = draws.below(height - rows + 1) if both or height > rows else 0
    left = draws.below(width - columns + 1) if both or width > columns else 0
    return top, left
