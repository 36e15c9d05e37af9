"""``__next__`` of a DataLoader's iterator, without torch's profiler range around it if no profiler is on.

Beginning and ending the range takes longer than many of the steps of a batch.
"""

from __future__ import annotations

from typing import Any

from torch.autograd import profiler

from accel.hooks.patch import Body, Function
from accel.system.private_names import private

dataloader = private("torch.utils.data.dataloader", "_BaseDataLoaderIter.__next__", "_DatasetKind.Map")
_torch = private("torch", "_C._autograd._profiler_enabled", "_C._profiler._RecordFunctionFast")

_KNOWN = frozenset({
    *("torch", "autograd", "profiler", "record_function", "_profile_name", "_sampler_iter", "_reset", "_next_data"),
    *("_num_yielded", "_dataset_kind", "_DatasetKind", "Iterable", "_IterableDataset_len_called", "_dataset"),
    *("_num_workers", "warnings", "warn"),
})  # fmt: skip
"""The names in the code of torch's method that this file knows; a method with others is run as it is."""


def _next(original: Function, self: Any) -> Any:
    if (
        self._sampler_iter is None
        or self._dataset_kind != dataloader._DatasetKind.Map
        or not _KNOWN.issuperset(original.__code__.co_names)
        or _torch._C._autograd._profiler_enabled()
        or getattr(profiler, "_active_cupti_profiler_observer", None) is not None
    ):
        return original(self)
    with _torch._C._profiler._RecordFunctionFast(self._profile_name):  # for other observers, if there are any
        data = self._next_data()
        self._num_yielded += 1
        return data


PATCHES = (Body("torch.utils.data.dataloader._BaseDataLoaderIter.__next__", _next),)
