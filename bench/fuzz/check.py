"""Reading one file in all of accel's ways, compared with Pillow and torchvision."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torchvision.io.image as tvio
from PIL import Image, ImageFile
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F

import accel
from bench.fuzz import decoder, oracle
from bench.fuzz.decoder import Box
from bench.fuzz.files import encode, picture
from bench.fuzz.mutations import Rng
from bench.fuzz.oracle import Answer, Setting, answer

LARGEST = 1 << 20
"""The most pixels, as a damaged header may promise any number; Pillow refuses twice as many."""
LARGEST_INTACT = 1 << 22

EQUAL, FELL_BACK, REFUSED, WRONG = "equal", "accel fell back", "both refused", "wrong"

_INTACT = encode(picture("smooth", 16, 16))

Announce = Callable[[str], None]
Wrong = tuple[str, str]
"""The place of a difference (with the setting), and its description."""


Checked = tuple[str, list[Wrong]]
"""The outcome of a file: EQUAL, FELL_BACK (equal, by Pillow or torchvision), REFUSED or WRONG."""


def check_file(
    data: bytes, rng: Rng, path: Path, intact: bool, announce: Announce, setting: Setting | None = None
) -> Checked:
    """Read a file in all ways, under a setting that is drawn unless given.

    Args:
        path: a file that may be written. intact: whether the file is undamaged; it may be larger then.
        announce: called before each step with its name, which begins with "plain" if accel has no part in it.
    """
    drawn = oracle.setting(rng)
    setting = drawn if setting is None else setting
    limit = Image.MAX_IMAGE_PIXELS = LARGEST_INTACT if intact else LARGEST
    ImageFile.LOAD_TRUNCATED_IMAGES = setting.truncated
    announce("plain: Image.open")
    opened = answer(None, lambda: Image.open(BytesIO(data)), _whole("RGB"))
    file = _File(data, path, rng, opened, setting, limit, announce)
    before = _declined()
    wrong = [*_converted(file), *_regions(file)]
    declined = _declined() > before
    wrong += [*_loader(file), *_batch(file), *_decoder(file), *_tvio(file)]
    if wrong:
        return WRONG, [(f"{where} under {setting}", what) for where, what in wrong]
    return (REFUSED if opened.error is not None else FELL_BACK if declined else EQUAL), []


def _declined() -> int:
    """The number of files left to Pillow so far."""
    return sum(count for reason, count in accel.stats()["fallbacks"].items() if "Pillow" in reason)


class _File(NamedTuple):
    data: bytes
    path: Path
    rng: Rng
    opened: Answer
    """what Pillow makes of all of it, in RGB"""
    setting: Setting
    limit: int
    announce: Announce

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height, if Pillow opens the file."""
        return self.opened.about[1] if len(self.opened.about) > 1 else None

    def open(self) -> Any:
        return Image.open(BytesIO(self.data))

    def boxes(self) -> list[Box]:
        width, height = self.size or (64, 48)
        return oracle.boxes(self.rng, height, width)

    def compare(
        self,
        where: str,
        first: Callable[[], Any],
        then: Callable[[Any], Any],
        plain: Answer | None = None,
        opening: bool | None = None,
    ) -> Iterator[Wrong]:
        """Run without accel (unless the answer, ``plain``, is known), then under the setting; yield any difference.

        ``opening``: if ``first`` both opens and decodes the file: whether opening it is refused.
        """
        if plain is None:
            self.announce(f"plain: {where}")
            plain = answer(None, first, then)
        self.announce(where)
        found = answer(self.setting, first, then)
        if opening is not None:
            about = found.about if plain.error is None else plain.about  # without a value there is nothing to compare
            plain, found = plain._replace(first=opening), found._replace(first=opening, about=about)
        what = oracle.difference(plain, found, self.setting.replaces)
        if not what:
            return
        self.announce(f"plain: {where}, again")
        again = answer(None, first, then)
        if not oracle.difference(plain._replace(lazy=False), again._replace(first=plain.first)):
            yield where, what


def _whole(mode: str) -> Callable[[Any], Any]:
    return lambda image: np.asarray(image.convert(mode))


def _converted(file: _File) -> Iterator[Wrong]:
    yield from file.compare("convert(RGB)", file.open, _whole("RGB"), file.opened)
    yield from file.compare("convert(L)", file.open, _whole("L"))


