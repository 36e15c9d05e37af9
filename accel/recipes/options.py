"""A backend's options, and the selection of a backend with its options: plain data that every room may know."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import torch

from accel.cache.size import CacheSize

STEPS_ASIDE = "torchvision"


@dataclasses.dataclass(frozen=True)
class Options:
    """Options that every backend takes.

    Args:
        exact: results equal torchvision's (the default); False permits a faster engine with a stated difference.
        on_error: ``"raise"``; or ``"replace"``: a damaged file becomes a black picture of its size, or of
            256 x 256 if its size is unknown; it is counted and named in ``accel.stats()``, and the first one is
            logged as a warning. A file that is missing, or may not be read, raises all the same.
        cache: what is kept from one epoch to the next, for all processes; it changes no pixel. ``"auto"``: stream
            indexes of the files, each at most 2% of its file, in all at most a sixteenth of the free memory. None:
            nothing. A size, such as ``"64GB"`` or ``"500 MiB"``: also results and half-decoded pictures, for later
            runs, in a folder in memory. A folder and a size, such as ``"/nvme/accel:400GB"``: in that folder.

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
        if self.cache is not None and not isinstance(self.cache, str):
            raise TypeError(f"cache must be a string or None, got {self.cache!r}")
        if (size := self.cache_size) is not None:
            object.__setattr__(self, "cache", str(size))  # absolute: a process may have another working directory

    @property
    def cache_size(self) -> CacheSize | None:
        """The size and folder of the cache that outlives the run; None if there is none."""
        return None if self.cache in ("auto", None) else CacheSize.parse(self.cache)


@dataclasses.dataclass(frozen=True)
class AcceleratorOptions(Options):
    """Options that every accelerator backend takes, besides those of ``Options``.

    Args:
        device: where batches are computed, as ``torch.device`` takes it; None: where the first ``.to(device)`` sends
            them. ``"cpu"``: the backend's device code runs on the host (for tests).
        prefetch: how many batches of a DataLoader may be submitted before they are used, at least 1. None: two, and up
            to four as long as their results fit in a sixteenth of the device's memory.
        placement: ``"device"``: it computes all batches. ``"auto"``, only with ``exact=True``: DataLoader workers
            compute batches on the host's cores in the time that they would wait for the device, with the same values.

    Raises:
        TypeError, ValueError: as ``Options`` does.
    """

    device: str | None = None
    prefetch: int | None = None
    placement: Literal["device", "auto"] = dataclasses.field(default="device", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device is not None:
            if not isinstance(self.device, str):
                raise TypeError(f"device must be a string or None, got {self.device!r}")
            try:
                torch.device(self.device)
            except RuntimeError as error:
                raise ValueError(f"device must be a torch device, got {self.device!r}") from error
        if self.prefetch is not None and (type(self.prefetch) is not int or self.prefetch < 1):
            raise ValueError(f"prefetch must be a positive int or None, got {self.prefetch!r}")
        if self.placement not in ("device", "auto"):
            raise ValueError(f"placement must be 'device' or 'auto', got {self.placement!r}")
        if self.placement == "auto" and not self.exact:
            raise ValueError("placement='auto' needs exact=True: else the host's values may differ from a device's")


class Selection(NamedTuple):
    """A backend's name and options: small, comparable, picklable."""

    name: str
    options: Options

    @property
    def steps_aside(self) -> bool:
        return self.name == STEPS_ASIDE
