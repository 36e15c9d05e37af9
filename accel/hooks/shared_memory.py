"""torch's shared memory for what a DataLoader worker sends: without a name, so that the size of /dev/shm is no limit.

Without room in /dev/shm torch raises an error, or, where it does not look, the system ends the worker (SIGBUS).
"""

from __future__ import annotations

import os
from functools import wraps
from typing import Any

import torch
from torch.multiprocessing import get_sharing_strategy
from torch.utils.data import get_worker_info

from accel.hooks.patch import Attribute, Body, Function
from accel.system import memory


def _applies(size: int) -> bool:
    return get_worker_info() is not None and size > 0 and get_sharing_strategy() == "file_descriptor"


def _new_shared(original: Any) -> Any:
    """``UntypedStorage._new_shared``, by which a worker's ``default_collate`` stacks tensors."""

    @wraps(original)
    def new_shared(cls: type, size: int, *, device: Any = "cpu") -> Any:
        own = cls is torch.UntypedStorage and torch.device(device).type == "cpu" and _applies(size)
        made = memory.anonymous_storage(size) if own else None
        return original.__func__(cls, size, device=device) if made is None else made

    return classmethod(new_shared)


def _reduce_storage(original: Function, storage: Any) -> Any:
    """The reduction of any other storage, which torch moves to /dev/shm: a copy is sent if there is no room."""
    size = storage.nbytes()
    kind = type(storage) is torch.UntypedStorage and storage.device.type == "cpu"
    if kind and _applies(size) and not storage.is_shared() and not _room(size):
        made = memory.anonymous_storage(size)
        if made is not None:
            storage = made.copy_(storage)
    return original(storage)


def _room(size: int) -> bool:
    try:
        there = os.statvfs("/dev/shm")
    except OSError:
        return False
    return size <= there.f_bavail * there.f_frsize


PATCHES = (
    Attribute("torch.UntypedStorage._new_shared", _new_shared),
    Body("torch.multiprocessing.reductions.reduce_storage", _reduce_storage),
)
