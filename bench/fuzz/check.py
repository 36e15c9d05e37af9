"""One file through all of accel's ways to its pixels, beside Pillow's and torchvision's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torchvision.io.image as tvio
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F

import accel
from bench.fuzz import decoder, oracle
from bench.fuzz.decoder import Box
from bench.fuzz.files import encode, picture
from bench.fuzz.mutations import Rng
from bench.fuzz.oracle import Answer, Setting, answer

LARGEST = 1 << 20
"""Pixels; a damaged header may promise any number. Pillow refuses twice as many."""
LARGEST_INTACT = 1 << 22

EQUAL, FELL_BACK, REFUSED, WRONG = "equal", "accel fell back", "both refused", "wrong"

Announce = Callable[[str], None]
Wrong = tuple[str, str]
"""Where (under which setting), and what."""


class Checked(NamedTuple):
    """The outcome of a file: EQUAL, FELL_BACK (equal, by Pillow or torchvision), REFUSED or WRONG."""

    outcome: str
    wrong: list[Wrong]


def check_file(
    data: bytes, rng: Rng, path: Path, intact: bool, announce: Announce, setting: Setting | None = None
) -> Checked:
    """Ask everybody, under a setting that is drawn unless given.

    Args:
        path: a file that may be written. intact: nobody damaged it; it may be larger.
        announce: called ahead of each step with its name; what has no accel in it begins with "plain".
    """
    drawn = oracle.setting(rng)
    setting = drawn if setting is None else setting
    limit = LARGEST_INTACT if intact else LARGEST
    oracle.pixel_limit(limit, setting.truncated)
    announce("plain: Image.open")
    opened = answer(None, oracle.opener(data), oracle.whole("RGB"))
    file = _File(data, path, opened, setting, limit, announce)
    before = _declined()
    wrong = [*_whole(file, rng), *_regions(file, rng)]
    declined = _declined() > before
    wrong += [*_loader(file, rng), *_batch(file, rng), *_decoder(file, rng), *_tvio(file, rng)]
    if wrong:
        return Checked(WRONG, [(f"{where} under {setting}", what) for where, what in wrong])
    if opened.error is not None:
        return Checked(REFUSED, [])
    return Checked(FELL_BACK if declined else EQUAL, [])


def _declined() -> int:
    """How often a file was left to Pillow, so far."""
    fallbacks: dict[str, int] = accel.stats()["fallbacks"]
    return sum(count for reason, count in fallbacks.items() if "Pillow" in reason)


class _File(NamedTuple):
    data: bytes
    path: Path
    opened: Answer
    """what Pillow makes of all of it, in RGB"""
    setting: Setting
    limit: int
    announce: Announce

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height, of what Pillow opens."""
        return self.opened.about[1] if len(self.opened.about) > 1 else None

    def boxes(self, rng: Rng) -> list[Box]:
        width, height = self.size or (64, 48)
        return oracle.boxes(rng, height, width)

    def compare(
        self,
        where: str,
        first: Callable[[], Any],
        then: Callable[[Any], Any],
        plain: Answer | None = None,
        opening: bool | None = None,
    ) -> Iterator[Wrong]:
        """Ask without accel (unless that is known: ``plain``), then under the setting.

        ``opening``: where ``first`` opens the file and decodes it as well, whether it would be refused as it is opened.
        """
        if plain is None:
            self.announce(f"plain: {where}")
            plain = answer(None, first, then)
        self.announce(where)
        found = answer(self.setting, first, then)
        if opening is not None:
            about = found.about if plain.error is None else plain.about  # of what was not given there is nothing to say
            plain, found = plain._replace(first=opening), found._replace(first=opening, about=about)
        what = oracle.difference(plain, found, self.setting.replaces)
        if not what:
            return
        self.announce(f"plain: {where}, again")
        again = answer(None, first, then)
        if not oracle.difference(plain._replace(lazy=False), again._replace(first=plain.first)):
            yield where, what


def _whole(file: _File, rng: Rng) -> Iterator[Wrong]:
    yield from file.compare("convert(RGB)", oracle.opener(file.data), oracle.whole("RGB"), file.opened)
    yield from file.compare("convert(L)", oracle.opener(file.data), oracle.whole("L"))


