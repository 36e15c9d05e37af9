"""How far a contestant's pixels are from torchvision's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bench.job import Batch
from bench.pipelines import Pipeline


class Different(Exception):
    """A contestant's tensors are not what they should be; the message says where and how."""


class Quality:
    """Differences from the reference, in levels of uint8 before normalising.

    Attributes:
        highest: the largest.
        mean: over all values.
        share: of the values that differ by half a level or more, so that they would be other levels.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._level = torch.ones(3, 1, 1, dtype=torch.float64)
        if pipeline.std is not None:
            self._level = torch.tensor(pipeline.std, dtype=torch.float64).view(3, 1, 1) * 255
        self._sum = 0.0
        self._values = self._others = 0
        self.highest = 0.0

    @property
    def mean(self) -> float:
        return self._sum / self._values if self._values else 0.0

    @property
    def share(self) -> float:
        return self._others / self._values if self._values else 0.0

    def add(self, wanted: Batch, found: Batch) -> None:
        """Take a batch into account.

        Raises:
            Different: it has other shapes or dtypes than the reference's, or values that are no numbers.
        """
        check_kind(wanted, found)
        for a, b in zip(wanted, found, strict=True):
            level = self._level if a.ndim == 3 else 1  # boxes are in pixels
            apart = ((a.double() - b.double()) * level).abs()
            if not bool(apart.isfinite().all()):
                raise Different("there are values that are not finite")
            self.highest = max(self.highest, float(apart.max()))
            self._sum += float(apart.sum())
            self._others += int((apart >= 0.499).sum())
            self._values += apart.numel()

    def as_data(self) -> dict[str, Any]:
        return {"max": round(self.highest, 2), "mean": round(self.mean, 4), "share that differs": round(self.share, 5)}


def check_equal(wanted: Batch, found: Batch, names: Sequence[str]) -> None:
    """Check that two batches are equal in every bit.

    Raises:
        Different: they are not; the message names the file.
    """
    check_kind(wanted, found)
    for name, a, b in zip(names, wanted, found, strict=True):
        if not torch.equal(a, b):
            apart = (a.double() - b.double()).abs()
            share = 100 * (apart > 0).double().mean().item()
            raise Different(f"{name}: {share:.3g}% of the values differ, by at most {apart.max().item():.3g}")


def check_likely(wanted: Batch, found: Batch) -> None:
    """Check what can be checked where a contestant draws random parameters of its own.

    Raises:
        Different: other shapes or dtypes, values that are not finite, or a mean or spread of the whole batch
            that its random changes cannot explain.
    """
    check_kind(wanted, found)
    a, b = (torch.cat([image.double().flatten() for image in batch]) for batch in (wanted, found))
    if not bool(b.isfinite().all()):
        raise Different("there are values that are not finite")
    if abs(float(a.mean() - b.mean())) > float(a.std()) or not 0.5 < float(b.std() / a.std()) < 2:
        raise Different(f"mean {b.mean():.3g} and spread {b.std():.3g} instead of {a.mean():.3g} and {a.std():.3g}")


def check_kind(wanted: Batch, found: Batch) -> None:
    """Check number, shapes and dtypes.

    Raises:
        Different: they are others.
    """
    if len(wanted) != len(found):
        raise Different(f"{len(found)} images instead of {len(wanted)}")
    for a, b in zip(wanted, found, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise Different(f"images are {_kind(b)} instead of {_kind(a)}")


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
