"""Random rows of random structures, with everything that columns can plan."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from accel.ops.resample import Aten
from accel.recipes.recipe import Source
from accel.recipes.rows import Form, Rows, Slot, Structure

VALUES: tuple[tuple[Form, ...], ...] = (
    (Form("pil_to_tensor"),),
    (Form("to_tensor", (torch.float32,)), Form("normalize", ((0.4,), (0.2,)))),
    (Form("pil_to_tensor"), Form("to_dtype", (torch.float32, True)), Form("to", (torch.float16,))),
    (Form("to_tensor", (torch.float64,)), Form("vflip")),
)
FILTERS = (1, 2, 3, 4, 5, Aten.BILINEAR, Aten.BICUBIC)


def random_rows(rng: np.random.Generator, sources: Sequence[Source]) -> Rows:
    """Crops, flips, a resize, a padding; each constant or drawn, or not there."""
    count = len(sources)
    columns: list[Any] = []
    forms = [Form("convert", ("RGB",))]
    heights, widths = (np.array([getattr(source.header, side) for source in sources]) for side in ("height", "width"))

    def slot(values: Any) -> Slot:
        columns.append(np.broadcast_to(values, count))
        return Slot(len(columns) - 1)

    def flips() -> None:
        for name in rng.permutation(["hflip", "vflip"]):
            kind = rng.integers(3)
            if kind:
                forms.append(Form(str(name), (), slot(rng.integers(0, 2, count)).column if kind == 2 else -1))

    def crop(height: Any, width: Any, new_height: Any, new_width: Any) -> None:
        top, left = (rng.integers(0, size - new + 1) for size, new in ((height, new_height), (width, new_width)))
        if np.ndim(top):
            forms.append(Form("crop", (slot(top), slot(left), *map(slot, (new_height, new_width)))))
        else:
            forms.append(Form("crop", (int(top), int(left), new_height, new_width)))

    height, width = heights, widths
    resized = bool(rng.integers(4))
    flips()
    if resized:
        if rng.integers(3):
            new = rng.integers(1, heights + 1), rng.integers(1, widths + 1)
            crop(height, width, *new)
        flips()
        code = int(rng.choice(FILTERS))
        if rng.integers(3):
            height, width = (int(side) for side in rng.integers(1, 90, 2))
            forms.append(Form("resize", (height, width, code)))
        else:  # another size for each, of which a window of one size is shown
            height, width = rng.integers(9, 90, count), rng.integers(9, 90, count)
            forms.append(Form("resize", (slot(height), slot(width), code)))
    if np.ndim(height) or rng.integers(2):
        if rng.integers(2) and not any(
            form.name.endswith("flip") for form in forms[1:] if not resized or form is forms[-1]
        ):
            left, top, right, bottom = (int(side) for side in rng.integers(0, 12, 4))
            fill = (None, (7, 8, 9), (200,))[rng.integers(3)]
            forms.append(Form("pad", (left, top, right, bottom, "constant", fill)))
            height, width = height + top + bottom, width + left + right
        new_height, new_width = (int(rng.integers(1, np.min(size) + 1)) for size in (height, width))
        offsets = [
            rng.integers(0, np.broadcast_to(size, count) - new + 1)
            for size, new in ((height, new_height), (width, new_width))
        ]
        forms.append(Form("crop", (*map(slot, offsets), new_height, new_width)))
    flips()
    forms += VALUES[rng.integers(len(VALUES))]
    numbers = np.array(columns, np.int64).reshape(len(columns), count).T
    return Rows(sources, Structure.of(*forms), numbers)


def lacking(sources: Sequence[Source]) -> Rows:
    """Crops to 20 x 15 as RandomResizedCrop makes them: some pictures need no crop, some no resize, some are grey."""
    rng = np.random.default_rng(0)
    numbers = []
    for number, source in enumerate(sources):
        height, width = source.header.height, source.header.width
        has_crop, has_resize = ((1, 1), (0, 1), (1, 0))[number % 3]
        size = (20, 15) if not has_resize else (int(rng.integers(1, height + 1)), int(rng.integers(1, width + 1)))
        place = [int(rng.integers(whole - own + 1)) for whole, own in zip((height, width), size, strict=True)]
        if not has_crop:
            place, size = [9999, -5], (-1, 7)  # of no meaning
        grey = source.header.mode == "L"
        numbers.append((grey, has_crop, *place, *size, has_resize, number % 2, number // 2 % 2))
    structure = Structure.of(
        Form("convert", ("RGB",), 0),
        Form("crop", (Slot(2), Slot(3), Slot(4), Slot(5)), 1),
        Form("vflip", (), 8),
        Form("resize", (20, 15, 2), 6),
        Form("hflip", (), 7),
        *VALUES[1],
    )
    return Rows(sources, structure, np.array(numbers))
