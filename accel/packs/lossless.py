"""JPEG files rewritten without loss, so that they are decoded faster: baseline, with Huffman tables of their own.

libjpeg-turbo's ``jpegtran`` (https://libjpeg-turbo.org) does it: ``jpegtran -copy all -optimize`` keeps coefficients
and markers, and codes them anew in one scan. Progressive files are decoded two to three times as fast.
"""

from __future__ import annotations

import shutil
import subprocess
import time
import warnings
from io import BytesIO
from typing import Any, NamedTuple

from PIL import Image

from accel.errors import PackError

_CODING = {"progressive", "progression"}  # what Pillow's info says of the coding alone


class Saving(NamedTuple):
    """What rewriting brought: the number of files that were rewritten, their bytes before and after, and the seconds
    that Pillow takes to decode them, before and after."""

    files: int = 0
    size: int = 0
    new_size: int = 0
    seconds: float = 0.0
    new_seconds: float = 0.0

    def plus(self, other: Saving) -> Saving:
        sums: list[Any] = [mine + of_other for mine, of_other in zip(self, other, strict=True)]
        return Saving(*sums)


def require_jpegtran() -> None:
    """Raises ``PackError`` where there is no ``jpegtran``."""
    if shutil.which("jpegtran") is None:
        raise PackError("--lossless needs jpegtran of libjpeg-turbo (Debian's package: libjpeg-turbo-progs)")


def rewritten(data: bytes) -> tuple[bytes, Saving]:
    """Rewrite a JPEG file if it is progressive or gets smaller, and all that Pillow reads of it stays equal."""
    done = subprocess.run(["jpegtran", "-copy", "all", "-optimize"], input=data, capture_output=True, check=False)
    if done.returncode or done.stderr:  # a damaged file, or of a kind that it does not know
        return data, Saving()
    try:
        (old, seconds), (new, new_seconds) = _decoded(data), _decoded(done.stdout)
    except Exception:
        return data, Saving()
    faster = "progressive" in old.info or len(done.stdout) < len(data)
    if not faster or "progressive" in new.info or "mp" in old.info or not _equal(old, new):
        return data, Saving()
    return done.stdout, Saving(1, len(data), len(done.stdout), seconds, new_seconds)


def _decoded(data: bytes) -> tuple[Image.Image, float]:
    begun = time.thread_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of pictures that are large
        image = Image.open(BytesIO(data))
        image.load()
    return image, time.thread_time() - begun


def _equal(old: Image.Image, new: Image.Image) -> bool:
    """Compare pixels, and what describes them: EXIF, ICC profile, comment, resolution. (``jpegtran`` adds a JFIF header
    where there is none; of several pictures in a file, MPO, it keeps one.)"""
    described = all(new.info.get(key) == old.info[key] for key in old.info.keys() - _CODING)
    return described and old.format == "JPEG" == new.format and old.mode == new.mode and old.tobytes() == new.tobytes()
