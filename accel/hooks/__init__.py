"""Hooks: replacements of functions of Pillow, torchvision and torch. No other room changes any; all can be undone.

Each module is named after what it hooks and has a table, ``PATCHES``, of the names that it replaces. They are replaced
when the first backend comes into force and put back when the last one goes. For everything that is not accel's, a
replacement calls the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from PIL import Image

from accel.hooks import (
    dataloader,
    interrupts,
    job_runners,
    multiprocessing,
    persistent,
    pillow_open,
    pillow_ops,
    prefetching,
    ray,
    resume,
    self_test,
    shared_memory,
    table,
    torch_compile,
    torch_profiler,
    transformers,
    tv_datasets,
    tv_files,
    tv_functional,
    tv_io,
    tv_tensors,
    tv_transforms,
    v2_functional,
    v2_transforms,
    watching,
    wrapped_arrays,
)
from accel.hooks.compiled import single
from accel.hooks.patch import Patch, Undo
from accel.processes import switch
from accel.system import counters, private_names, shared_list
from accel.system.timing import measuring

_HOOKED: tuple[Any, ...] = (
    pillow_open,
    pillow_ops,
    tv_datasets,
    tv_files,
    tv_io,
    tv_tensors,
    tv_transforms,
    tv_functional,
    v2_transforms,
    v2_functional,
    single,
    table,
    torch_compile,
    torch_profiler,
    dataloader,
    shared_memory,
    persistent,
    resume,
    prefetching,
    multiprocessing,
    ray,
    interrupts,
)
PATCHES: tuple[Patch, ...] = tuple(row for module in _HOOKED for row in module.PATCHES)
"""The rows of all tables."""

_undo: list[Undo] = []
_above: list[Callable[[bool], object]] = []


def put_above(layer: Callable[[bool], object]) -> None:
    """Keep a layer of replacements above those made here: ``layer(True)`` installs it, ``layer(False)`` removes it."""
    _above.append(layer)


@contextmanager
def _beneath() -> Iterator[None]:
    """Remove the layers above for the block, so that names can be replaced beneath them."""
    for layer in _above:
        layer(False)
    try:
        yield
    finally:
        for layer in _above:
            layer(True)


@_beneath()
def install() -> None:
    """Put every replacement in place.

    Raises:
        BackendUnavailable: this version of Pillow, torch or torchvision lacks a name that accel needs.
    """
    Image.preinit()
    places: list[tuple[Patch, Any]] = []
    missing: list[str] = []
    for row in PATCHES:
        try:
            places.append((row, row.find()))
        except AttributeError:
            missing.append(row.name)
    private_names.check(*missing)
    counters.share()
    measuring.share()
    with suppress(OSError):
        shared_list.share()
    torch_compile.keep_out()
    name = ""
    try:
        _undo.append(pillow_open.unwatch)
        _undo.append(watching.watch({**job_runners.MODULES, **transformers.MODULES, **wrapped_arrays.MODULES}))
        for row, place in places:
            name = row.name
            _undo.append(row.put(place))
    except Exception as error:
        uninstall()
        private_names.refuse(f"{name} cannot be replaced ({type(error).__name__}: {error})")


def uninstall() -> None:
    """Put every original back, the last one replaced first."""
    with _beneath():
        while _undo:
            _undo.pop()()


switch.on_use(install, uninstall, self_test.leave_what_differs)
