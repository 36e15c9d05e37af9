"""The functions that are timed, each as a stage: while this process measures, clocks are put around them.

Otherwise they are the originals. The clocks lie above the hooks of ``accel.hooks``: when a backend comes into force or
goes, they are removed before and put back after.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from torchvision import transforms as v1
from torchvision.transforms import v2

from accel import hooks
from accel.hooks import multiprocessing
from accel.hooks.patch import Undo, attribute, body, found
from accel.processes.leaving import leaves
from accel.profiling import fetching, loading
from accel.profiling.fetching import around
from accel.profiling.sampler import sampler
from accel.system.private_names import private
from accel.system.timing import clocks, measuring
from accel.system.timing.clocks import COLLATE, COPY, DECODE, KERNELS, LAUNCH, PLAN, READ, RECORD, TRANSFORM, USER

Function = Callable[..., Any]

_ATTRIBUTES: dict[str, int] = {
    "accel.hooks.pillow_open.opened": READ,
    "accel.lazy.jpeg_file.Unread.read": READ,
    "accel.hooks.claimed_files.read": READ,
    "accel.hooks.claimed_files.read_together": READ,
    "accel.hooks.compiled.batch.fetched": RECORD,
    "accel.runtime.read.pixels": DECODE,
    "accel.runtime.compute.on_host": TRANSFORM,
    "accel.runtime.sharing.run_on": LAUNCH,
    "accel.runtime.torch_ops._image": KERNELS,
    "accel.runtime.torch_ops.on_device": KERNELS,
    "accel.lazy.tensor.to_device": COPY,
    "accel.hooks.dataloader._located": USER,
    "accel.hooks.dataloader.Collating.__call__": COLLATE,
    "PIL.JpegImagePlugin.JpegImageFile.load_read": READ,
    "PIL.PngImagePlugin.PngImageFile.load_read": READ,
    "accel.runtime.compute.several": PLAN,
    "accel.runtime.compute.tensors_on": PLAN,
    "accel.runtime.torch_ops.on_batch": KERNELS,
}
"""Functions that callers look up by name at each call."""

_IMPORTED = ("PIL.JpegImagePlugin", "PIL.PngImagePlugin")

_STOCK = ("torchvision.transforms.transforms", "torchvision.transforms.autoaugment", "torchvision.transforms.v2")
_HOLDERS = {"Compose", "Lambda", "RandomApply", "RandomChoice", "RandomOrder", "RandomTransforms", "Transform"}
"""Transforms that run others, which may be the user's, or the user's functions."""

_undo: list[Undo] = []


def changed(begins: bool) -> None:
    """Put the clocks in place if this process measures, or torch's profiler does; else remove them.

    ``begins``: whether measuring begins now.
    """
    sampler.stop()
    _uninstall()
    if begins:
        for each in (sampler.forget, fetching.begin, loading.begin):
            each()
    _install()
    if measuring.measuring():
        sampler.start()


def _install() -> None:
    measures = measuring.measuring()
    if clocks.ranges is None and not measures:
        return
    for name in _IMPORTED:
        import_module(name)
    for name, stage in _ATTRIBUTES.items():
        _undo.append(around(name, partial(clocks.timed if measures else clocks.shown, stage)))
    if measures:
        _install_measuring()


def _install_measuring() -> None:
    loop = ("torch.utils.data._utils.worker._worker_loop", _WorkerEntry)
    _undo.extend(around(*each) for each in (loop, *fetching.REPLACED, *loading.REPLACED))
    _undo.extend(body(found(name), replacement) for name, replacement in fetching.BODIES)
    fetching.stock.update(_transforms())
    _method(v1.Compose, "__call__", fetching.compose)
    _method(v2.Compose, "forward", fetching.compose)
    for cls in fetching.stock:
        for name in ("forward", "__call__"):
            if name in vars(cls):
                _method(cls, name, fetching.transform)


def _method(cls: type, name: str, make: Callable[[Function], Function]) -> None:
    """Put a clock around a method of a transform."""
    original = vars(cls)[name]
    clocked = make(original)
    _undo.append(attribute(cls, name, clocked))
    clocks.originals[clocked] = original


def _transforms() -> Iterator[type]:
    """Stock transforms of torchvision, v1 and v2."""
    for module in map(found, _STOCK):
        for cls in vars(module).values():
            is_stock = isinstance(cls, type) and cls.__module__.startswith("torchvision.transforms")
            if is_stock and cls.__name__ not in _HOLDERS:
                yield cls


class _WorkerEntry:
    """The function that a DataLoader's worker runs; in one that is not forked, it joins the measuring there."""

    def __init__(self, original: Function) -> None:
        self.original = original

    def __call__(self, *args: Any) -> Any:
        return self.original(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        # the switch sends the block along, which can be sent only once
        block = None if multiprocessing.carries() else measuring.share()
        return _enter_worker, (None if inspect.isfunction(self.original) else self.original, block)


def _enter_worker(original: Function | None, block: Any) -> Function:
    measuring.join(block)
    entered = original or leaves(private("torch.utils.data._utils.worker")._worker_loop)
    measuring.look()
    return entered


def _uninstall() -> None:
    clocks.originals.clear()
    for each in (fetching.undo, _undo):
        while each:
            each.pop()()


hooks.put_above(lambda back: (_install if back else _uninstall)())