def _regions(file: _File) -> Iterator[Wrong]:
    if file.size is None:
        return
    rng, (width, height) = file.rng, file.size
    for box in file.boxes():
        edges, mode = _edges(box), rng.choice(("RGB", "RGB", "L", None))
        yield from file.compare(f"crop{edges} of {mode}", file.open, _cropped(edges, mode))
    left, top = rng.randint(-3, width), rng.randint(-3, height)
    over = (left, top, left + rng.randint(1, width), top + rng.randint(1, height))
    yield from file.compare(f"crop{over}", file.open, _cropped(over))


def _edges(box: Box) -> Box:
    """(left, top, right, bottom) of (top, left, height, width)."""
    top, left, tall, wide = box
    return left, top, left + wide, top + tall


def _cropped(edges: Box, mode: str | None = "RGB") -> Callable[[Any], Any]:
    """A function that crops an image, after converting it unless ``mode`` is None."""
    return lambda image: F.to_tensor((image.convert(mode) if mode else image).crop(edges))


def _loader(file: _File) -> Iterator[Wrong]:
    """Read from a path, as ``ImageFolder`` does."""
    file.announce("plain: writing the file")
    file.path.write_bytes(file.data)
    edges = _edges(file.boxes()[0])
    where = f"default_loader and crop{edges}"
    yield from file.compare(where, lambda: default_loader(str(file.path)), _cropped(edges), opening=file.opened.first)


def _batch(file: _File) -> Iterator[Wrong]:
    """Read in a batch with an intact file."""
    if file.size is None or file.setting.replaces:
        return
    width, height = (min(size, 16) for size in file.size)
    left, top = file.rng.randint(0, file.size[0] - width), file.rng.randint(0, file.size[1] - height)
    parts = [((left, top, left + width, top + height), file.data), ((0, 0, width, height), _INTACT)]
    file.rng.shuffle(parts)

    def opened() -> Any:
        return torch.stack([_cropped(edges)(Image.open(BytesIO(data))) for edges, data in parts])

    where = f"a batch of {len(parts)}, crop{parts[0][0]} and crop{parts[1][0]}"
    yield from file.compare(where, opened, lambda batch: batch, opening=False)


def _decoder(file: _File) -> Iterator[Wrong]:
    """Decode by accel's JPEG decoder alone."""
    if not file.data or file.setting.backend == "torchvision":
        return
    opened, refused, expected = file.opened, False, None
    if file.size is not None and opened.about[0] in ("L", "RGB") and opened.about[2] in ("JPEG", "MPO"):
        refused = opened.error is not None and not file.setting.truncated
        expected = opened.value
        if expected is not None and opened.about[0] == "L":
            expected = np.ascontiguousarray(expected[..., :1])
    width, height = file.size or (64, 48)
    boxes = [*file.boxes()[1:], (file.rng.randint(-1, 1), file.rng.randint(0, 1), height, width + 1)]
    file.announce("accel.codec.jpeg.decode")
    for what in decoder.differences(file.data, boxes, expected, refused):
        yield "accel.codec.jpeg.decode", what


def _tvio(file: _File) -> Iterator[Wrong]:
    """Read JPEG files by torchvision's readers, which damaged files of other formats may crash even without accel."""
    if not file.data.startswith(b"\xff\xd8") or _pixels(file.data) > file.limit:
        return
    stream = torch.frombuffer(bytearray(file.data), dtype=torch.uint8)
    for name in ("decode_jpeg", "decode_image"):
        mode, turned = file.rng.choice(("UNCHANGED", "RGB", "RGB", "GRAY")), file.rng.random() < 0.3
        told = tvio.ImageReadMode[mode]
        read = partial(getattr(tvio, name), stream, told, apply_exif_orientation=turned)
        where = f"torchvision.io.{name}(mode={mode}, apply_exif_orientation={turned})"
        yield from file.compare(where, read, lambda values: values, opening=False)


_FRAME = re.compile(rb"(?=\xff[\xc0-\xcf]...(..)(..))", re.DOTALL)


def _pixels(data: bytes) -> int:
    """The most pixels for which a JPEG file may make torchvision allocate memory."""
    sizes = (int.from_bytes(tall, "big") * int.from_bytes(wide, "big") for tall, wide in _FRAME.findall(data))
    return max(sizes, default=0)
