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

from accel.codec.header import survey
from accel.errors import PackError

_CODING = {"progressive", "progression"}  # what Pillow's info says of the coding alone
_WRITTEN = {(b"JFIF\0", 14), (b"Adobe", 12)}  # segments that jpegtran writes anew, without a thumbnail: begin, size
_LONGEST = 60  # seconds for a file


class Saving(NamedTuple):
    """What rewriting brought: the number of files that were rewritten, their bytes before and after, the seconds that
    Pillow takes to decode them, before and after; and the number of files that ``jpegtran`` refused."""

    files: int = 0
    size: int = 0
    new_size: int = 0
    seconds: float = 0.0
    new_seconds: float = 0.0
    refused: int = 0

    def plus(self, other: Saving) -> Saving:
        sums: list[Any] = [mine + of_other for mine, of_other in zip(self, other, strict=True)]
        return Saving(*sums)


def require_jpegtran() -> None:
    """Raises ``PackError`` where there is no ``jpegtran``, or one that does not rewrite a progressive file."""
    program, picture = shutil.which("jpegtran"), BytesIO()
    if program is None:
        raise PackError("--lossless needs jpegtran of libjpeg-turbo (Debian's package: libjpeg-turbo-progs)")
    Image.linear_gradient("L").save(picture, "JPEG", progressive=True)
    new = _transcoded(picture.getvalue(), "--lossless")
    if isinstance(new, str) or not _saving(picture.getvalue(), new).files:
        why = new if isinstance(new, str) else "it does not give the same picture, baseline"
        raise PackError(f"--lossless cannot use {program!r}: {why}")


def rewritten(data: bytes, name: str) -> tuple[bytes, Saving]:
    """Rewrite a JPEG file if it is progressive or gets smaller, and nothing but its coding changes.

    Raises:
        PackError: ``jpegtran`` does not run; the message begins with the file's name.
    """
    new = _transcoded(data, name)
    if isinstance(new, str):
        return data, Saving(refused=1)
    saving = _saving(data, new)
    return (new if saving.files else data), saving


def _transcoded(data: bytes, name: str) -> bytes | str:
    """What ``jpegtran`` makes of a file; a text says why it refuses a damaged file, or one that it does not know."""
    program = shutil.which("jpegtran") or "jpegtran"
    command = [program, "-copy", "all", "-optimize"]
    try:
        done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=_LONGEST)
    except subprocess.TimeoutExpired:
        return f"it is not done after {_LONGEST} s"
    except OSError as error:
        raise PackError(f"{name}: {program!r} cannot be run: {error.strerror}") from error
    said = done.stderr.decode(errors="replace").strip()
    if not 0 <= done.returncode < 126:  # signals; shells' and loaders' statuses of what cannot be run: not of the file
        raise PackError(f"{name}: {program!r} ended with status {done.returncode} and said {said!r}")
    return f"it ended with status {done.returncode} and said {said!r}" if done.returncode or said else done.stdout


def _saving(data: bytes, new_data: bytes) -> Saving:
    """What a rewritten file brings: nothing if it may not take the old one's place, as where more follows on the
    picture's end, which ``jpegtran`` drops."""
    try:
        (old, seconds), (new, new_seconds) = _decoded(data), _decoded(new_data)
    except Exception:
        return Saving()
    faster = "progressive" in old.info or len(new_data) < len(data)
    ends = [survey(data, 2, size, b"")[0] for size in (len(data), len(data) - 1)]
    if not faster or "progressive" in new.info or ends != [True, False] or not _equal(old, new):
        return Saving()
    return Saving(1, len(data), len(new_data), seconds, new_seconds)


def _decoded(data: bytes) -> tuple[Any, float]:
    begun = time.thread_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of pictures that are large
        image = Image.open(BytesIO(data))
        image.load()
    return image, time.thread_time() - begun


def _equal(old: Any, new: Any) -> bool:
    """Compare pixels, and what describes them: EXIF, ICC profile, comment, resolution, all other segments.
    (``jpegtran`` adds a JFIF header where there is none; it may drop a thumbnail, or add an Adobe segment to CMYK.)"""
    added = {key for key in new.info.keys() - old.info.keys() if not key.startswith("jfif")}
    described = not added and all(new.info.get(key) == old.info[key] for key in old.info.keys() - _CODING)
    kinds = old.format == "JPEG" == new.format and old.mode == new.mode
    return kinds and described and _segments(old) == _segments(new) and bool(old.tobytes() == new.tobytes())


def _segments(image: Any) -> list[Any]:
    return [segment for segment in image.applist if (segment[1][:5], len(segment[1])) not in _WRITTEN]