def _regions(file: _File, rng: Rng) -> Iterator[Wrong]:
    if file.size is None:
        return
    width, height = file.size
    for top, left, tall, wide in file.boxes(rng):
        edges, mode = (left, top, left + wide, top + tall), rng.choice(("RGB", "RGB", "L", None))
        yield from file.compare(f"crop{edges} of {mode}", oracle.opener(file.data), _cropped(edges, mode))
    left, top = rng.randint(-3, width), rng.randint(-3, height)
    over = (left, top, left + rng.randint(1, width), top + rng.randint(1, height))
    yield from file.compare(f"crop{over}", oracle.opener(file.data), _cropped(over))


def _cropped(edges: tuple[int, int, int, int], mode: str | None = "RGB") -> Callable[[Any], Any]:
    """A part of an image as it is, or converted."""
    return lambda image: F.to_tensor((image.convert(mode) if mode else image).crop(edges))


def _loader(file: _File, rng: Rng) -> Iterator[Wrong]:
    """From a path, as ``ImageFolder`` does."""
    file.announce("plain: writing the file")
    file.path.write_bytes(file.data)
    top, left, tall, wide = file.boxes(rng)[0]
    edges = (left, top, left + wide, top + tall)
    where = f"default_loader and crop{edges}"
    yield from file.compare(where, lambda: default_loader(str(file.path)), _cropped(edges), opening=file.opened.first)


def _batch(file: _File, rng: Rng) -> Iterator[Wrong]:
    """Beside an intact file."""
    if file.size is None or file.setting.replaces:
        return
    width, height = (min(size, 16) for size in file.size)
    left, top = rng.randint(0, file.size[0] - width), rng.randint(0, file.size[1] - height)
    parts = [((left, top, left + width, top + height), file.data), ((0, 0, width, height), _companion())]
    rng.shuffle(parts)

    def opened() -> Any:
        return torch.stack([_cropped(edges)(oracle.opener(data)()) for edges, data in parts])

    where = f"a batch of {len(parts)}, crop{parts[0][0]} and crop{parts[1][0]}"
    yield from file.compare(where, opened, lambda batch: batch, opening=False)


@cache
def _companion() -> bytes:
    return encode(picture("smooth", 16, 16))


def _decoder(file: _File, rng: Rng) -> Iterator[Wrong]:
    """accel's JPEG decoder by itself."""
    if not file.data or file.setting.backend == "torchvision":
        return
    opened, refused, expected = file.opened, False, None
    if file.size is not None and opened.about[0] in ("L", "RGB") and opened.about[2] in ("JPEG", "MPO"):
        refused = opened.error is not None and not file.setting.truncated
        expected = opened.value
        if expected is not None and opened.about[0] == "L":
            expected = np.ascontiguousarray(expected[..., :1])
    width, height = file.size or (64, 48)
    boxes = [*file.boxes(rng)[1:], (rng.randint(-1, 1), rng.randint(0, 1), height, width + 1)]
    file.announce("accel.codec.jpeg.decode")
    for what in decoder.differences(file.data, boxes, expected, refused):
        yield "accel.codec.jpeg.decode", what


def _tvio(file: _File, rng: Rng) -> Iterator[Wrong]:
    """torchvision's own readers, of JPEG files: damaged ones of other formats may end the process, accel or not."""
    if not file.data.startswith(b"\xff\xd8") or _pixels(file.data) > file.limit:
        return
    stream = torch.frombuffer(bytearray(file.data), dtype=torch.uint8)
    for name in ("decode_jpeg", "decode_image"):
        mode, turned = rng.choice(("UNCHANGED", "RGB", "RGB", "GRAY")), rng.random() < 0.3
        reader, told = getattr(tvio, name), getattr(tvio.ImageReadMode, mode)

        def read(reader: Any = reader, told: Any = told, turned: bool = turned) -> Any:
            return reader(stream, told, apply_exif_orientation=turned)

        where = f"torchvision.io.{name}(mode={mode}, apply_exif_orientation={turned})"
        yield from file.compare(where, read, lambda values: values, opening=False)


_FRAME = re.compile(rb"(?=\xff[\xc0-\xcf]...(..)(..))", re.DOTALL)


def _pixels(data: bytes) -> int:
    """The most that a JPEG file may ask torchvision to make room for."""
    sizes = (int.from_bytes(tall, "big") * int.from_bytes(wide, "big") for tall, wide in _FRAME.findall(data))
    return max(sizes, default=0)
