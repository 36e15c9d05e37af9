"""Plans run by a backend and, where it does not support what some of the images need, its host backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch

from accel.backend import AcceleratorBackend, Backend, HostBackend
from accel.errors import DecodeError
from accel.planning.partition import Partition, partition, positions
from accel.planning.plan import Plan
from accel.system import counters, memory
from accel.system.memory import Allocate


def run_on(backend: AcceleratorBackend, plan: Plan, device: torch.device) -> torch.Tensor:
    """``AcceleratorBackend.run_on``, of images that the host computes as well."""
    parts = _parts(backend, plan, device)
    if parts is None:
        return backend.run_on(plan, device)
    with torch.inference_mode(False):
        result = _together(backend, parts, lambda own: backend.run_on(own, device), memory.results.empty)
        return result.to(device)


def run_all(backend: HostBackend, plans: Sequence[Plan], allocate: Allocate) -> list[torch.Tensor | Exception]:
    """``HostBackend.run_all``, of images that another backend computes as well."""
    shared = {number: parts for number, plan in enumerate(plans) if (parts := _parts(backend, plan)) is not None}
    alone = [plan for number, plan in enumerate(plans) if number not in shared]
    results = backend.run_all(alone, allocate) if alone else []
    for number, parts in shared.items():
        try:
            result = _together(backend, parts, lambda own: backend.run(own, allocate), allocate)
            results.insert(number, result)
        except Exception as error:
            results.insert(number, error)
    return results


def describe(backend: Backend, plan: Plan) -> list[str]:
    """Lines for ``accel.explain``: how a backend would run a plan, what it would leave to its host, and how that does.

    ``Backend.describe`` says the first.
    """
    parts = _parts(backend, plan)
    lines = backend.describe(plan)
    if parts is not None:
        lines += [*parts.told(backend.host), *(f"  {line}" for line in describe(backend.on_host, parts.left))]
    return lines


def merge(result: torch.Tensor, places: Sequence[int], values: torch.Tensor, rows: Sequence[int]) -> None:
    """Copy rows of values to places of a result, successive ones at once; launches alone, where both are on a GPU."""
    first = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or (places[end], rows[end]) != (places[end - 1] + 1, rows[end - 1] + 1):
            place, row, count = places[first], rows[first], end - first
            result[place : place + count].copy_(values[row : row + count])
            first = end


def _parts(backend: Backend, plan: Plan, device: torch.device | None = None) -> Partition | None:
    """The parts of a plan that a backend does not run by itself."""
    if not isinstance(backend, Backend) or type(backend).supports is Backend.supports:
        return None
    parts = partition(plan, lambda stage: backend.supports(stage, device))
    return parts if parts.reasons else None


def _together(
    backend: Backend, parts: Partition, run: Callable[[Plan], torch.Tensor], allocate: Allocate
) -> torch.Tensor:
    """Run both parts of a plan; the result of ``run``, or the host's where that runs all."""
    for reason in parts.reasons:
        counters.fallback(f"{reason}; the host ran it")
    host = backend.on_host
    if host is backend:
        raise RuntimeError(f"{parts.reasons[0]}, and the backend is its own host")
    if not parts.own.decodes:
        return _run(host, parts.left, allocate)
    failures: list[DecodeError] = []
    results: list[torch.Tensor] = []
    for attempt, part in ((partial(_run, host, allocate=memory.results.empty), parts.left), (run, parts.own)):
        try:
            results.append(attempt(part))
        except DecodeError as error:
            failures.append(error)
    if failures:  # the first image that failed speaks for the batch
        raise min(failures, key=lambda error: error.position or 0)
    values, result = results
    places = positions(parts.left.decodes)
    merge(result, places, values, places)
    return result


def _run(backend: HostBackend, plan: Plan, allocate: Allocate) -> torch.Tensor:
    results = run_all(backend, [plan], allocate)
    if isinstance(results[0], Exception):
        raise cast(Exception, results.pop())  # the error's frames would keep it, and so the batch
    return results[0]
