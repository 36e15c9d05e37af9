"""Lazy tensors that are pinned or sent to a device: submitted with their companions, or computed there."""

from __future__ import annotations

import torch
from torch.utils.data import get_worker_info

from accel.lazy import shell
from accel.lazy.batch import companions, submit
from accel.lazy.state import Done, LazyState, Locating, peek
from accel.lazy.tensor_base import LazyTensorBase, records
from accel.processes import uses
from accel.recipes.arrived import Arrived
from accel.recipes.options import AcceleratorOptions, Selection
from accel.runtime import prefetch, streams, task
from accel.runtime.prefetch import PrefetchQueue, TaskSlice
from accel.system import log


def pin(tensor: LazyTensorBase) -> bool:
    """Submit a tensor of an accelerator backend, together with the others of its batch; return whether that was done.

    Never waits: it is launched when its turn comes and its device is known. False for a host backend, or if the device
    cannot be used.
    """
    lazy = tensor.lazy
    queue = queue_of(lazy.selection, lazy.loader)
    if queue is None:
        return False
    if lazy.part is None:
        queue.add(submit(companions(lazy), queue.foreseen))
    return True


def to_device(tensor: LazyTensorBase, device: torch.device, non_blocking: bool = False) -> torch.Tensor:
    """The values as a plain tensor on a device; an accelerator backend computes there, and remembers the device."""
    lazy = tensor.lazy if records(tensor) else None
    if lazy is not None and prefetch.usable(lazy.selection, device):
        with log.flushing, lazy.lock:
            if peek(tensor) is not None and not isinstance(lazy.progress, Done):
                return _on_device(lazy, streams.indexed(device)).as_subclass(tensor.becomes)
    elif lazy is not None and lazy.part is None and not lazy.together and get_worker_info() is None:
        states = companions(lazy)
        if len(states) > 1:
            task.start_on_host(submit(states).tasks)
    return LazyTensorBase.materialize(tensor).to(device, non_blocking=non_blocking)


def _on_device(lazy: LazyState, device: torch.device) -> torch.Tensor:
    selection, part = lazy.selection, lazy.part
    queue = None if part is None or part.submission.foreign else part.submission.queue
    prefetch.learn_device(selection, queue or prefetch.queue_of(selection, lazy.loader), device)
    if lazy.member is not None and lazy.loader:  # loaders without workers share a queue
        if queue is not None:
            queue.learn_steps(lazy.member.number, lazy.since)
        if isinstance(lazy.recipes, Arrived):
            uses.learn(lazy.loader, uses.Use(lazy.made[2], lazy.recipes.since))
    if part is None:
        if lazy.member is not None and lazy.loader and not lazy.member.batch.submitted:
            log.once(
                log.WARNING,
                "accel computes a DataLoader's batches when they are sent to the device, one by one: with "
                "pin_memory=True it computes the next ones meanwhile",
            )
        states = companions(lazy)
        if len(states) > 1:
            for each in submit(states).tasks:
                each.run(device)
    return submitted_or_computed(lazy, device).to(device)


def submitted_or_computed(lazy: LazyState, device: torch.device, part: TaskSlice | None = None) -> torch.Tensor:
    """The values from the submission (of ``part``, if it is given), or else computed on ``device`` now."""
    value = lazy.take(part)
    if value is None:
        with Locating(lazy), shell.suspended():
            value = lazy.computed_on(device)
    return value


def queue_of(selection: Selection, loader: int, device: torch.device | None = None) -> PrefetchQueue | None:
    """The queue to submit to, on ``device`` from now on if that is given; None if the host computes."""
    if not isinstance(selection.options, AcceleratorOptions) or get_worker_info() is not None:
        return None
    queue = prefetch.queue_of(selection, loader)
    if device is not None and prefetch.usable(selection, device):
        prefetch.learn_device(selection, queue, streams.indexed(device))
    return queue if queue.device is None or prefetch.usable(selection, queue.device) else None
