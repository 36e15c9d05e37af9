"""``torch.profiler``: while it runs, accel's stages appear as ranges named ``accel::...``.

While none runs, ``__next__`` of a DataLoader's iterator, torch's own, has a cheap range around it: beginning and ending
torch's takes longer than many of the steps of a batch.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch.autograd import profiler

from accel.hooks.patch import Body, Function, Shortcut, copied
from accel.system.private_names import private
from accel.system.timing import measuring

private("torch.utils.data.dataloader", "_BaseDataLoaderIter.__next__")
_torch = private("torch", "_C._autograd._profiler_enabled", "_C._profiler._RecordFunctionFast")

_NAMES = (
    "torch autograd profiler record_function _profile_name _sampler_iter _reset _next_data _num_yielded _dataset_kind "
    "_DatasetKind Iterable _IterableDataset_len_called _dataset _num_workers warnings warn"
)
_KNOWN = frozenset(_NAMES.split())
"""The names in the code of torch's method that this file knows; a method with others is run as it is."""

_of_torch = profiler.record_function


def _range(name: str) -> Any:
    """A range of torch's profiler; while that is off, one that only other observers see (0.9 µs in place of 23)."""
    observed = (
        _torch._C._autograd._profiler_enabled()
        or getattr(profiler, "_active_cupti_profiler_observer", None) is not None
        or profiler.record_function is not _of_torch
    )
    return profiler.record_function(name) if observed else _torch._C._profiler._RecordFunctionFast(name)


def _next(original: Any) -> Function:
    """A copy of torch's method to which ``torch.autograd.profiler.record_function`` is ``_range``."""
    if not _KNOWN.issuperset(original.__code__.co_names):
        return original  # type: ignore[no-any-return]
    ranges = SimpleNamespace(autograd=SimpleNamespace(profiler=SimpleNamespace(record_function=_range)))
    return copied(original, {**original.__globals__, "torch": ranges})


def _start(original: Function, self: Any, *args: Any, **kwargs: Any) -> Any:
    measuring.show(_of_torch)
    return original(self, *args, **kwargs)


def _exit(original: Function, self: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return original(self, *args, **kwargs)
    finally:
        measuring.show(None)


PATCHES = (
    Body("torch.autograd.profiler.profile._start_trace", _start),
    Body("torch.autograd.profiler.profile.__exit__", _exit),
    Shortcut("torch.utils.data.dataloader._BaseDataLoaderIter.__next__", _next),
)
