"""Training steps: none, work of a device or of the host's cores, code that keeps the GIL, copies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

STAND_IN = "standin"


@dataclass(frozen=True)
class Step:
    """A step that waits for a device: it costs the host nothing.

    Attributes:
        ms: its milliseconds.
        computes: whether it uses the images, so that lazy ones are computed.
        copied: milliseconds of copying the batch to the stand-in device; None if it is not copied.
    """

    ms: float = 0.0
    computes: bool = True
    copied: float | None = None

    def __call__(self, batch: Any) -> None:
        images = batch[0] if isinstance(batch, (list, tuple)) else batch
        if self.copied is not None:
            Stored.ms = self.copied
            images.to(STAND_IN)
        elif self.computes and isinstance(images, torch.Tensor):
            images.to("cpu")  # computes what is lazy
        time.sleep(self.ms / 1000)


@dataclass(frozen=True)
class Model:
    """A step of a small model on the host's cores.

    Attributes:
        times: the number of times it is applied, forwards and backwards.
        threads: torch's number of threads; None for its default.
    """

    times: int
    threads: int | None = 1

    def __call__(self, batch: Any) -> None:
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        batch[0].to("cpu")  # computes what is lazy
        pictures, weights = _parameters()
        for _ in range(self.times):
            torch.nn.functional.conv2d(pictures, weights, stride=4).mean().backward()


@cache
def _parameters() -> tuple[torch.Tensor, torch.Tensor]:
    """The model's tensors, made in the process that trains, as waiting for torch's threads hangs after a fork."""
    return torch.zeros(8, 3, 224, 224), torch.zeros(8, 3, 7, 7, requires_grad=True)


@dataclass(frozen=True)
class Held:
    """A step in one call of C that keeps the GIL."""

    ms: float

    def __call__(self, batch: Any) -> None:
        until = time.perf_counter() + self.ms / 1000
        while time.perf_counter() < until:
            sorted(_NUMBERS)


_NUMBERS = [number * 7919 % 100_003 for number in range(100_003)]


class Stored(torch.Tensor):
    """A tensor of the stand-in device: it is in host memory, and copying to it takes ``ms``."""

    ms = 0.0
    there: torch.Tensor

    @staticmethod
    def __new__(cls, there: torch.Tensor) -> Stored:
        made = torch.Tensor._make_wrapper_subclass(
            cls, there.shape, dtype=there.dtype, device=torch.device(STAND_IN, 0)
        )
        made.there = there
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # as torch calls it
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is not torch.ops.aten.copy_.default:
            raise NotImplementedError(f"the stand-in device only takes copies, not {func}")
        to, what = args[:2]
        time.sleep(cls.ms / 1000)
        to.there.copy_(what)
        return to


def stand_in() -> torch.library.Library:
    """Make ``images.to("standin")`` a copy to a device, as torch sees it; the result keeps it registered."""
    _setup_privateuseone_for_python_backend(STAND_IN)

    def empty(size: Sequence[int], dtype: torch.dtype | None = None, **others: object) -> Stored:
        return Stored(torch.empty(size, dtype=dtype))

    def empty_strided(
        size: Sequence[int], stride: Sequence[int], dtype: torch.dtype | None = None, **others: object
    ) -> Stored:
        return Stored(torch.empty_strided(size, stride, dtype=dtype))

    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", empty, "PrivateUse1")
    library.impl("empty_strided", empty_strided, "PrivateUse1")
    return library
