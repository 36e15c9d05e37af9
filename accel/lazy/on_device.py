"""Lazy tensors that are pinned or sent to a device: submitted with those that came with them, or computed there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import get_worker_info

from accel.lazy.state import LazyState
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.options import AcceleratorOptions, Selection
from accel.runtime import compute, prefetch, streams, task
from accel.runtime.prefetch import Part, PrefetchQueue, Submission
from accel.runtime.task import Task
from accel.system import log


def pin(tensor: LazyTensorBase) -> bool:
    """Submit a tensor of an accelerator backend, together with those that its DataLoader gave with it.

    Never waits: it is launched when its turn comes, and when it is known on which device. False where that cannot
    be, and for a host backend.
    """
    lazy = tensor.lazy
    queue = queue_of(selection_of(lazy), lazy.loader)
    if queue is None:
        return False
    if lazy.part is None:
        queue.add(_submission(_companions(lazy)))
    return True


def to_device(tensor: LazyTensorBase, device: torch.device, non_blocking: bool = False) -> torch.Tensor:
    """Compute the values on a device, as a plain tensor; an accelerator backend computes there, and learns where."""
    lazy = tensor.lazy if is_lazy(tensor) else None
    if lazy is not None and prefetch.usable(selection_of(lazy), device):
        with log.flushing, lazy.lock:
            if lazy.value is None and "lazy" in tensor.__dict__:
                return _on_device(lazy, streams.indexed(device)).as_subclass(tensor.becomes)
    elif lazy is not None and lazy.part is None and lazy.group is None and get_worker_info() is None:
        states = _companions(lazy)
        if len(states) > 1:
            task.start_on_host(_submission(states).tasks)
    return LazyTensorBase.materialize(tensor).to(device, non_blocking=non_blocking)


def _on_device(lazy: LazyState, device: torch.device) -> torch.Tensor:
    selection, part = selection_of(lazy), lazy.part
    queue = None if part is None or part.submission.foreign else part.submission.queue
    prefetch.learn_device(selection, queue or prefetch.queue_of(selection, lazy.loader), device)
    if part is None:
        if lazy.member is not None and lazy.loader and not lazy.member.batch.submitted:
            log.once(
                log.WARNING,
                "accel computes a DataLoader's batches when they are sent to the device, one by one: with "
                "pin_memory=True it computes the next ones meanwhile",
            )
        states = _companions(lazy)
        if len(states) > 1:
            for each in _submission(states).tasks:
                each.run(device)
    return submitted_or_computed(lazy, device).to(device)


def submitted_or_computed(lazy: LazyState, device: torch.device) -> torch.Tensor:
    """The values that were submitted, wherever they are, or else computed on ``device`` now."""
    value = lazy.submitted()
    if value is None:
        with lazy.locating_errors():
            value = lazy.shaped(task.compute_now(lazy.recipes, lazy.interleaved, device))
    return value


def selection_of(lazy: LazyState) -> Selection:
    return compute.selection_of(lazy.recipes)


def queue_of(selection: Selection, loader: int, device: torch.device | None = None) -> PrefetchQueue | None:
    """The queue to submit to, on ``device`` from now on if that is given; None where the host computes."""
    if not isinstance(selection.options, AcceleratorOptions) or get_worker_info() is not None:
        return None
    queue = prefetch.queue_of(selection, loader)
    if device is not None and prefetch.usable(selection, device):
        prefetch.learn_device(selection, queue, streams.indexed(device))
    return queue if queue.device is None or prefetch.usable(selection, queue.device) else None


def _companions(lazy: LazyState) -> list[LazyState]:
    """The tensors to submit with one: for the first of its DataLoader's batch all of that, or what became of it."""
    batch = None if lazy.member is None else lazy.member.batch
    if batch is None or batch.submitted:
        return [lazy]
    batch.submitted = True
    selection = selection_of(lazy)
    others = [other for other in batch.members() if other.part is None and selection_of(other) == selection]
    return others if lazy in others else [lazy, *(other for other in others if other.member is not lazy.member)]


def _submission(states: Sequence[LazyState]) -> Submission:
    """One submission of lazy tensors, which get their parts of it."""
    submission, parts = coalesce(states)
    for lazy, part in zip(states, parts, strict=True):
        lazy.part = part
    return submission


def coalesce(states: Sequence[LazyState]) -> tuple[Submission, list[Part]]:
    """Make one submission, with a task for all that come out alike, and the part of each in it."""
    groups: dict[Any, list[LazyState]] = {}
    for lazy in states:
        lazy.group = None
        groups.setdefault((lazy.made, lazy.interleaved), []).append(lazy)
    tasks = {}
    for key, group in groups.items():
        recipes = tuple(recipe for lazy in group for recipe in lazy.recipes)
        tasks[key] = Task(recipes, group[0].interleaved, owners=len(group))
    submission = Submission(tuple(tasks.values()))
    parts, taken = [], dict.fromkeys(tasks, 0)
    for lazy in states:
        key = lazy.made, lazy.interleaved
        parts.append(Part(submission, tasks[key], taken[key]))
        taken[key] += len(lazy.recipes)
    return submission, parts
