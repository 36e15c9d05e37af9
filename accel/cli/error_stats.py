"""Differences between a reference's tensors and others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

ANOTHER_PICTURE = 6.0
"""Levels of uint8 by which an image's values may differ on average; by more it is another picture."""


class Different(Exception):
    """Tensors are not what they should be; the message says how."""


def check_kind(wanted: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> None:
    """Raise ``Different`` unless number, shapes and dtypes are the same."""
    if len(wanted) != len(found):
        raise Different(f"{len(found)} tensors instead of {len(wanted)}")
    for a, b in zip(wanted, found, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise Different(f"its values are {_kind(b)} instead of {_kind(a)}")


def check_equal(wanted: torch.Tensor, found: torch.Tensor) -> None:
    """Raise ``Different`` unless two tensors of the same kind are equal in every bit."""
    if torch.equal(wanted, found):
        return
    if not wanted.ndim:
        raise Different(f"label {found.item()} instead of {wanted.item()}")
    apart = (wanted.double() - found.double()).abs()
    share = 100 * (apart > 0).double().mean().item()
    raise Different(f"{share:.3g}% of the values differ, by at most {apart.max().item():.3g}")


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


class ErrorStats:
    """Differences of many images from a reference's, in levels of uint8.

    Attributes:
        images, equal: how many images were added, and how many of them were equal in every value.
        largest, worst: the largest difference, and the name of the image that has it.
        values, differing, visible: how many values there are, how many differ, and how many by half a level or more.
    """

    def __init__(self, levels: torch.Tensor | None = None, most: float = float("inf")) -> None:
        """
        Args:
            levels: how many lie in one unit of an image's values, [channels, 1, 1]; of all else (boxes) it is 1.
                None: 255 in one of floats, 1 in one of integers.
            most: an image's mean difference that is not accepted any more.
        """
        self._levels, self._most = levels, most
        self._total = self.largest = 0.0
        self.images = self.equal = self.values = self.differing = self.visible = 0
        self.worst = ""

    @property
    def mean(self) -> float:
        return self._total / max(self.values, 1)

    @property
    def share(self) -> float:
        """The share of values that differ by half a level or more, so that they would be other levels."""
        return self.visible / max(self.values, 1)

    def add(self, wanted: torch.Tensor, found: torch.Tensor, name: str = "") -> float:
        """Add an image; its largest difference.

        Raises:
            Different: it has another shape or dtype, values that are not finite, or is another picture.
        """
        check_kind([wanted], [found])
        levels: Any = 255 if wanted.is_floating_point() else 1
        if self._levels is not None:
            levels = self._levels if wanted.ndim == 3 else 1
        apart = ((wanted.double() - found.double()).cpu() * levels).abs()
        if not bool(apart.isfinite().all()):
            raise Different("there are values that are not finite")
        largest, total = float(apart.max()) if apart.numel() else 0.0, float(apart.sum())
        if total > self._most * apart.numel():
            raise Different(f"its values differ by {total / apart.numel():.3g} levels on average")
        self.images += 1
        self.equal += largest == 0
        if largest > self.largest:
            self.largest, self.worst = largest, name
        self._total += total
        self.values += apart.numel()
        self.differing += int(apart.count_nonzero())
        self.visible += int((apart >= 0.499).sum())
        return largest

    def __str__(self) -> str:
        return f"{self.share:.1%} of the values differ; {self.mean:.2g} levels on average, {self.largest:.3g} at most"
