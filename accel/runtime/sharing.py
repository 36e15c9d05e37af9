"""Running plans on a backend and, for images that need what it does not support, on its host backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from accel.backend import AcceleratorBackend, Backend, HostBackend, supports_all
from accel.errors import attempt, only
from accel.planning.columns import ColumnPlan
from accel.planning.partition import Partition, partition, reason_lines
from accel.planning.plan import Decode, FinishedPlan, Plan
from accel.system import counters, memory
from accel.system.memory import Allocate


def run_on(backend: AcceleratorBackend, plan: Plan, device: torch.device) -> torch.Tensor:
    """``AcceleratorBackend.run_on``, with the images that it does not support computed on the host."""
    finished = isinstance(plan, FinishedPlan)  # by a worker, which has checked this
    parts = None if finished else _parts(backend, plan, device)
    if parts is None:
        return backend.run_on(plan, device)
    with torch.inference_mode(False):
        made = [_together(backend, parts, lambda own: backend.run_on(own, device), memory.results.empty)]
        return only(made).to(device)


def run_all(backend: HostBackend, plans: Sequence[Plan], allocate: Allocate) -> list[torch.Tensor | Exception]:
    """``HostBackend.run_all``, with the images that it does not support computed by its host backend."""
    parts = [_parts(backend, plan) for plan in plans]
    if not any(parts):
        return backend.run_all(plans, allocate)
    return [
        _together(backend, part, lambda own: backend.run(own, allocate), allocate)
        if part
        else attempt(backend.run, plan, allocate)
        for part, plan in zip(parts, plans, strict=True)
    ]


def describe(backend: Backend, plan: Plan) -> list[str]:
    """Lines for ``accel.explain``: how a backend would run a plan, what it leaves to its host, and how that runs it.

    The first part comes from ``Backend.describe``.
    """
    lines, parts = backend.describe(plan), _parts(backend, plan)
    if parts is not None:
        lines += reason_lines(parts.reasons, backend.host, plan.shape[0])
        lines += [f"  {line}" for line in describe(backend.on_host, parts.left)]
    return lines


def merge(result: torch.Tensor, places: Sequence[int], values: torch.Tensor, rows: Sequence[int]) -> None:
    """Copy rows of values to places of a result, successive ones at once; on a GPU the copies are only launched."""
    first = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or (places[end], rows[end]) != (places[end - 1] + 1, rows[end - 1] + 1):
            place, row, count = places[first], rows[first], end - first
            result[place : place + count].copy_(values[row : row + count])
            first = end


def _parts(backend: Backend, plan: Plan, device: torch.device | None = None) -> Partition | None:
    """Split a plan into the backend's own part and its host's; None if the backend supports all of it."""

    def refused(wanted: Decode) -> str | None:
        stages = (stage for item in wanted.items for stage in item.stages)
        return next((reason for stage in stages if (reason := backend.supports(stage, device)) is not None), None)

    if supports_all(backend):
        return None
    by_columns = isinstance(plan, ColumnPlan) and getattr(backend, "runs_columns", False)
    if by_columns and backend.supports(plan.example, device) is None:  # type: ignore[attr-defined]
        return None
    parts = partition(plan, refused)
    return parts if parts.reasons else None


def _together(
    backend: Backend, parts: Partition, run: Callable[[Plan], torch.Tensor], allocate: Allocate
) -> torch.Tensor | Exception:
    """Run both parts of a plan: the result, or the error of the first image that failed."""
    for reason in parts.reasons.elements():
        counters.fallback(f"{reason}; the host ran it")
    if backend.on_host is backend:
        raise RuntimeError(f"{min(parts.reasons)}, and the backend is its own host")
    if not parts.own.decodes:
        return run_all(backend.on_host, [parts.left], allocate)[0]
    values, result = run_all(backend.on_host, [parts.left], memory.results.empty)[0], attempt(run, parts.own)
    if isinstance(values, torch.Tensor) and isinstance(result, torch.Tensor):
        places = sorted([item.position for wanted in parts.left.decodes for item in wanted.items])
        merge(result, places, values, places)
        return result
    failed = [each for each in (values, result) if isinstance(each, Exception)]
    return min(failed, key=lambda error: getattr(error, "position", None) or 0)
