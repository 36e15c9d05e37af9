"""The size of a cache that outlives the run, and its folder, as the option ``cache`` has them."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

_UNITS = {f"{unit}{i}b": base**n for i, base in (("", 1000), ("i", 1024)) for n, unit in enumerate("kmgt", 1)}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt]i?b)", re.IGNORECASE)


class CacheSize(NamedTuple):
    """Size in bytes and folder (None: the user's own in memory) of a cache that outlives the run; ``text``: the size
    as given."""

    size: int
    folder: str | None = None
    text: str = ""

    def __str__(self) -> str:
        return self.text if self.folder is None else f"{self.folder}:{self.text}"

    @classmethod
    def parse(cls, text: str) -> CacheSize:
        """Parse a size, such as ``"64GB"``, or a folder and a size, such as ``"/nvme/accel:400GB"``.

        Raises:
            ValueError: the text is neither.
        """
        folder, colon, size = text.rpartition(":")
        found = _SIZE.fullmatch(size)
        number = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
        if not number or (colon and not folder) or "\0" in folder:
            wrong = f"; {_hint(folder, colon, size, bool(found))}" if text else ""
            raise ValueError(f"cache must be 'auto', None, a size or a folder with a size, got {text!r}{wrong}")
        return cls(number, os.path.abspath(os.path.expanduser(folder)) if folder else None, size)


def _hint(folder: str, colon: str, size: str, is_size: bool) -> str:
    """A hint at what is wrong with the text of a cache's size."""
    if "\0" in folder + size:
        return "a folder's name has no NUL"
    if is_size:
        return "a size is more than nothing" if folder or not colon else "no folder is named before the colon"
    if re.fullmatch(r"\d+(\.\d+)?", size):
        return f"a size needs a unit, as in {folder + colon + size + 'GB'!r}"
    if found := re.fullmatch(r"(\d+(?:\.\d+)? ?)([kmgt])(i?)b?", size, re.IGNORECASE):
        unit = found[2].lower() if found[2] in "kK" and not found[3] else found[2].upper()
        return f"did you mean {f'{folder}{colon}{found[1]}{unit}{found[3].lower()}B'!r}?"
    if re.fullmatch(r"[-+]?\d[^/]*", size):
        return f"{size!r} is no size: a number above 0 and a unit, kB, MB, GB, TB, KiB, MiB, GiB or TiB"
    if size:
        return (
            f"a folder needs a size, as in {folder + colon + size + ':64GB'!r}"
            if "/" in size or not colon
            else (f"{size!r} is no size, as '64GB' is")
        )
    return f"a folder needs a size, as in {folder + ':64GB'!r}"
