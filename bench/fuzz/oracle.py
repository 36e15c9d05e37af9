"""The promise for any file: its pixels under accel are those of Pillow and torchvision, and so are its refusals.

A file that ``Image.open`` refuses raises the same type and text under accel. One that fails later raises the same if
the image is Pillow's own, and if it is lazy a ``DecodeError`` of that type whose message has that text; under
``on_error="replace"`` all of these are black instead. A file that Pillow reads never fails.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

import accel
from accel.lazy.tensor_base import LazyTensorBase
from bench import guard
from bench.fuzz.decoder import Box, described
from bench.fuzz.mutations import Rng

Array = npt.NDArray[Any]


class Setting(NamedTuple):
    """The setting under which a file is tried."""

    backend: str
    options: dict[str, Any]
    truncated: bool
    """ImageFile.LOAD_TRUNCATED_IMAGES"""

    def __str__(self) -> str:
        told = ", ".join([self.backend, *(f"{name}={value}" for name, value in self.options.items())])
        return told + ", LOAD_TRUNCATED_IMAGES" * self.truncated

    @property
    def replaces(self) -> bool:
        return self.options.get("on_error") == "replace"


def setting(rng: Rng) -> Setting:
    options: dict[str, Any] = {}
    if rng.random() < 0.1:
        return Setting("cuda", {"device": "cpu"}, rng.random() < 0.2)
    options["decode"] = rng.choices(("auto", "accel", "pillow"), (75, 10, 15))[0]
    if rng.random() < 0.12:
        options["on_error"] = "replace"
    return Setting("cpu", options, rng.random() < 0.15)


def boxes(rng: Rng, height: int, width: int) -> list[Box]:
    """Random (top, left, height, width) inside a picture: any, single pixels, at its edges, one row or column."""

    def span(size: int) -> tuple[int, int]:
        kind = rng.randrange(6)
        if kind == 0:
            return rng.randrange(size), 1
        if kind == 1:
            return 0, size
        start = 0 if kind == 2 else rng.randrange(size)
        length = rng.randint(1, min(size - start, 3 if kind == 3 else size))
        return (size - length, length) if kind == 4 else (start, length)

    found = []
    for _ in range(3):
        (top, tall), (left, wide) = span(height), span(width)
        found.append((top, left, tall, wide))
    return [*found, rng.choice(((height - 1, width - 1, 1, 1), (0, width - 1, height, 1), (height - 1, 0, 1, width)))]


class Answer(NamedTuple):
    """An array or an exception, and the kind of the object that it came from."""

    value: Array | None
    error: Exception | None
    first: bool = False
    """it was refused as it was opened"""
    lazy: bool = False
    about: tuple[Any, ...] = ()
    """the opened image's mode, size and format; whether a decompression bomb was warned of"""

    @property
    def words(self) -> str:
        """The error's text without addresses."""
        return re.sub(r"0x[0-9a-f]+", "0x", str(self.error))

    def __str__(self) -> str:
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.words}" + " on opening" * self.first
        assert self.value is not None
        return f"{self.value.dtype} {self.value.shape}"


def answer(selected: Setting | None, first: Callable[[], Any], then: Callable[[Any], Any]) -> Answer:
    """Run ``then`` on what ``first`` opens, under a setting or (None) without accel.

    Under a setting there are guard pages, if this process's allocator makes them.
    """
    backend, options = ("torchvision", {}) if selected is None else selected[:2]
    armed = guard.armed("behind") if selected is not None and guard.present() else nullcontext()
    with accel.image_backend(backend, **options), warnings.catch_warnings(record=True) as warned, armed:
        warnings.simplefilter("always")
        found, opened = Answer(None, None, first=True), None
        try:
            opened = first()
            found = found._replace(first=False, lazy=isinstance(opened, (accel.LazyImage, LazyTensorBase)))
            found = found._replace(about=_about(opened, warned))
            return found._replace(value=np.array(then(opened)))
        except Exception as error:
            return found._replace(error=error, about=found.about or _about(None, warned) * found.first)


def _about(opened: Any, warned: list[Any]) -> tuple[Any, ...]:
    bomb = any(issubclass(each.category, Image.DecompressionBombWarning) for each in warned)
    return (opened.mode, opened.size, opened.format, bomb) if isinstance(opened, Image.Image) else (bomb,)


def difference(plain: Answer, found: Answer, replaces: bool = False) -> str:
    """A description of what is wrong with accel's answer; "" if nothing is."""
    if replaces and plain.error is not None:
        if found.error is not None:
            return f"raises {found} in place of black"
        assert found.value is not None
        in_ink = found.about[:1] == ("CMYK",)  # where black is not 0
        return "pixels that are not black of what was to be replaced" if found.value.any() and not in_ink else ""
    if plain.about != found.about:
        return f"{found.about} in place of {plain.about}"
    if plain.error is None:
        if found.error is not None:
            return f"raises {found}"
        assert plain.value is not None
        assert found.value is not None
        same = plain.value.dtype == found.value.dtype and np.array_equal(plain.value, found.value)
        return "" if same else described(found.value, plain.value)
    if found.error is None:
        return f"pixels of what is refused: {plain}"
    if found.lazy and not plain.first:
        expected = plain.words or type(plain.error).__name__
        of_its_type = isinstance(found.error, accel.DecodeError) and isinstance(found.error, type(plain.error))
        right = of_its_type and expected in found.words
    else:
        right = type(found.error) is type(plain.error) and found.words == plain.words
    return "" if right and not (found.first and not plain.first) else f"raises {found}; plain: {plain}"
