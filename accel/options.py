"""A backend's options, and the selection of a backend with its options: plain data that every room may know."""

from __future__ import annotations

import dataclasses
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
        cache: what is kept of files from one epoch to the next, in memory that all processes share. ``"auto"``: where
            things are in their streams, at most 2% of their bytes, and in all a sixteenth of the memory that is left;
            None: nothing. It changes no pixel.

    Raises:
        TypeError: a value is of the wrong type.
        ValueError: a value is out of range.
    """

    exact: bool = True
    on_error: Literal["raise", "replace"] = "raise"
    cache: Literal["auto"] | None = dataclasses.field(default="auto", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.exact, bool):
            raise TypeError(f"exact must be True or False, got {self.exact!r}")
        if self.on_error not in ("raise", "replace"):
            raise ValueError(f"on_error must be 'raise' or 'replace', got {self.on_error!r}")
        if self.cache not in ("auto", None):
            raise ValueError(f"cache must be 'auto' or None, got {self.cache!r}")


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
