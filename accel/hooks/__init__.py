"""How accel enters Pillow, torchvision and torch: nothing else changes anything of theirs, and all of it is undone.

Each module here is named after what it hooks and has a table, ``PATCHES``, of the names that it replaces. They are
replaced when the first backend comes into force and put back when the last one goes; a replacement passes straight
through for everything that is not accel's.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from PIL import Image

from accel import switch
from accel.hooks import (
    augmix,  # noqa: F401  replaces nothing: it adds to what lazy tensors know
    dataloader,
    datasets_folder,
    multiprocessing,
    nn_parameter,
    pillow_enhance,
    pillow_open,
    ray,
    table,
    torch_compile,
    tv_functional,
    tv_functional_pil,
    tv_io,
    tv_transforms,
    v2_forward,
    v2_functional,
    v2_kernels,
    v2_transforms,
)
from accel.hooks.patch import Patch, Undo
from accel.system import counters, private_names, replaced

PATCHES: tuple[Patch, ...] = (
    *pillow_open.PATCHES,
    *pillow_enhance.PATCHES,
    *datasets_folder.PATCHES,
    *tv_io.PATCHES,
    *tv_transforms.PATCHES,
    *tv_functional.PATCHES,
    *tv_functional_pil.PATCHES,
    *v2_transforms.PATCHES,
    *v2_forward.PATCHES,
    *v2_functional.PATCHES,
    *v2_kernels.PATCHES,
    *table.PATCHES,
    *nn_parameter.PATCHES,
    *torch_compile.PATCHES,
    *dataloader.PATCHES,
    *multiprocessing.PATCHES,
    *ray.PATCHES,
)
"""Every row of every table."""

_undo: list[Undo] = []


def install() -> None:
    """Put every replacement in place.

    Raises:
        BackendUnavailable: this version of Pillow, torch or torchvision lacks a name that accel needs.
    """
    Image.preinit()
    places: list[tuple[Patch, Any]] = []
    lacking: list[str] = []
    for row in PATCHES:
        try:
            places.append((row, row.find()))
        except AttributeError:
            lacking += [] if row.optional else [row.name]
    private_names.check(*lacking)
    counters.share()
    with suppress(OSError):
        replaced.share()
    torch_compile.keep_out()
    try:
        _undo.append(pillow_open.unwatch)
        for row, place in places:
            _undo.append(row.put(place))
    except Exception as error:
        uninstall()
        private_names.refuse(f"{type(error).__name__}: {error}")


def uninstall() -> None:
    """Put every original back, the last one replaced first."""
    while _undo:
        _undo.pop()()


switch.on_use(install, uninstall)
