"""A backend's options, and the selection of a backend with its options: plain data that every room may know."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal, NamedTuple

import torch

STEPS_ASIDE = "torchvision"


@dataclasses.dataclass(frozen=True)
class Options:
    """Options that every backend takes.

    Args:
        exact: results equal torchvision's (the default); False permits a faster engine with a stated difference.
        on_error: ``"raise"``, or ``"replace"`` the pixels of a file that cannot be read by black ones of its size, or
            256 x 256 where it has none; it is counted and named in ``accel.stats()``, and the first is warned of.
            A file that is missing, or may not be read, raises all the same.
        cache: what is kept of files from one epoch to the next; it changes no pixel. ``"auto"``: where things are in
            their streams, in memory that all processes share, at most 2% of the files' bytes, and in all a sixteenth
            of the memory that is left. None: nothing. A size as ``"64GB"``, or a folder on a local disk with a size as
            ``"/nvme/accel:400GB"``: half-decoded pictures and the results of steps that are the same each time as
            well, in so many bytes that workers, ranks and later runs share (``docs/cache.md``).

    Raises:
        TypeError: a value is of the wrong type.
        ValueError: a value is out of range.
    """

    exact: bool = True
    on_error: Literal["raise", "replace"] = "raise"
    cache: str | None = dataclasses.field(default="auto", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.exact, bool):
            raise TypeError(f"exact must be True or False, got {self.exact!r}")
        if self.on_error not in ("raise", "replace"):
            raise ValueError(f"on_error must be 'raise' or 'replace', got {self.on_error!r}")
        if self.cache not in ("auto", None):
            cache_place(self.cache)


_SIZE = re.compile(r"(?:(.*):)?\s*(\d+(?:\.\d+)?)\s*([kKMGT])(i?)B", re.DOTALL)
_POWERS = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def cache_place(cache: object) -> tuple[str | None, int]:
    """The folder (None: in memory) and the bytes that an option ``cache`` speaks of.

    Raises:
        ValueError: it speaks of none.
    """
    found = _SIZE.fullmatch(cache) if isinstance(cache, str) else None
    if found is None or found[1] == "":
        hint = f"; a folder needs a size, as '{cache}:100GB'" if isinstance(cache, str) and "/" in cache else ""
        form = "'auto' or None, a size such as '64GB', or a folder and a size such as '/nvme/accel:400GB'"
        raise ValueError(f"cache must be {form}; got {cache!r}{hint}")
    folder, number, letter, binary = found.groups()
    return folder, int(float(number) * (1024 if binary else 1000) ** _POWERS[letter])


@dataclasses.dataclass(frozen=True)
class AcceleratorOptions(Options):
    """Options that every accelerator backend takes, besides those of ``Options``.

    Args:
        device: where batches are computed, as ``torch.device`` takes it; None: where the first ``.to(device)`` sends
            them. ``"cpu"``: the backend runs on the host, as it would on its device (for tests).
        prefetch: how many batches of a DataLoader may be on their way to the device before they are used, at least 1.
    """

    device: str | None = None
    prefetch: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device is not None:
            if not isinstance(self.device, str):
                raise TypeError(f"device must be a string or None, got {self.device!r}")
            try:
                torch.device(self.device)
            except RuntimeError as error:
                raise ValueError(f"device must be a torch device, got {self.device!r}") from error
        if type(self.prefetch) is not int or self.prefetch < 1:
            raise ValueError(f"prefetch must be a positive int, got {self.prefetch!r}")


class Selection(NamedTuple):
    """A backend's name and options: small, comparable, picklable."""

    name: str
    options: Options

    @property
    def steps_aside(self) -> bool:
        return self.name == STEPS_ASIDE
