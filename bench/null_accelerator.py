"""An accelerator that takes no time: what is left is the host's part of an accelerator's backend.

Workers ship recipes to it as they do to a real one; it plans each batch and gives back memory that nobody has
written. So it tells how fast the host can feed a device that decodes and transforms by itself, and no more. It is a
backend like any other and found as one, by an entry point.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Literal
from unittest import mock

import torch

import accel
from accel import backend
from accel.backend import AcceleratorBackend
from accel.cli.harness import Batch
from accel.lazy.tensor_base import LazyTensorBase
from accel.planning.plan import Plan, plan
from bench.contestants.scripts import TorchvisionV1
from bench.pipelines import Job

NAME = "null"


class NullAccelerator(AcceleratorBackend):
    """A backend that computes nothing."""

    devices = ("meta",)

    def run_on(self, plan: Plan, device: torch.device) -> torch.Tensor:
        return torch.empty(plan.shape, dtype=plan.dtype)


@contextmanager
def installed() -> Iterator[None]:
    """Inside the block, ``accel.image_backend("null")`` is known."""
    entry = EntryPoint(NAME, f"{NullAccelerator.__module__}:{NullAccelerator.__name__}", backend.GROUP)
    with mock.patch.object(backend, "entry_points", lambda group: (*entry_points(group=group), entry)):
        yield


class Recipes(TorchvisionV1):
    """accel's host part: recipes are recorded, cross to the main process and are planned there.

    Args:
        then: what happens to them instead: they are computed on the host, for the check, or kept, to be weighed.
    """

    key = "accel-recipes"
    title = "accel, host part for an accelerator"
    settings = (
        "torchvision v1's script; batches of recipes, planned and dropped: decode and transforms are the device's"
    )

    def __init__(self, then: Literal["planned", "computed", "kept"] = "planned") -> None:
        self._then = then

    @contextmanager
    def in_force(self, job: Job) -> Iterator[None]:
        with installed(), accel.image_backend(NAME):
            yield

    def finish(self, batch: Batch) -> Batch:
        if not isinstance(batch, LazyTensorBase):
            raise TypeError(f"a batch is no lazy tensor but a {type(batch).__name__}")
        if self._then == "computed":
            return batch.materialize()
        if self._then == "kept":
            return batch
        program = plan(batch.lazy.recipes, interleaved=batch.lazy.interleaved)
        return NullAccelerator(None).run_on(program, torch.device("cpu"))
