"""Statistics of the differences between a reference's tensors and others."""

from __future__ import annotations

from typing import Any

import torch

ANOTHER_PICTURE = 6.0
"""The mean difference of an image's values, in levels of uint8, above which it is another picture."""


class Different(Exception):
    """Error of tensors that are not what they should be; ``what`` says how they differ, ``file`` names the image."""

    def __init__(self, what: str, file: str = "") -> None:
        super().__init__(f"{file}: {what}" if file else what)
        self.what, self.file = what, file


def check_equal(expected: torch.Tensor, found: torch.Tensor, name: str = "") -> None:
    """Raise ``Different`` unless two tensors are of the same kind and equal in every bit."""
    if expected.dtype == found.dtype and torch.equal(expected, found):
        return
    stats = ErrorStats(1, least=0)
    stats.add(expected, found, name)
    if not expected.ndim:
        raise Different(f"label {found.item()} instead of {expected.item()}", name)
    raise Different(f"{100 * stats.share:.3g}% of the values differ, by at most {stats.largest:.3g}", name)


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


class ErrorStats:
    """Differences of many images from a reference's, in levels of uint8.

    Attributes:
        images, equal: the number of images that were added, and of those that were equal in every value.
        largest, worst: the largest difference, and the name of the image that has it.
        values, differing: the number of values, and of those that differ by ``least`` or more.
    """

    def __init__(self, levels: Any = None, most: float = float("inf"), least: float = 0.499) -> None:
        """
        Args:
            levels: the levels in one unit of an image's values, [channels, 1, 1]; for other tensors (boxes) it is 1.
                None: 255 for floats, 1 for integers.
            most: the largest mean difference of an image that is accepted.
            least: the least difference of a value that is counted; half a level rounds to another one. 0: any.
        """
        self._levels, self._most, self._least = levels, most, least
        self._total = self.largest = 0.0
        self.images = self.equal = self.values = self.differing = 0
        self.worst = ""

    @property
    def mean(self) -> float:
        return self._total / max(self.values, 1)

    @property
    def share(self) -> float:
        """The share of values that differ."""
        return self.differing / max(self.values, 1)

    def add(self, expected: torch.Tensor, found: torch.Tensor, name: str = "") -> float:
        """Add an image and return its largest difference.

        Raises:
            Different: it has another shape or dtype, values that are not finite, or is another picture.
        """
        if expected.shape != found.shape or expected.dtype != found.dtype:
            raise Different(f"its values are {_kind(found)} instead of {_kind(expected)}", name)
        levels: Any = 255 if expected.is_floating_point() else 1
        if self._levels is not None:
            levels = self._levels if expected.ndim == 3 else 1
        apart = ((expected.double() - found.double()).cpu() * levels).abs()
        if not bool(apart.isfinite().all()):
            raise Different("there are values that are not finite", name)
        largest, total = float(apart.max()) if apart.numel() else 0.0, float(apart.sum())
        if total > self._most * apart.numel():
            raise Different(f"its values differ by {total / apart.numel():.3g} levels on average", name)
        self.images += 1
        self.equal += largest == 0
        if largest > self.largest:
            self.largest, self.worst = largest, name
        self._total += total
        self.values += apart.numel()
        self.differing += int((apart >= self._least).sum() if self._least else apart.count_nonzero())
        return largest

    def as_data(self) -> dict[str, float]:
        """The figures for result files."""
        return {"max": self.largest, "mean": self.mean, "share that differs": self.share}

    def __str__(self) -> str:
        return f"{self.share:.1%} of the values differ; {self.mean:.2g} levels on average, {self.largest:.3g} at most"
