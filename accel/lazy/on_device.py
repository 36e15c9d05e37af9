"""Lazy tensors that are pinned or sent to a device: submitted with those that came with them, or computed there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch.utils.data import get_worker_info

from accel.lazy.base import LateTensor, is_late
from accel.lazy.state import Late
from accel.options import AcceleratorOptions, Selection
from accel.runtime import materialize, prefetch, streams, task
from accel.runtime.prefetch import Part, PrefetchQueue, Submission
from accel.runtime.task import Task
from accel.system import log


def pin(tensor: LateTensor) -> bool:
    """Submit a tensor of an accelerator backend, together with those that its DataLoader gave with it.

    Never waits: it is launched when its turn comes, and when it is known on which device. False where that cannot
    be, and for a host backend.
    """
    late = tensor.late
    queue = queue_of(selection_of(late), late.loader)
    if queue is None:
        return False
    if late.part is None:
        queue.add(_submission(_companions(late)))
    return True


def to_device(tensor: LateTensor, device: torch.device, non_blocking: bool = False) -> torch.Tensor:
    """Compute the values on a device, as a plain tensor. An accelerator backend computes them there, and learns where.

    Raises:
        DecodeError: an image cannot be decoded.
    """
    late = tensor.late if is_late(tensor) else None
    if late is not None and prefetch.usable(selection_of(late), device):
        with log.settling, late.lock:
            if late.value is None and "late" in tensor.__dict__:
                return _on_device(late, streams.indexed(device)).as_subclass(tensor.becomes)
    elif late is not None and late.part is None and late.group is None and get_worker_info() is None:
        lates = _companions(late)
        if len(lates) > 1:
            task.start_on_host(_submission(lates).tasks)
    return LateTensor.evaluate(tensor).to(device, non_blocking=non_blocking)


def _on_device(late: Late, device: torch.device) -> torch.Tensor:
    selection, part = selection_of(late), late.part
    queue = None if part is None or part.submission.foreign else part.submission.queue
    prefetch.learn_device(selection, queue or prefetch.queue_of(selection, late.loader), device)
    if part is None:
        if late.member is not None and late.loader and not late.member.batch.submitted:
            _hint_to_pin()
        lates = _companions(late)
        if len(lates) > 1:
            for each in _submission(lates).tasks:
                each.run(device)
    return submitted_or_computed(late, device).to(device)


def submitted_or_computed(late: Late, device: torch.device) -> torch.Tensor:
    """The values that were submitted, wherever they are, or else computed on ``device`` now."""
    value = late.submitted()
    if value is None:
        with late.locating_errors():
            value = late.shaped(task.compute_now(late.recipes, late.interleaved, device))
    return value


@cache
def _hint_to_pin() -> None:
    log.note(
        log.WARNING,
        "accel computes a DataLoader's batches when they are sent to the device, one by one: with pin_memory=True it "
        "computes the next ones meanwhile",
    )


def selection_of(late: Late) -> Selection:
    return materialize.selection_of(late.recipes)


def queue_of(selection: Selection, loader: int, device: torch.device | None = None) -> PrefetchQueue | None:
    """The queue to submit to, on ``device`` from now on if that is given; None where the host computes."""
    if not isinstance(selection.options, AcceleratorOptions) or get_worker_info() is not None:
        return None
    queue = prefetch.queue_of(selection, loader)
    if device is not None and prefetch.usable(selection, device):
        prefetch.learn_device(selection, queue, streams.indexed(device))
    return queue if queue.device is None or prefetch.usable(selection, queue.device) else None


def _companions(late: Late) -> list[Late]:
    """The tensors to submit with one: for the first of its DataLoader's batch all of that, or what became of it."""
    batch = None if late.member is None else late.member.batch
    if batch is None or batch.submitted:
        return [late]
    batch.submitted = True
    selection = selection_of(late)
    others = [other for other in batch.members() if other.part is None and selection_of(other) == selection]
    return others if late in others else [late, *(other for other in others if other.member is not late.member)]


def _submission(lates: Sequence[Late]) -> Submission:
    """One submission of late tensors, which get their parts of it."""
    submission, parts = coalesce(lates)
    for late, part in zip(lates, parts, strict=True):
        late.part = part
    return submission


def coalesce(lates: Sequence[Late]) -> tuple[Submission, list[Part]]:
    """Make one submission, with a task for all that come out alike, and the part of each in it."""
    groups: dict[Any, list[Late]] = {}
    for late in lates:
        late.group = None
        groups.setdefault((late.made, late.interleaved), []).append(late)
    tasks = {}
    for key, group in groups.items():
        recipes = tuple(recipe for late in group for recipe in late.recipes)
        tasks[key] = Task(recipes, group[0].interleaved, owners=len(group))
    submission = Submission(tuple(tasks.values()))
    parts, taken = [], dict.fromkeys(tasks, 0)
    for late in lates:
        key = late.made, late.interleaved
        parts.append(Part(submission, tasks[key], taken[key]))
        taken[key] += len(late.recipes)
    return submission, parts
